"""Recognizes the pods by which KubeRay cleans up Redis after a RayCluster with GCS fault tolerance.

KubeRay runs such a pod by a Job while the RayCluster is being deleted, and keeps the RayCluster until it has ended. The
pod is made of the head's template: it has our gate, and the label of the head's pod set.
Source: KubeRay 1.7, `buildRedisCleanupJob` in `ray-operator/controllers/ray/raycluster_controller.go`.
"""

from typing import Any

from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.owners import Owner

Manifest = dict[str, Any]

NODE_TYPE_LABEL = "ray.io/node-type"
_HEAD = "head"
"""The pod set of its template."""


def cleans_redis(pod: Manifest) -> bool:
    """Whether KubeRay has made a pod to clean up Redis after a cluster of ours.

    No user of the manager can make another pod look like it: an agent sets the pod set and the manager's UID, and
    KubeRay the node type of everything that it makes of a head's template.
    """
    metadata = pod["metadata"]
    labels, owner = metadata.get("labels") or {}, Owner.from_metadata(metadata)
    if labels.get(NODE_TYPE_LABEL) != "redis-cleanup" or labels.get(kueue.POD_SET_LABEL) != _HEAD:
        return False
    return owner is not None and owner.kind == "Job" and api_names.MANAGER_UID_LABEL in labels
