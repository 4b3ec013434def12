"""KubeRay's stand-in for clusters with GCS fault tolerance: the data in Redis goes before its RayCluster does.

There is no Redis: the pod that cleans it up just ends. Source of the rules: KubeRay 1.7, the block about the finalizer
in `rayClusterReconcile`, and `buildRedisCleanupJob`.
"""

from contextlib import suppress
from typing import Any

from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.sandbox.controllers.controller import Controller, owner_reference
from slicebus.sandbox.controllers.pods import RUN_SECONDS_ANNOTATION

Manifest = dict[str, Any]

FINALIZER = "ray.io/gcs-ft-redis-cleanup-finalizer"
_DEADLINE_S = 300
_NAME_LENGTH = 63
_RESOURCES = {"cpu": "200m", "memory": "256Mi"}
_RUNS_S = "0.1"


async def keep_until_clean(controller: Controller, cluster: Manifest) -> bool:
    """Give a cluster its finalizer, or clean up after one that is being deleted. Returns whether that is all there is
    to do now.

    The controller also watches the pods and Jobs that the cluster owns: each change leads to the next step.
    """
    metadata = cluster["metadata"]
    finalizers = metadata.get("finalizers") or []
    if "deletionTimestamp" in metadata:
        if FINALIZER in finalizers:
            await _clean_up(controller, cluster)
        return True
    if FINALIZER in finalizers or not _is_fault_tolerant(cluster):
        return False
    await _set_finalizers(controller, cluster, [*finalizers, FINALIZER])
    return True


def _is_fault_tolerant(cluster: Manifest) -> bool:
    annotations = cluster["metadata"].get("annotations") or {}
    by_annotation = annotations.get("ray.io/ft-enabled", "").lower() == "true"
    return by_annotation or cluster["spec"].get("gcsFaultToleranceOptions") is not None


async def _clean_up(controller: Controller, cluster: Manifest) -> None:
    """Do the next step: delete the pods, run the Job once the head has gone, let the cluster go once the Job has
    ended."""
    pods, jobs = controller.children(PODS, cluster), controller.children(JOBS, cluster)
    for pod in pods:
        await controller.delete(PODS, pod)
    if any(pod["metadata"]["labels"].get("ray.io/node-type") == "head" for pod in controller.children(PODS, cluster)):
        return
    if not jobs:
        with suppress(ConflictError):
            await controller.create(JOBS, _cleanup_job(cluster))
    elif _has_ended(jobs[0]):
        kept = [name for name in cluster["metadata"]["finalizers"] if name != FINALIZER]
        await _set_finalizers(controller, cluster, kept)


async def _set_finalizers(controller: Controller, cluster: Manifest, finalizers: list[str]) -> None:
    """Set the finalizers. A conflict is ignored: the cluster has changed, so it is reconciled again anyway."""
    metadata = cluster["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}}
    with suppress(ConflictError, NotFoundError):
        await controller.client.patch(RAYCLUSTERS, metadata["name"], metadata["namespace"], MergePatch(body))


def _cleanup_job(cluster: Manifest) -> Manifest:
    """A Job whose pod is made of the head's template, gate included, with the Ray container only."""
    template, name = cluster["spec"]["headGroupSpec"]["template"], cluster["metadata"]["name"]
    of_head = template.get("metadata") or {}
    labels = (of_head.get("labels") or {}) | {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": name,
        "ray.io/node-type": "redis-cleanup",
        "ray.io/group": "headgroup",
        "ray.io/identifier": f"{name}-head",
    }
    metadata = {
        "labels": labels,
        "annotations": (of_head.get("annotations") or {}) | {RUN_SECONDS_ANNOTATION: _RUNS_S},
    }
    container = template["spec"]["containers"][0] | {"resources": {"requests": _RESOURCES, "limits": _RESOURCES}}
    kept = {key: value for key, value in container.items() if key not in ("livenessProbe", "readinessProbe")}
    spec = template["spec"] | {"containers": [kept], "restartPolicy": "Never"}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": metadata
        | {
            "name": f"{name}-redis-cleanup"[-_NAME_LENGTH:],
            "namespace": cluster["metadata"]["namespace"],
            "ownerReferences": [owner_reference(cluster)],
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DEADLINE_S,
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def _has_ended(job: Manifest) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(entry["type"] in ("Complete", "Failed") and entry["status"] == "True" for entry in conditions)
