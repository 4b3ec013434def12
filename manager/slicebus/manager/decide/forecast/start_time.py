"""When a slice that waits would start: cycles are played until it has quota, while jobs end after run times that others
had, and others come as they have come.

Whoever is preempted does not come back.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import inf
from statistics import quantiles
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from slicebus.journal.run_times import LEAST, RunHistory, RunTime, are_alike
from slicebus.kube.times import time_text
from slicebus.manager.decide.forecast.verdict import leaving, when_all_have_left, with_slices
from slicebus.proto.errors import MALFORMED
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, cycle
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.workload.workload import Slice

_MOST_CYCLES = 500
"""Of one round: a slice that has not started by then starts later than anybody can tell."""
_DRAWN = 200
"""So many runs of a queue, and gaps between newcomers, are drawn for a round."""
T = TypeVar("T")


class Choose(Protocol):
    """Draws one of several."""

    def __call__(self, several: Sequence[T], /) -> T:
        """One of them, which are not empty."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """By what the start of a slice is estimated."""

    history: RunHistory
    choose: Choose
    take: Callable[[Iterator[float]], Sequence[float]]
    """Takes as many rounds as there is time for."""

    def of(self, world: Snapshot, slice: Slice, *, moment: datetime) -> "StartTime | None":
        """When a slice of this world starts; None where too little is known."""
        starts = self.take(rounds(world, slice, self.history, moment=moment, choose=self.choose))
        queue = world.cluster_queue_of(slice)
        return start_time(starts, sum(each.queue == queue for each in self.history.run_times))


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """When a slice would start, in seconds from now."""

    p50_s: float | None
    """None where it is later than anybody can tell."""
    p90_s: float | None
    run_times: int
    """How many run times of its ClusterQueue it goes by."""
    rounds: int


def rounds(world: Snapshot, slice: Slice, history: RunHistory, *, moment: datetime, choose: Choose) -> Iterator[float]:
    """When the slice starts in one round after the other, for ever; `inf` where it does not. `world` has the slice.
    Nothing where too few run times of its queue are known."""
    known = _Runs(world, history.run_times, moment, choose)
    if known.count(world.cluster_queue_of(slice)) < LEAST:
        return
    newcomers = _Newcomers(world, history.newcomers, moment, choose)
    while True:
        known.begin()
        newcomers.begin()
        yield _start(world, slice, known, newcomers)


def start_time(starts: Sequence[float], run_times: int) -> StartTime | None:
    """What rounds have shown; None where there are fewer than two."""
    if len(starts) < 2:
        return None
    cuts = quantiles([min(start, 1e12) for start in starts], n=10, method="inclusive")
    shown = [None if cut >= 1e11 else round(cut, 1) for cut in cuts]
    return StartTime(p50_s=shown[4], p90_s=shown[8], run_times=run_times, rounds=len(starts))


class _Run(NamedTuple):
    """One run of a job, or what has passed of it."""

    pods: int
    seconds: float
    has_ended: bool


class _Runs:
    """Draws how long jobs run. Those that run now count with what they have run: by those that have ended alone, the
    long ones would be missing."""

    def __init__(self, world: Snapshot, run_times: Sequence[RunTime], moment: datetime, choose: Choose) -> None:
        self._of_queue: dict[str, list[_Run]] = {}
        self._drawn: dict[str, list[_Run]] = {}
        for each in run_times:
            self._of_queue.setdefault(each.queue, []).append(_Run(each.pods, each.seconds, has_ended=True))
        self._moment = moment
        self._choose = choose
        for queue in world.cluster_queues:
            for holder in world.part.holdings.holders_in(queue):
                run = _Run(sum(holder.held_counts.values()), self._ran_s(holder), has_ended=False)
                self._of_queue.setdefault(queue, []).append(run)

    def begin(self) -> None:
        """Draw which runs this round goes by: the few that are known may have been shorter than others are."""
        self._drawn = {queue: [self._choose(runs) for _ in runs[:_DRAWN]] for queue, runs in self._of_queue.items()}

    def count(self, queue: str) -> int:
        """How many runs of a queue have ended."""
        return sum(run.has_ended for run in self._of_queue.get(queue, ()))

    def remaining(self, holder: Slice) -> float:
        """How much longer a job runs that has quota; `inf` where nothing like it is known to end."""
        queue = holder.admission.cluster_queue if holder.admission is not None else ""
        ran_s = self._ran_s(holder)
        return self._draw(self._alike(queue, sum(holder.held_counts.values())), ran_s) - ran_s

    def whole(self, slice: Slice, queue: str) -> float:
        """How long a job runs that begins."""
        return self._draw(self._alike(queue, sum(slice.counts.values())), 0.0)

    def _draw(self, alike: Sequence[_Run], ran_s: float) -> float:
        """How long a run takes in all that has taken so long; `inf` where none is known."""
        longer = [run for run in alike if run.seconds > ran_s]
        if not longer:
            # One that has outlived all others may run as long as one that begins.
            ended = [run for run in alike if run.has_ended]
            return ran_s + self._choose(ended).seconds if ended else inf
        run = self._choose(longer)
        return run.seconds if run.has_ended else self._draw(alike, run.seconds)

    def _alike(self, queue: str, pods: int) -> Sequence[_Run]:
        """Of the same queue and about the same size; of any size where those are too few."""
        if self.count(queue) < LEAST:
            return ()
        known = self._drawn[queue]
        alike = [run for run in known if are_alike(pods, run.pods)]
        return alike if sum(run.has_ended for run in alike) >= LEAST else known

    def _ran_s(self, holder: Slice) -> float:
        reserved = holder.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime", "")
        return (self._moment - datetime.fromisoformat(reserved)).total_seconds() if reserved else 0.0


class _Newcomers:
    """Draws the jobs that come, from those that have come: as often, and as they were."""

    def __init__(self, world: Snapshot, workloads: Sequence[Manifest], moment: datetime, choose: Choose) -> None:
        came = [slice for slice in map(_as_it_came, workloads) if slice is not None]
        if came:
            # Those that wait have come, too.
            first = min(slice.created for slice in came)
            came += [slice for slice in world.part.waiting if slice.replaces is None and slice.created > first]
        self._like = [slice for slice in came if world.cluster_queue_of(slice) in world.cluster_queues]
        times = sorted(datetime.fromisoformat(slice.created) for slice in self._like)
        self._gaps_s = [(later - before).total_seconds() for before, later in pairwise(times)]
        self._drawn_s: list[float] = []
        self._moment = moment
        self._choose = choose
        self._count = 0

    def begin(self) -> None:
        """Draw how often they come in this round: the few that are known may have come more often than others do."""
        self._drawn_s = [self._choose(self._gaps_s) for _ in self._gaps_s[:_DRAWN]]

    def after(self, at_s: float) -> float:
        """When the next one comes after that; `inf` where too few are known."""
        is_known = len(self._drawn_s) >= LEAST and any(self._drawn_s)
        return at_s + self._choose(self._drawn_s) if is_known else inf

    def one(self, at_s: float) -> Slice:
        """The next one, which waits."""
        self._count += 1
        name = f"newcomer-{self._count}"
        created = time_text(self._moment + timedelta(seconds=at_s))
        like = self._choose(self._like)
        return msgspec.structs.replace(like, name=name, uid=name, job_uid=name, chain=name, created=created)


def _as_it_came(workload: Manifest) -> Slice | None:
    """The slice of a Workload as it waited; None where it cannot be read."""
    try:
        read = Slice.from_manifest({**workload, "status": {}})
        datetime.fromisoformat(read.created)
    except MALFORMED:
        return None
    return msgspec.structs.replace(read, replaces=None, cluster=None, queued_since="", reclaimed=None)


def _start(world: Snapshot, slice: Slice, known: _Runs, newcomers: _Newcomers) -> float:
    """When the slice starts in one round, in seconds."""
    at_s, ends, comes_at_s = 0.0, list[tuple[float, str]](), newcomers.after(0.0)
    for queue in world.cluster_queues:
        ends += [(known.remaining(holder), holder.chain_id) for holder in world.part.holdings.holders_in(queue)]
    heapq.heapify(ends)
    for _ in range(_MOST_CYCLES):
        decided = cycle(world)
        admitted = [each for each in decided if isinstance(each, Admit)]
        if any(each.key == slice.key for each in admitted):
            return at_s
        takes_pods = any(isinstance(each, Evict | Shrink) for each in decided)
        for each, chosen in _chosen(world, admitted):
            heapq.heappush(ends, (at_s + known.whole(chosen, each.admission.cluster_queue), chosen.chain_id))
        world = _after(world, decided, admitted)
        if takes_pods:
            continue
        if not ends or ends[0][0] == inf:
            return inf
        if comes_at_s < ends[0][0]:
            world = with_slices(world, [newcomers.one(comes_at_s)], ())
            at_s, comes_at_s = comes_at_s, newcomers.after(comes_at_s)
            continue
        at_s, chain_id = heapq.heappop(ends)
        world = leaving(world, {chain_id: None})
    return inf


def _chosen(world: Snapshot, admitted: Sequence[Admit]) -> Iterator[tuple[Admit, Slice]]:
    waiting = {slice.key: slice for slice in world.part.waiting}
    for each in admitted:
        yield each, waiting[each.key]


def _after(world: Snapshot, decided: Sequence[Decision], admitted: Sequence[Admit]) -> Snapshot:
    """The world in which everybody has left who leaves, and everybody has begun who was admitted."""
    gone = {each.key for each in admitted}
    left = when_all_have_left(world, decided)
    holdings, load = left.part.holdings.copy(), dict(left.load)
    granted = {cluster: dict(usage) for cluster, usage in left.granted.items()}
    for each, slice in _chosen(world, admitted):
        before = left.part.holdings.used_by(slice.chain_id).get(each.admission.cluster_queue, {})
        begun = msgspec.structs.replace(slice, admission=each.admission, admitted=True, cluster=each.cluster)
        holdings.settle(slice.chain_id, [begun])
        if slice.replaces is None:
            load[each.cluster] = load.get(each.cluster, 0) + 1
        there = granted.setdefault(each.cluster, {})
        for key, need in usage_of(slice, each.admission).items():
            there[key] = there.get(key, 0) + max(0, need - before.get(key, 0))
    waiting = tuple(slice for slice in left.part.waiting if slice.key not in gone)
    part = msgspec.structs.replace(left.part, holdings=holdings, waiting=waiting)
    return msgspec.structs.replace(left, part=part, load=load, granted=granted)
