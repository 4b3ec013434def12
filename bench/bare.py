"""A client that makes the writes of a dispatch and of a resize that nobody can save, and nothing else.

Without it there would be no job on the worker, no record of it on the manager that outlives a crash, or no pod that
runs. It decides nothing, tells nobody, and reads nothing but the names of pods. Its objects are those of the fleet,
with other names.
"""

import asyncio
from typing import Any, NamedTuple, Self

import orjson
from watched import Pods

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]
_REQUEST_BYTES = 400
_UNGATE = JsonPatch([{"op": "remove", "path": "/spec/schedulingGates/0"}])


class Models(NamedTuple):
    """What a fleet holds of a Job with one pod that it has dispatched: the manager's Workload, and on the worker its
    Workload and the Job."""

    job: str
    workload: Manifest
    copied_workload: Manifest
    copied_job: Manifest

    @classmethod
    async def of(cls, world: World, job: str, cluster: ClusterName) -> Self:
        """Those of a job, by its name."""
        worker = world.workers[cluster]
        copied_job = await worker.get(JOBS, job, objects.NAMESPACE)
        name = copied_job["metadata"]["annotations"][kueue.PREBUILT_NAME]
        workload = await world.manager.get(WORKLOADS, name, objects.NAMESPACE)
        return cls(job, workload, await worker.get(WORKLOADS, name, objects.NAMESPACE), copied_job)

    def named(self, manifest: Manifest, job: str, *, number: int = 1) -> Manifest:
        """One of them for another job: its slice of that number."""
        text = orjson.dumps(manifest).replace(self.job.encode(), job.encode())
        found: Manifest = orjson.loads(text)
        metadata = found["metadata"]
        kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
        name = metadata["name"] if found["kind"] == JOBS.kind else f"{metadata['name']}-{number}"
        return found | {"metadata": kept | {"name": name}}


class BareClient:
    """Dispatches and resizes jobs of one pod set."""

    def __init__(self, world: World, pods: Pods, models: Models) -> None:
        self._world = world
        self._pods = pods
        self._models = models

    async def dispatch(self, manifest: Manifest, cluster: ClusterName) -> None:
        """The user's Job, and six writes."""
        worker, models, job = self._world.workers[cluster], self._models, manifest["metadata"]["name"]
        await self._world.manager.create(JOBS, manifest)
        workload = await self._admit(job, count=1, number=1)
        copy = KINDS[JOBS.kind].worker_copy(manifest, {})
        given = models.named(models.copied_job, job)["metadata"]
        await worker.create(JOBS, copy | {"metadata": given})
        await worker.create(WORKLOADS, models.named(models.copied_workload, job))
        value = models.workload["metadata"]["annotations"][api_names.APPLIED_ANNOTATION]
        patch = MergePatch({"metadata": {"annotations": {api_names.APPLIED_ANNOTATION: value}}})
        await self._world.manager.patch(WORKLOADS, workload, objects.NAMESPACE, patch)
        await self._ungate(worker, await self._pods.until_gated(job, 1))

    async def grow(self, job: str, cluster: ClusterName, *, count: int, number: int) -> None:
        """The user's patch of the worker's Job, and the writes that its pods have to wait for: `number` is that of the
        new slice."""
        worker, models = self._world.workers[cluster], self._models
        await worker.patch(JOBS, job, objects.NAMESPACE, MergePatch({"spec": {"parallelism": count}}))
        await self._annotate(self._world.manager, job, api_names.REQUESTED_ANNOTATION, number)
        await self._admit(job, count=count, number=number)
        await worker.create(WORKLOADS, models.named(models.copied_workload, job, number=number))
        await self._annotate(worker, job, api_names.GRANTED_ANNOTATION, number)
        await self._ungate(worker, await self._pods.until_gated(job, count - 1))

    async def _admit(self, job: str, *, count: int, number: int) -> str:
        """Create a Workload, and admit it with the order for its worker; its name."""
        manifest = self._models.named(self._models.workload, job, number=number)
        manifest["spec"]["podSets"][0]["count"] = count
        status: Manifest = manifest.pop("status")
        name: str = manifest["metadata"]["name"]
        del manifest["metadata"]["annotations"][api_names.APPLIED_ANNOTATION]
        await self._world.manager.create(WORKLOADS, manifest)
        status["admission"]["podSetAssignments"][0]["count"] = count
        patch = MergePatch({"status": status})
        await self._world.manager.patch(WORKLOADS, name, objects.NAMESPACE, patch, subresource="status")
        return name

    async def _annotate(self, client: KubeClient, job: str, annotation: str, number: int) -> None:
        """With something as long as a size request, another one each time."""
        patch = MergePatch({"metadata": {"annotations": {annotation: f"{number}".rjust(_REQUEST_BYTES)}}})
        await client.patch(JOBS, job, objects.NAMESPACE, patch)

    async def _ungate(self, worker: KubeClient, pods: set[str]) -> None:
        await asyncio.gather(*(worker.patch(PODS, pod, objects.NAMESPACE, _UNGATE) for pod in pods))
