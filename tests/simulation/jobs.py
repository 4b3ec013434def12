"""The jobs that users submit, and where each kind has its size."""

from typing import Any

from simulation.schedule import Submit
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.sandbox.controllers.pods import RUN_SECONDS_ANNOTATION
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from slicebus.slices import kueue, own_api
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]

_RUN_S, _COMPLETIONS = 5, 4
_SIZE = {
    "Job": "/spec/parallelism",
    "RayCluster": "/spec/workerGroupSpecs/0/replicas",
    "RayJob": "/spec/rayClusterSpec/workerGroupSpecs/0/replicas",
}


def job_of(item: Submit) -> Manifest:
    """A job as a user submits it."""
    name = f"{item.kind.lower()}-{item.name}"
    match item.kind:
        case "Job":
            job = objects.job(name, parallelism=item.size)
        case "RayCluster":
            job = objects.ray_cluster(name, replicas=item.size)
            job["spec"]["enableInTreeAutoscaling"] = item.autoscales
        case _:
            job = objects.ray_job(name, replicas=item.size)
            job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = item.autoscales
    runs = {"metadata": {"annotations": {RUN_SECONDS_ANNOTATION: str(_RUN_S)}}}
    if item.ends and item.kind == "Job":
        job["spec"]["completions"] = _COMPLETIONS
        job["spec"]["template"] |= runs
    elif item.ends:
        job["spec"]["submitterPodTemplate"] = KINDS[item.kind].pod_sets(job)[-1]["template"] | runs
    if item.ttl_s is not None and item.kind == "Job":
        job["spec"]["ttlSecondsAfterFinished"] = item.ttl_s
    job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = item.queue
    if item.priority:
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = item.priority
    if item.partial:
        job["metadata"]["annotations"][own_api.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    return job


def is_sized_by_users(job: Manifest) -> bool:
    """Whether the manager's own copy of a job says its size: not where Ray's autoscaler owns it."""
    spec = job["spec"].get("rayClusterSpec", job["spec"])
    return not spec.get("enableInTreeAutoscaling")


def is_sized_where_it_runs(found: Manifest) -> bool:
    """Whether an object on a worker says the size of a job: of a RayJob its cluster does."""
    return found["kind"] == "RayCluster" or (found["kind"] == "Job" and annotations.is_ours(found))


def cpu_patch(job: Manifest, cpu: str) -> JsonPatch:
    """Another request for the workers of a Ray cluster, on the manager."""
    path = _SIZE[job["kind"]].replace("replicas", "template/spec/containers/0/resources/requests/cpu")
    return JsonPatch([{"op": "replace", "path": path, "value": cpu}])


async def scale(client: KubeClient, scale_target: Manifest, count: int) -> None:
    """Another size for this very object, as its user or Ray's autoscaler writes it."""
    if autoscaler := autoscaler_of(client, scale_target):
        await autoscaler.scale(count)
        return
    metadata = scale_target["metadata"]
    patch = size_patch(scale_target, count)
    await client.patch(JOB_RESOURCES[scale_target["kind"]], metadata["name"], metadata["namespace"], patch)


async def settle(client: KubeClient, scale_target: Manifest) -> None:
    """What Ray's autoscaler does after it has scaled: it sees to the pods that it has named for deletion."""
    if autoscaler := autoscaler_of(client, scale_target):
        await autoscaler.settle()


def autoscaler_of(client: KubeClient, scale_target: Manifest) -> RayAutoscaler | None:
    """The autoscaler that owns the size of an object."""
    if is_sized_by_users(scale_target):
        return None
    metadata = scale_target["metadata"]
    return RayAutoscaler(client, metadata["name"], metadata["namespace"], uid=metadata["uid"])


def size_patch(scale_target: Manifest, count: int) -> JsonPatch:
    """Another size for this very object, as users write it."""
    same = {"op": "test", "path": "/metadata/uid", "value": scale_target["metadata"]["uid"]}
    return JsonPatch([same, {"op": "replace", "path": _SIZE[scale_target["kind"]], "value": count}])
