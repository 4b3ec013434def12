"""What users and autoscalers do in a simulated day, and what must be true when everything has calmed down."""

import asyncio
from random import Random
from typing import Any

from simulation.faults import NONE, Faults
from simulation.fleet import WORKERS, Fleet
from simulation.rules import Violation
from slicebus.agent import marks
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, PODS, RAYCLUSTERS, WORKLOADS
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import ClusterName
from slicebus.slices.admission import is_pending
from slicebus.slices.jobs import KINDS
from slicebus.slices.kueue import Condition
from slicebus.slices.quantities import add, times
from slicebus.slices.quota import ClusterQueue, total_by_queue, usage_by_chain
from slicebus.slices.ungate import is_gated
from slicebus.slices.workload import Slice, oldest_first

Manifest = dict[str, Any]

MAKE = {"Job": objects.job, "RayCluster": objects.ray_cluster, "RayJob": objects.ray_job}
NAMES = ("a", "b")
QUOTAS = (8, 12, 20)
_CALM_S = 900.0
"""Long enough for every lease, backoff and periodic comparison to have come round."""


class Day:
    """One story: users act while faults happen, then the faults end, and everything has to agree."""

    def __init__(self, *, faults: Faults, actions: int, restarts: int) -> None:
        self._faults = faults
        self._actions = actions
        self._restarts = restarts

    async def play(self, fleet: Fleet) -> None:
        """Raises Violation when the fleet does not agree in the end."""
        world = fleet.world()
        users = Users(fleet, world.manager, world.workers)
        await users.set_quota(12)
        fleet.faults = self._faults
        breaking = asyncio.ensure_future(self._break(fleet))
        for _ in range(self._actions):
            await asyncio.sleep(fleet.random.choice((0.01, 0.1, 1.0, 5.0, 30.0)))
            await users.act()
        await breaking
        fleet.faults = NONE
        fleet.note("the faults end")
        await asyncio.sleep(_CALM_S)
        await Agreement(world.manager, world.workers).check()

    async def _break(self, fleet: Fleet) -> None:
        for _ in range(self._restarts):
            await asyncio.sleep(fleet.random.uniform(1, 60))
            fleet.note("the broker restarts")
            await fleet.broker.restart(fleet.random.uniform(0.1, 20))


