"""Two jobs that take pods of one job, the second while those that go for the first still end.

The first one gets its quota when its own pods are gone, whoever else waits for others, and also where the agent was
killed meanwhile. Nothing else of the run has a part in it: they have a queue of their own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, TypeVar

from simulation.fleet import MANAGER, Fleet
from simulation.jobs import slices_of, submit_job
from simulation.later import OLD
from simulation.queues import FLAVORS, own_queue
from simulation.schedule import WORKERS, Item, Schedule
from simulation.violations import Violation
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, PODS
from slicebus.slices.workload.ungate import is_gated
from support import finalizers

Manifest = dict[str, Any]
_Found = TypeVar("_Found")
_ONE_OF = 8
_QUEUE = "apart"
_SIZE = 4
_APART_S = 2.0
"""By whole seconds the first one came first, so it is ranked first."""
_LOOK_S = 0.5
_WITHIN_S = 120.0
"""Longer than an agent takes to begin anew."""


class TwoPreemptors(Item):
    """They come when everything agrees."""

    kills: bool
    """Whether the agent is killed after the second one has come."""


def with_two_preemptors(schedule: Schedule) -> Schedule:
    """The same run; on one of eight they come."""
    random = Random(f"{schedule.seed}/two preemptors")
    if schedule.seed in OLD or random.randrange(_ONE_OF):
        return schedule
    return schedule.with_items((*schedule.items, TwoPreemptors(kills=random.choice((False, True)))))


async def check_first_is_served(fleet: Fleet, item: TwoPreemptors) -> bool:
    """Play it: whether both took pods. Raises Violation where the first one has to wait for the pods of the second."""
    manager = fleet.client(MANAGER)
    for resource, manifest in own_queue(_QUEUE, FLAVORS[0], cpu=_SIZE):
        await manager.create(resource, manifest)
    jobs = [await submit_job(manager, _QUEUE, "loses", _SIZE, "low", least=0)]
    try:
        return await _play(fleet, item, jobs)
    finally:
        for worker in map(fleet.client, WORKERS):
            await _let_go(worker, await pods_of(worker, jobs[0]))
        for job in jobs:
            fleet.rules.user_deletes(job)
            await manager.delete(JOBS, job["metadata"]["name"], objects.NAMESPACE)


async def _play(fleet: Fleet, item: TwoPreemptors, jobs: list[Manifest]) -> bool:
    manager, [loser] = fleet.client(MANAGER), jobs
    name = await becomes(lambda: cluster_of(fleet, loser, _SIZE))
    if not name:
        return False
    worker = fleet.client(name)
    for pod in await pods_of(worker, loser):
        await finalizers.hold(worker, PODS, pod["metadata"]["name"])
    for number in (1, 2):
        jobs.append(await submit_job(manager, _QUEUE, f"takes-{number}", 1, "high"))
        await asyncio.sleep(_APART_S)
        if not await becomes(lambda left=_SIZE - number: _keeps(worker, loser, left)):
            return False
    if item.kills:
        for process in fleet.processes:
            if process.role == f"agent-{name}":
                process.kill()
    first = jobs[1]
    going = [pod for pod in await pods_of(worker, loser) if "deletionTimestamp" in pod["metadata"]]
    await _let_go(worker, going[:1])
    if not await becomes(lambda: has_quota(manager, first)):
        raise Violation(f"first: {first['metadata']['name']} waits, and as many pods as it took are gone")
    return True


async def becomes(look: Callable[[], Awaitable[_Found]]) -> _Found | None:
    """The first true value in time; None where there is none."""
    for _ in range(round(_WITHIN_S / _LOOK_S)):
        if found := await look():
            return found
        await asyncio.sleep(_LOOK_S)
    return None


async def has_quota(manager: KubeClient, job: Manifest) -> bool:
    """Whether a job of the manager has quota."""
    return any(slice.admitted for slice in await slices_of(manager, job))


async def _keeps(worker: KubeClient, job: Manifest, size: int) -> bool:
    """Whether all pods of a job but so many are going."""
    return sum("deletionTimestamp" not in pod["metadata"] for pod in await pods_of(worker, job)) == size


async def cluster_of(fleet: Fleet, job: Manifest, size: int) -> str:
    """Where so many pods of a job run; empty for nowhere."""
    for name in WORKERS:
        if sum(not is_gated(pod) for pod in await pods_of(fleet.client(name), job)) == size:
            return name
    return ""


async def pods_of(worker: KubeClient, job: Manifest) -> list[Manifest]:
    """All pods of a job on a worker."""
    pods = (await worker.list(PODS, namespace=objects.NAMESPACE)).items
    name = job["metadata"]["name"]
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name") == name]


async def _let_go(worker: KubeClient, pods: Iterable[Manifest]) -> None:
    for pod in pods:
        await finalizers.let_go(worker, PODS, pod["metadata"]["name"])
