"""The jobs that users submit, and where each kind has its size."""

import asyncio
from typing import Any

from simulation.defaults import shape
from simulation.elastic import said_by
from simulation.gangs import SCHEDULER
from simulation.idle_quota import takes_up_to
from simulation.schedule import Submit
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES, JOBS, RAYCLUSTERS, WORKLOADS
from slicebus.proto.errors import InvalidError, NotFoundError, TransientError
from slicebus.sandbox.controllers.pods import RUN_SECONDS_ANNOTATION
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.ray import groups
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]

_RUN_S, _COMPLETIONS = 5, 4
_DELETION_DELAY_S = 4
_AGAIN_S = 0.5
SECOND_GROUP = "wide-group"
CLUSTER_SPEC = {"RayCluster": "/spec", "RayJob": "/spec/rayClusterSpec", "RayService": "/spec/rayClusterConfig"}


async def submit_job(manager: KubeClient, queue: str, name: str, size: int, priority: str, **more: Any) -> Manifest:
    """Submit a Job at once, and return it; `more` are other fields of `Submit`."""
    item = Submit(at_s=0.0, kind="Job", name=name, size=size, queue=queue, priority=priority, **more)
    return await manager.create(JOBS, job_of(item))


async def slices_of(manager: KubeClient, job: Manifest) -> list[Slice]:
    """The slices of a job of the manager."""
    slices = map(Slice.from_manifest, (await manager.list(WORKLOADS)).items)
    return [slice for slice in slices if slice.job_uid == job["metadata"]["uid"]]


