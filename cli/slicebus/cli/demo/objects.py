"""The objects of the demo: a fleet, a quota, and jobs that grow."""

from collections.abc import Sequence
from typing import Any

from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES, NODES, RESOURCEFLAVORS, WORKERCLUSTERS, Resource
from slicebus.slices.api import kueue

Manifest = dict[str, Any]

NAMESPACE = "team-a"
SYSTEM_NAMESPACE = "slicebus-system"
QUEUE = "main"
CLUSTER_QUEUE = "batch"
FLAVOR = "default"
IMAGE = "busybox"
RAY_IMAGE = "rayproject/ray:2.52.0"
"""The image of Ray's pods. Only a real kubelet pulls it."""


def namespace(name: str) -> Manifest:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(name: str, *, cpu: int) -> Manifest:
    """A node that is ready."""
    return {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def worker_cluster(name: str, *, broker_user: str | None = None) -> Manifest:
    """A cluster that is accepted."""
    spec: Manifest = {"accepted": True} | ({"brokerUser": broker_user} if broker_user else {})
    return named(WORKERCLUSTERS, name, spec)


def quota(cpu: int) -> list[tuple[Resource, Manifest]]:
    """A flavor, a ClusterQueue with so many cores and 4 GiB for each, and a LocalQueue."""
    amounts = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    groups = [{"coveredResources": list(amounts), "flavors": [{"name": FLAVOR, "resources": resources}]}]
    local = named(LOCALQUEUES, QUEUE, {"clusterQueue": CLUSTER_QUEUE})
    local["metadata"]["namespace"] = NAMESPACE
    return [
        (RESOURCEFLAVORS, named(RESOURCEFLAVORS, FLAVOR, {})),
        (CLUSTERQUEUES, named(CLUSTERQUEUES, CLUSTER_QUEUE, {"namespaceSelector": {}, "resourceGroups": groups})),
        (LOCALQUEUES, local),
    ]


def job(name: str, *, parallelism: int = 1, image: str = IMAGE) -> Manifest:
    """An elastic Job."""
    spec = {
        "parallelism": parallelism,
        "completions": 1000,
        "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
        "template": {"spec": pod_spec("1", image=image, command=["sleep", "3600"]) | {"restartPolicy": "Never"}},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _queued(name), "spec": spec}


def ray_cluster_spec(*, replicas: int = 1, image: str = RAY_IMAGE) -> Manifest:
    """The spec of a RayCluster with one worker group."""
    head = {"rayStartParams": {}, "template": {"spec": pod_spec("500m", name="ray-head", image=image)}}
    group = {
        "groupName": "small-group",
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 20,
        "rayStartParams": {},
        "template": {"spec": pod_spec("1", name="ray-worker", image=image)},
    }
    return {"enableInTreeAutoscaling": True, "headGroupSpec": head, "workerGroupSpecs": [group]}


def ray_cluster(name: str, *, replicas: int = 1, image: str = RAY_IMAGE) -> Manifest:
    """An elastic RayCluster, with the autoscaler."""
    spec = ray_cluster_spec(replicas=replicas, image=image) | {"managedBy": kueue.MANAGED_BY_MULTIKUEUE}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": _queued(name), "spec": spec}


def ray_job(name: str, *, replicas: int = 1) -> Manifest:
    """An elastic RayJob, with the autoscaler."""
    spec = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
        "rayClusterSpec": ray_cluster_spec(replicas=replicas),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": _queued(name), "spec": spec}


def ray_service(name: str, *, replicas: int = 1) -> Manifest:
    """An elastic RayService, with the autoscaler."""
    spec = {
        "serveConfigV2": "applications: []",
        "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
        "rayClusterConfig": ray_cluster_spec(replicas=replicas),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": _queued(name), "spec": spec}


def pod_spec(cpu: str, *, image: str, name: str = "main", command: Sequence[str] = ()) -> Manifest:
    """The spec of a pod with one container."""
    container: Manifest = {"name": name, "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"containers": [container | ({"command": list(command)} if command else {})]}


def _queued(name: str) -> Manifest:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {kueue.QUEUE_NAME_LABEL: QUEUE},
        "annotations": {kueue.ELASTIC_ANNOTATION: "true"},
    }


def named(resource: Resource, name: str, spec: Manifest) -> Manifest:
    """An object without a namespace."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