class Users:
    """Everybody who touches the fleet."""

    def __init__(self, fleet: Fleet, manager: KubeClient, workers: dict[ClusterName, KubeClient]) -> None:
        self._fleet = fleet
        self._manager = manager
        self._workers = workers

    @property
    def _random(self) -> Random:
        return self._fleet.random

    async def act(self) -> None:
        """Do something at random. What cannot be done now is not done."""
        kinds = [self._submit] * 3 + [self._scale_on_worker] * 6 + [self._scale_on_manager]
        kinds += [self._delete, self._delete_on_worker, self._change_quota]
        try:
            await self._random.choice(kinds)()
        except SlicebusError as error:
            self._fleet.note(f"a user gives up: {error}")

    async def set_quota(self, cpu: int) -> None:
        """Another quota."""
        self._fleet.note(f"quota {cpu}")
        for resource, manifest in objects.quota(cpu):
            if resource == CLUSTERQUEUES:
                spec = manifest["spec"]
            try:
                await self._manager.create(resource, manifest)
            except SlicebusError:
                continue
        await self._manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))

    async def _change_quota(self) -> None:
        await self.set_quota(self._random.choice(QUOTAS))

    async def _submit(self) -> None:
        kind, name = self._random.choice(sorted(MAKE)), self._random.choice(NAMES)
        # A RayJob's submitter is a Job of the same name.
        name = f"{kind.lower()}-{name}"
        self._fleet.note(f"submit {name}")
        await self._manager.create(JOB_RESOURCES[kind], MAKE[kind](name))

    async def _scale_on_worker(self) -> None:
        client = self._workers[ClusterName(self._random.choice(WORKERS))]
        count = self._random.randint(0, 6)
        jobs = [job for job in (await client.list(JOB_RESOURCES["Job"])).items if marks.is_ours(job)]
        carriers = [*jobs, *(await client.list(RAYCLUSTERS)).items]
        if carriers:
            await self._scale(client, self._random.choice(carriers), count)

    async def _scale_on_manager(self) -> None:
        jobs = (await self._manager.list(JOB_RESOURCES["Job"])).items
        if jobs:
            await self._scale(self._manager, self._random.choice(jobs), self._random.randint(1, 6))

    async def _scale(self, client: KubeClient, carrier: Manifest, count: int) -> None:
        name, namespace = carrier["metadata"]["name"], carrier["metadata"]["namespace"]
        self._fleet.note(f"{client.host}: {carrier['kind']} {name} to {count}")
        if carrier["kind"] == "Job":
            patch: Any = MergePatch({"spec": {"parallelism": count}})
        else:
            patch = JsonPatch([{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": count}])
        await client.patch(JOB_RESOURCES[carrier["kind"]], name, namespace, patch)

    async def _delete(self) -> None:
        await self._delete_one(self._manager)

    async def _delete_on_worker(self) -> None:
        await self._delete_one(self._workers[ClusterName(self._random.choice(WORKERS))])

    async def _delete_one(self, client: KubeClient) -> None:
        kind = self._random.choice(sorted(MAKE))
        jobs = (await client.list(JOB_RESOURCES[kind])).items
        if jobs:
            name = self._random.choice(jobs)["metadata"]["name"]
            self._fleet.note(f"{client.host}: delete {kind} {name}")
            await client.delete(JOB_RESOURCES[kind], name, objects.NAMESPACE)


class Agreement:
    """Whether manager and workers agree on every job."""

    def __init__(self, manager: KubeClient, workers: dict[ClusterName, KubeClient]) -> None:
        self._manager = manager
        self._workers = workers

    async def check(self) -> None:
        """Raise Violation for the first thing that two sides see differently."""
        workloads = [Slice.from_manifest(found) for found in (await self._manager.list(WORKLOADS)).items]
        known = set()
        for kind, resource in JOB_RESOURCES.items():
            for job in (await self._manager.list(resource)).items:
                chain = oldest_first(slice for slice in workloads if slice.job_uid == job["metadata"]["uid"])
                known.add(job["metadata"]["uid"])
                await self._check_job(kind, job, [slice for slice in chain if not slice.finished])
        self._check_waiting(workloads, (await self._manager.list(CLUSTERQUEUES)).items)
        orphans = [slice.name for slice in workloads if slice.job_uid not in known]
        if orphans:
            raise Violation(f"converged: slices without a job are left: {orphans}")
        for name, client in self._workers.items():
            await self._check_worker(name, client, known)

    async def _check_job(self, kind: str, job: Manifest, chain: list[Slice]) -> None:
        name = f"{kind} {job['metadata']['name']}"
        holders, waiting = [s for s in chain if s.admission], [s for s in chain if is_pending(s)]
        if len(holders) > 1 or len(holders) + len(waiting) != len(chain) or not chain:
            raise Violation(f"converged: {name} has unfinished slices {[(s.name, bool(s.admission)) for s in chain]}")
        for slice in waiting:
            if not slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("message"):
                raise Violation(f"converged: {slice.name} waits and does not say why")
        if holders:
            await self._check_copy(name, kind, job, holders[0], waiting)

    def _check_waiting(self, workloads: list[Slice], queues: list[Manifest]) -> None:
        """What waits does not fit: everything used, and of a chain only what it wants more than it has."""
        used = total_by_queue(usage_by_chain(workloads)).get(objects.CLUSTER_QUEUE, {})
        nominal = ClusterQueue.from_manifest(queues[0]).nominal
        free = {resource: value - used.get((flavor, resource), 0) for (flavor, resource), value in nominal.items()}
        for slice in filter(is_pending, workloads):
            held: dict[str, int] = {}
            for other in workloads:
                if other.job_uid == slice.job_uid:
                    held = add(held, {resource: value for (_, resource), value in other.usage().items()})
            wanted: dict[str, int] = {}
            for pod_set in slice.pod_sets:
                wanted = add(wanted, times(pod_set.requests, pod_set.count))
            if all(value - held.get(resource, 0) <= free.get(resource, 0) for resource, value in wanted.items()):
                raise Violation(f"converged: {slice.name} waits although it fits: {wanted} into {free}, has {held}")

    async def _check_copy(self, name: str, kind: str, job: Manifest, holder: Slice, waiting: list[Slice]) -> None:
        client = self._workers[ClusterName(holder.cluster or "")]
        try:
            copy = await client.get(JOB_RESOURCES[kind], job["metadata"]["name"], objects.NAMESPACE)
        except SlicebusError as error:
            raise Violation(f"converged: {name} is admitted to {holder.cluster} and not there: {error}") from error
        child = KINDS[kind].child(copy)
        carrier = copy if child is None else await client.get(RAYCLUSTERS, child, objects.NAMESPACE)
        wanted = KINDS[kind].counts(copy, carrier)
        asked = waiting[0].counts if waiting else holder.counts
        told = {
            "its slice": (marks.slice_of(copy), holder.name),
            "the size it wants": (wanted, asked),
            "what is granted": (marks.granted(copy), holder.granted),
            "its status": (copy.get("status"), job.get("status")),
        }
        for what, (there, here) in told.items():
            if there != here:
                raise Violation(f"converged: {name} on {holder.cluster}: {what} is {there}, the manager says {here}")
        await self._check_pods(name, client, copy, carrier, holder.granted)

    async def _check_pods(
        self, name: str, client: KubeClient, copy: Manifest, carrier: Manifest, granted: dict[str, int]
    ) -> None:
        started: dict[str, int] = {}
        for pod in (await client.list(PODS, namespace=objects.NAMESPACE)).items:
            owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
            if owners & {copy["metadata"]["uid"], carrier["metadata"]["uid"]} and not is_gated(pod):
                pod_set = pod["metadata"]["labels"].get("kueue.x-k8s.io/podset", "")
                started[pod_set] = started.get(pod_set, 0) + 1
        for pod_set, count in started.items():
            if count > granted.get(pod_set, 0):
                raise Violation(f"converged: {name} runs {count} {pod_set}, {granted} are granted")

    async def _check_worker(self, name: str, client: KubeClient, known: set[str]) -> None:
        for resource in (*JOB_RESOURCES.values(), WORKLOADS):
            for found in (await client.list(resource)).items:
                if marks.is_ours(found) and marks.annotation(found, "slicebus.dev/manager-uid") not in known:
                    raise Violation(f"converged: {found['metadata']['name']} is left on {name} without a job")