def job_of(item: Submit) -> Manifest:
    """A job as a user submits it."""
    name = f"{item.kind.lower()}-{item.name}"
    match item.kind:
        case "Job":
            job = objects.job(name, parallelism=item.size)
        case "RayCluster":
            job = objects.ray_cluster(name, replicas=item.size)
            _shape(job["spec"], item)
        case "RayService":
            job = objects.ray_service(name, replicas=item.size)
            job["spec"]["rayClusterDeletionDelaySeconds"] = _DELETION_DELAY_S
            _shape(job["spec"]["rayClusterConfig"], item)
        case _:
            job = objects.ray_job(name, replicas=item.size)
            _shape(job["spec"]["rayClusterSpec"], item)
    runs = {"metadata": {"annotations": {RUN_SECONDS_ANNOTATION: str(_RUN_S)}}}
    if item.ends and item.kind == "Job":
        job["spec"]["completions"] = _COMPLETIONS
        job["spec"]["template"] |= runs
    elif item.ends:
        job["spec"]["submitterPodTemplate"] = KINDS[item.kind].pod_sets(job)[-1]["template"] | runs
    if item.completions is not None:
        job["spec"]["completions"] = item.completions
    if item.indexed:
        job["spec"]["completionMode"] = "Indexed"
    if item.follow:
        job["metadata"]["annotations"][kueue.SYNC_COMPLETIONS_ANNOTATION] = item.follow
    if item.ttl_s is not None and item.kind == "Job":
        job["spec"]["ttlSecondsAfterFinished"] = item.ttl_s
    if item.deadline_s is not None and item.kind == "RayJob":
        job["spec"]["activeDeadlineSeconds"] = item.deadline_s
    shape(job, item)
    job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = item.queue
    if item.priority:
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = item.priority
    if item.gang:
        job["metadata"]["labels"][api_names.SCHEDULER_LABEL] = SCHEDULER
    if item.fixed:
        del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    if item.least is not None:
        job["metadata"]["annotations"] |= said_by(job, item.least)
    if item.notice:
        job["metadata"]["annotations"][api_names.NOTICE_ANNOTATION] = item.notice
    if item.time_s is not None:
        job["metadata"]["labels"] |= {kueue.MAX_EXECUTION_TIME_LABEL: str(item.time_s)}
    if item.most is not None:
        job["metadata"]["annotations"] |= takes_up_to(job, item.most)
    if item.partial:
        job["metadata"]["annotations"][api_names.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    return job


def _shape(cluster_spec: Manifest, item: Submit) -> None:
    cluster_spec["enableInTreeAutoscaling"] = item.autoscales
    [first] = groups(cluster_spec)
    if item.second is not None:
        template = {"spec": objects.pod_spec("500m", name="ray-worker", image=objects.RAY_IMAGE)}
        second = {"groupName": SECOND_GROUP, "replicas": item.second, "numOfHosts": item.hosts, "template": template}
        cluster_spec["workerGroupSpecs"] = [first, first | second]


def is_sized_where_it_runs(found: Manifest) -> bool:
    """Whether an object on a worker says the size of a job: of a RayJob or a RayService its cluster does."""
    return found["kind"] == "RayCluster" or (found["kind"] == "Job" and annotations.is_ours(found))


def cpu_patch(job: Manifest, cpu: str) -> JsonPatch:
    """Another request for the workers of a Ray cluster, on the manager."""
    path = f"{CLUSTER_SPEC[job['kind']]}/workerGroupSpecs/0/template/spec/containers/0/resources/requests/cpu"
    return JsonPatch([{"op": "replace", "path": path, "value": cpu}])


def bounds_patch(job: Manifest, *, least: int, most: int) -> JsonPatch:
    """The least and the most replicas of the first group of a Ray cluster, on the manager."""
    group = f"{CLUSTER_SPEC[job['kind']]}/workerGroupSpecs/0"
    values = {"minReplicas": least, "maxReplicas": most}
    return JsonPatch([{"op": "add", "path": f"{group}/{name}", "value": value} for name, value in values.items()])


async def scale(client: KubeClient, scale_target: Manifest, count: int, *, group: int = 0) -> None:
    """Another size for this very object, as its user or Ray's autoscaler writes it."""
    if autoscaler := autoscaler_of(client, scale_target, group=group):
        await autoscaler.scale(count)
        return
    metadata = scale_target["metadata"]
    patch = size_patch(scale_target, count, group=group)
    await client.patch(JOB_RESOURCES[scale_target["kind"]], metadata["name"], metadata["namespace"], patch)


async def settle(client: KubeClient, scale_target: Manifest, *, group: int = 0) -> None:
    """What Ray's autoscaler does after it has scaled: it sees to the pods that it has named for deletion."""
    if autoscaler := autoscaler_of(client, scale_target, group=group):
        await autoscaler.settle()


async def autoscale(client: KubeClient) -> None:
    """What the autoscalers of a worker do again and again: other bounds may have made a cluster smaller."""
    for found in (await client.list(RAYCLUSTERS)).items:
        for group in range(len(groups(found["spec"]))):
            if autoscaler := autoscaler_of(client, found, group=group):
                await autoscaler.look()


def autoscaler_of(client: KubeClient, scale_target: Manifest, *, group: int) -> RayAutoscaler | None:
    """The autoscaler that owns the size of an object. On the manager's cluster none runs."""
    spec = scale_target["spec"]
    if "managedBy" in spec or not spec.get("enableInTreeAutoscaling"):
        return None
    metadata, index = scale_target["metadata"], _index(scale_target["spec"], group)
    return RayAutoscaler(client, metadata["name"], metadata["namespace"], group=index, uid=metadata["uid"])


async def patch_at_last(client: KubeClient, job: Manifest, *operations: Manifest) -> None:
    """Patch this very object as soon as the API server takes that, unless it has gone."""
    metadata = job["metadata"]
    body = JsonPatch([{"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}, *operations])
    while True:
        try:
            await client.patch(JOB_RESOURCES[job["kind"]], metadata["name"], metadata["namespace"], body)
        except TransientError:
            await asyncio.sleep(_AGAIN_S)
        except (InvalidError, NotFoundError):
            return  # It has gone, or another one has its name.
        else:
            return


def cluster_spec_of(spec: Manifest) -> Manifest:
    """The spec of the Ray cluster in that of a Ray job."""
    found: Manifest = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    return found


def size_patch(scale_target: Manifest, count: int, *, group: int = 0) -> JsonPatch:
    """Another size for this very object, as users write it."""
    path, at = "/spec/parallelism", CLUSTER_SPEC.get(scale_target["kind"])
    if at is not None:
        path = f"{at}/workerGroupSpecs/{_index(cluster_spec_of(scale_target['spec']), group)}/replicas"
    same = {"op": "test", "path": "/metadata/uid", "value": scale_target["metadata"]["uid"]}
    return JsonPatch([same, {"op": "replace", "path": path, "value": count}])


def _index(cluster_spec: Manifest, group: int) -> int:
    return min(group, len(groups(cluster_spec)) - 1)
