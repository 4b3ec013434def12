"""Jobs that take quota which nobody waits for, and the rules for them.

No job waits because of pods that nobody asked for, once everything has calmed down, and none grows more than once in
its time.
"""

import asyncio
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import msgspec

from simulation.later import with_later
from simulation.queues import FLAVORS, QUEUES
from simulation.schedule import WORKERS, Moment, Quota, Scale, Schedule, Submit
from simulation.sizes import annotate, said
from simulation.violations import Violation
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
GROWTH_S = 4.0
"""In this time a job grows at most once."""
_MARGIN_S = 1.5
"""Times on Workloads are whole seconds, and the time of a write is not that of the decision."""
_MOST = (9, 12)
"""No fewer than anybody asks for: a worker's request for more would be refused."""


_KINDS = ("Job", "Job", "RayCluster", "RayJob")
_TAKES, _COMES = "uvw", "xyz"
"""Not the names of the other jobs of a run."""


class Most(Moment):
    """Some job of the manager takes so many pods in each of its pod sets, or no more than it asks for."""

    pick: int
    most: int | None


def with_idle_quota(schedule: Schedule) -> Schedule:
    """The same run, on one of eight with such jobs."""
    return with_later(schedule, "idle quota", _idle_quota)


async def set_most(client: KubeClient, item: Most) -> None:
    """Play it."""
    none = {api_names.MAX_SIZE_ANNOTATION: None}
    most = item.most
    await annotate(client, item.pick, lambda job: none if most is None else takes_up_to(job, most))


def takes_up_to(job: Manifest, most: int) -> dict[str, str]:
    """The annotation by which a job says its greatest size, for each pod set that its user sizes."""
    return said(job, api_names.MAX_SIZE_ANNOTATION, lambda _: most)


class GrowthRules:
    """Follows who is given more than somebody asked for."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def see_slice(self, slice: Slice, old: Slice | None) -> None:
        """A slice has changed: raise Violation where its job grows again too soon."""
        note, before = slice.reclaimed, old.reclaimed if old is not None else None
        if note is None or not note.grows or note.done or slice.admission is None:
            return
        if before is not None and before.id == note.id:
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._last.get(slice.job_uid, -GROWTH_S) < GROWTH_S - _MARGIN_S:
            raise Violation(f"idle quota: {slice.name} grows again {now_s - self._last[slice.job_uid]:.1f} s later")
        self._last[slice.job_uid] = now_s


def as_asked(slices: Iterable[Slice]) -> list[Slice]:
    """The slices without pods that nobody asked for: nobody waits because of those."""
    asked = [slice.at_most(slice.asked_counts) if slice.asked_counts is not None else slice for slice in slices]
    return [msgspec.structs.replace(slice, reclaimed=None) if slice.grows_unasked else slice for slice in asked]


def _idle_quota(random: Random, run_s: float) -> Iterator[Moment]:
    if not 1 / 8 < random.random() <= 1 / 4:
        return
    for queue in random.sample([*QUEUES], 2):
        cpu = random.choice((4, 8, 16))
        yield Quota(at_s=round(random.uniform(0, run_s / 3), 2), of=queue, flavor=random.choice(FLAVORS), cpu=cpu)
    for name in _TAKES[: random.randint(1, len(_TAKES))]:
        yield Submit(
            at_s=round(random.uniform(0, run_s / 3), 2),
            kind=random.choice(_KINDS),
            name=name,
            size=random.choice((1, 2, 3)),
            autoscales=False,
            queue=random.choice([*QUEUES]),
            priority=random.choice(("", "low", "high")),
            second=random.choice((None, None, 2)),
            hosts=random.choice((1, 2)),
            most=random.choice(_MOST),
        )
    for name in _COMES[: random.randint(1, len(_COMES))]:
        yield Submit(
            at_s=round(random.uniform(run_s / 3, run_s), 2),
            kind=JOBS.kind,
            name=name,
            size=random.choice((1, 2, 3)),
            ends=random.random() < 2 / 3,
            queue=random.choice([*QUEUES]),
            priority=random.choice(("", "low")),
        )
    for _ in range(random.randint(0, 3)):
        at_s, api = round(random.uniform(run_s / 3, run_s), 2), random.choice(("manager", *WORKERS))
        yield Scale(at_s=at_s, api=api, pick=random.randrange(12), counts=(random.randint(1, 7),))
    for _ in range(random.randint(0, 4)):
        at_s, most = round(random.uniform(run_s / 8, run_s), 2), random.choice((*_MOST, *_MOST, None))
        yield Most(at_s=at_s, pick=random.randrange(12), most=most)
