"""Two jobs that take pods of one job, which has notice, and one of the two that goes, or wants less, meanwhile.

The job keeps what it was to lose for the one that has gone, and the other one gets no less. Nothing else of the run has
a part in it: they have a queue of their own.
"""

import asyncio
from random import Random
from typing import Any, Literal

from simulation.fleet import MANAGER, Fleet
from simulation.jobs import scale, slices_of, submit_job
from simulation.later import OLD
from simulation.queues import FLAVORS, own_queue
from simulation.schedule import Item, Schedule
from simulation.two_preemptors import becomes, cluster_of, has_quota, pods_of
from simulation.violations import Violation
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS, WORKLOADS
from slicebus.slices.workload.reclaimed import Reclaimed

Manifest = dict[str, Any]
_ONE_OF = 6
_QUEUE = "relenting"
_SIZE = 6
_POD_SET = "main"
_POD_CPU = 1000
"""In thousandths: all that a pod requests."""
_WANTED = (1, 2)
_SOON_S = 4.0
"""The manager looks every five seconds whether anybody waits for the pods, and the notice is twelve seconds long."""
_LOOK_S = 0.2
_WITHIN_S = 400.0
"""The clocks of two agents differ by up to four minutes: the second one may end the notice that much later."""


class OneRelents(Item):
    """They come when everything agrees."""

    sizes: tuple[int, int]
    """Of the two, in the order in which they come."""
    goes: int
    """Which of them goes."""
    how: Literal["deleted", "deactivated", "smaller"]
    indexed: bool
    """Whether the job that they take pods of is an elastic Indexed Job."""
    kills: Literal["", "agent", "manager"]
    """Which role is killed right after that: then pods may go, and come back."""


def with_relenting(schedule: Schedule) -> Schedule:
    """The same run; on one of six they come."""
    random = Random(f"{schedule.seed}/relenting")
    if schedule.seed in OLD or random.randrange(_ONE_OF):
        return schedule
    how = random.choice(("deleted", "deactivated", "smaller"))
    goes, sizes = random.randrange(2), [random.choice(_WANTED) for _ in range(2)]
    if how == "smaller":
        sizes[goes] = max(_WANTED)
    one = OneRelents(
        sizes=(sizes[0], sizes[1]),
        goes=goes,
        how=how,
        indexed=random.choice((False, True)),
        kills=random.choice(("", "", "agent", "manager")),
    )
    return schedule.with_items((*schedule.items, one))


async def check_keeps_spared(fleet: Fleet, item: OneRelents) -> bool:
    """Play it: whether one has gone in time. Raises Violation where the job loses pods that nobody needs, or the other
    one does not get what it needs."""
    manager = fleet.client(MANAGER)
    for resource, manifest in own_queue(_QUEUE, FLAVORS[0], cpu=_SIZE):
        await manager.create(resource, manifest)
    kind = {"indexed": True, "completions": _SIZE} if item.indexed else {}
    jobs = [await submit_job(manager, _QUEUE, "spared", _SIZE, "low", least=1, notice="1h", **kind)]
    try:
        return await _play(fleet, item, jobs)
    finally:
        for job in jobs:
            await _delete(fleet, job)


async def _play(fleet: Fleet, item: OneRelents, jobs: list[Manifest]) -> bool:
    manager, [loser] = fleet.client(MANAGER), jobs
    cluster = await becomes(lambda: cluster_of(fleet, loser, _SIZE))
    if not cluster:
        return False
    worker, now_s, left, told_s = fleet.client(cluster), asyncio.get_running_loop().time, _SIZE, 0.0
    for number, size in enumerate(item.sizes):
        jobs.append(await submit_job(manager, _QUEUE, f"wants-{number}", size, "high"))
        left -= size
        if not await becomes(lambda left=left: _is_told(manager, loser, left)):
            return False
        told_s = told_s or now_s()
    if now_s() - told_s > _SOON_S or await _kept(worker, loser) < _SIZE:
        return False
    goes, stays = jobs[1 + item.goes], jobs[2 - item.goes]
    await _relent(fleet, item, goes)
    if item.how == "deleted":
        jobs.remove(goes)
    for process in fleet.processes:
        if item.kills and process.role == (MANAGER if item.kills == "manager" else f"agent-{cluster}"):
            process.kill()
    rest = 1 if item.how == "smaller" else 0
    keeps = _SIZE - item.sizes[1 - item.goes] - rest
    # One that wants less takes all that was taken for it, until it has what it wants.
    least = left if item.kills or rest else keeps
    for _ in range(round(_WITHIN_S / _LOOK_S)):
        await asyncio.sleep(_LOOK_S)
        kept, held, is_served = (
            await _kept(worker, loser),
            await _holds(manager, loser),
            await has_quota(manager, stays),
        )
        if kept < least:
            raise Violation(
                f"relented: {loser['metadata']['name']} keeps {kept} pods, and loses none but those beyond {least}"
            )
        if is_served and kept == held and kept in (keeps, max(least, keeps - await _beyond(manager, jobs[1:]))):
            return True
    why = f"has {kept} pods, and quota for {held} of {keeps}; the other one is served: {is_served}"
    raise Violation(f"relented: {loser['metadata']['name']} {why}")


async def _relent(fleet: Fleet, item: OneRelents, job: Manifest) -> None:
    manager = fleet.client(MANAGER)
    match item.how:
        case "deleted":
            await _delete(fleet, job)
        case "smaller":
            await scale(manager, job, 1)
        case "deactivated":
            for slice in await slices_of(manager, job):
                body = MergePatch({"spec": {"active": False}})
                await manager.patch(WORKLOADS, slice.name, objects.NAMESPACE, body)


async def _delete(fleet: Fleet, job: Manifest) -> None:
    fleet.rules.user_deletes(job)
    await fleet.client(MANAGER).delete(JOBS, job["metadata"]["name"], objects.NAMESPACE)


async def _is_told(manager: KubeClient, job: Manifest, left: int) -> bool:
    """Whether a job is told that it goes to so many pods."""
    return any(note.to[_POD_SET] == left and not note.done for note in await _notes(manager, job))


async def _notes(manager: KubeClient, job: Manifest) -> list[Reclaimed]:
    return [
        slice.reclaimed for slice in await slices_of(manager, job) if slice.admitted and slice.reclaimed is not None
    ]


async def _holds(manager: KubeClient, job: Manifest) -> int:
    """For how many pods a job has quota."""
    return max((slice.granted[_POD_SET] for slice in await slices_of(manager, job) if slice.admitted), default=0)


async def _beyond(manager: KubeClient, jobs: list[Manifest]) -> int:
    """How many pods have no place since these jobs' own request more than their templates say: webhooks of their worker
    inject that."""
    admitted = [slice for job in jobs for slice in await slices_of(manager, job) if slice.admitted]
    more = sum(slice.beyond_admission.get((FLAVORS[0], "cpu"), 0) for slice in admitted)
    return -(-more // _POD_CPU)


async def _kept(worker: KubeClient, job: Manifest) -> int:
    """How many pods of a job do not go."""
    return sum("deletionTimestamp" not in pod["metadata"] for pod in await pods_of(worker, job))
