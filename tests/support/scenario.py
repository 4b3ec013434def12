"""What the end-to-end tests tell of a job: how many of its pods run and wait, and what its chain looks like."""

from typing import Any

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, EVENTS, JOB_RESOURCES, JOBS, NAMESPACES, PODS, WORKLOADS, Resource
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.quantities import amount
from slicebus.slices.jobs import KINDS
from slicebus.slices.quota.quota import usage_by_chain
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice
from support.usage import total_by_queue
from support.waiting import eventually

Manifest = dict[str, Any]
NAMESPACE = objects.NAMESPACE
ELSEWHERE = "elsewhere"
FIXED_PODS = {"RayCluster": 1, "RayJob": 2, "RayService": 1}
"""Pods beside the workers: the head, and the submitter."""


def elastic(kind: str, name: str) -> Manifest:
    """An elastic job with one worker."""
    make = {
        "Job": objects.job,
        "RayCluster": objects.ray_cluster,
        "RayJob": objects.ray_job,
        "RayService": objects.ray_service,
    }
    return make[kind](name)


def sized(name: str, pods: int, priority: str = "") -> Manifest:
    """An elastic Job of so many pods, of a WorkloadPriorityClass where one is named."""
    job = elastic("Job", name)
    job["spec"]["parallelism"] = pods
    if priority:
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = priority
    return job


def straggler(job: Manifest) -> Manifest:
    """A pod of a worker's Job that its controller does not take away, as one on a node that is lost."""
    name, made_for = job["metadata"]["name"], job["spec"]["template"]["metadata"]["labels"]
    own = {label: made_for[label] for label in (kueue.POD_SET_LABEL, api_names.MANAGER_UID_LABEL)}
    labels = own | {"batch.kubernetes.io/job-name": name}
    metadata = {"name": f"{name}-straggler", "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": objects.pod_spec("1", image=objects.IMAGE)}


class Scenario:
    """One job in a world."""

    def __init__(self, world: World, kind: str, name: str) -> None:
        self.world = world
        self.kind = kind
        self.name = name
        self.resource = JOB_RESOURCES[kind]

    async def submit(self) -> None:
        await self.world.manager.create(self.resource, elastic(self.kind, self.name))

    async def cluster(self) -> ClusterName:
        """Where the job runs."""

        async def look() -> str | None:
            return next((slice.cluster for slice in reversed(await self.chain()) if slice.cluster), None)

        return ClusterName(await eventually(look, f"{self.name} has a cluster") or "")

    async def worker(self) -> KubeClient:
        return self.world.workers[await self.cluster()]

    async def chain(self) -> list[Slice]:
        """The job's slices on the manager, oldest first."""
        page = await self.world.manager.list(WORKLOADS, namespace=NAMESPACE)
        owned = [w for w in page.items if w["metadata"]["ownerReferences"][0]["name"] == self.name]
        return oldest_first(map(Slice.from_manifest, owned))

    async def worker_job(self) -> Manifest:
        return await (await self.worker()).get(self.resource, self.name, NAMESPACE)

    async def scale(self, workers: int, *, settles: bool = True) -> None:
        """As the user of a Job, or the Ray autoscaler, does it on the worker. Where KubeRay cannot make the pods,
        nothing settles, and this would wait for a minute."""
        worker = await self.worker()
        if self.kind == "Job":
            await worker.patch(JOBS, self.name, NAMESPACE, MergePatch({"spec": {"parallelism": workers}}))
            return
        name = self.name
        if KINDS[self.kind].child_kind:
            name = await eventually(self._child, f"the {self.kind} has a cluster")
        autoscaler = RayAutoscaler(worker, name, NAMESPACE)
        await autoscaler.scale(workers)
        if settles:
            await autoscaler.settle()

    async def pods(self) -> list[Manifest]:
        page = await (await self.worker()).list(PODS, namespace=NAMESPACE)
        return [pod for pod in page.items if pod["metadata"]["name"].startswith(self.name)]

    async def expect_pods(self, *, running: int, gated: int = 0) -> None:
        """Wait for so many workers to run and so many to wait behind the gate."""

        async def look() -> bool:
            pods = await self.pods()
            ready = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
            waiting = [pod for pod in pods if is_gated(pod)]
            return len(ready) == running + FIXED_PODS.get(self.kind, 0) and len(waiting) == gated

        await eventually(look, f"{running} workers of {self.name} run and {gated} are gated")

    async def running(self) -> set[str]:
        """The UIDs of the pods that run, the head and the submitter among them."""
        return {pod["metadata"]["uid"] for pod in await self.pods() if pod.get("status", {}).get("phase") == "Running"}

    async def expect_unfinished(self, *workers: int) -> list[Slice]:
        """Wait for unfinished slices with so many workers each, oldest first."""

        async def look() -> list[Slice] | None:
            unfinished = [slice for slice in await self.chain() if not slice.finished]
            return unfinished if [self.workers_of(slice) for slice in unfinished] == list(workers) else None

        return await eventually(look, f"{self.name} has unfinished slices of {workers}") or []

    def workers_of(self, slice: Slice) -> int:
        return slice.counts["main" if self.kind == "Job" else "small-group"]

    async def expect_event(self, *reasons: str, on: KubeClient) -> str:
        """Wait for an Event on the job, with one of these reasons; its message."""

        async def look() -> str | None:
            page = await on.list(EVENTS, namespace=NAMESPACE)
            return next(
                (
                    event["message"]
                    for event in page.items
                    if event["reason"] in reasons and event["involvedObject"]["name"] == self.name
                ),
                None,
            )

        return await eventually(look, f"Event {' or '.join(reasons)} on {self.name}") or ""

    async def expect_nothing_left(self) -> None:
        """Wait until neither side has anything of the job: a garbage collector looks for new kinds every 30 s."""
        for client in (self.world.manager, *self.world.workers.values()):
            for resource in (self.resource, WORKLOADS, PODS):

                async def look(client: KubeClient = client, resource: Resource = resource) -> bool:
                    page = await client.list(resource, namespace=NAMESPACE)
                    return not any(self.name in item["metadata"]["name"] for item in page.items)

                await eventually(look, f"no {resource.plural} of {self.name} on {client.host}")

    async def _child(self) -> str | None:
        return next(iter(KINDS[self.kind].children(await self.worker_job()) or ()), None)


async def set_quota(world: World, cpu: int) -> None:
    """Another quota for the demo's ClusterQueue; made where it is missing."""
    for resource, manifest in objects.quota(cpu):
        await world.ensure(world.manager, resource, manifest)
    spec = next(manifest for resource, manifest in objects.quota(cpu) if resource == CLUSTERQUEUES)["spec"]
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))


async def expect_used(world: World, cpu: str) -> None:
    """Wait until so much is used of the queue's quota, and its status, which comes later, says so."""

    async def look() -> bool:
        slices = map(Slice.from_manifest, (await world.manager.list(WORKLOADS)).items)
        used = total_by_queue(usage_by_chain(slices)).get(objects.CLUSTER_QUEUE, {})
        if sum(value for (_, resource), value in used.items() if resource == "cpu") != amount("cpu", cpu):
            return False
        queue = await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)
        flavors = queue.get("status", {}).get("flavorsUsage") or []
        return [entry["total"] for flavor in flavors for entry in flavor["resources"] if entry["name"] == "cpu"] == [
            cpu
        ]

    await eventually(look, f"{cpu} cpu are used")


async def open_elsewhere(world: World) -> None:
    """Give the manager's cluster another namespace, with a LocalQueue of the same quota."""
    await set_quota(world, 20)
    await world.ensure(world.manager, NAMESPACES, objects.namespace(ELSEWHERE))
    for resource, manifest in objects.quota(20):
        if resource.namespaced:
            manifest["metadata"]["namespace"] = ELSEWHERE
            await world.ensure(world.manager, resource, manifest)


async def submit_elsewhere(world: World, name: str) -> None:
    """Submit a Job to that namespace."""
    job = objects.job(name)
    job["metadata"]["namespace"] = ELSEWHERE
    await world.manager.create(JOBS, job)
