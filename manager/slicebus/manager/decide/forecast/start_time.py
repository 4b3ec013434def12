"""When a slice that waits would start: cycles are played until it has quota, while jobs end after run times that others
had.

Nobody new comes, and whoever is preempted does not come back. So it is what the wait is made of today.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from math import inf
from statistics import quantiles

import msgspec

from slicebus.journal.run_times import RunTime
from slicebus.manager.decide.forecast.verdict import leaving, when_all_have_left
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, cycle
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.workload.workload import Slice

LEAST = 10
"""With fewer run times of a queue nothing is said about it."""
_MOST_CYCLES = 500
"""Of one round: a slice that has not started by then starts later than anybody can tell."""
_SIZES = 2
"""A job is like another one that has at most so many times its pods, and at least this part of them."""
Choose = Callable[[Sequence[float]], float]
"""Draws one of several."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """By what the start of a slice is estimated."""

    run_times: Sequence[RunTime]
    choose: Choose
    take: Callable[[Iterator[float]], Sequence[float]]
    """Takes as many rounds as there is time for."""

    def of(self, world: Snapshot, slice: Slice, *, moment: datetime) -> "StartTime | None":
        """When a slice of this world starts; None where too little is known."""
        starts = self.take(rounds(world, slice, self.run_times, moment=moment, choose=self.choose))
        queue = world.cluster_queue_of(slice)
        return start_time(starts, sum(each.queue == queue for each in self.run_times))


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """When a slice would start, in seconds from now."""

    p50_s: float | None
    """None where it is later than anybody can tell."""
    p90_s: float | None
    run_times: int
    """How many run times of its ClusterQueue it goes by."""
    rounds: int


def rounds(
    world: Snapshot, slice: Slice, run_times: Sequence[RunTime], *, moment: datetime, choose: Choose
) -> Iterator[float]:
    """When the slice starts in one round after the other, for ever; `inf` where it does not. `world` has the slice.
    Nothing where too few run times of its queue are known."""
    known = _Known(run_times, moment, choose)
    if known.count(world.cluster_queue_of(slice)) < LEAST:
        return
    while True:
        yield _start(world, slice, known)


def start_time(starts: Sequence[float], run_times: int) -> StartTime | None:
    """What rounds have shown; None where there are fewer than two."""
    if len(starts) < 2:
        return None
    cuts = quantiles([min(start, 1e12) for start in starts], n=10, method="inclusive")
    shown = [None if cut >= 1e11 else round(cut, 1) for cut in cuts]
    return StartTime(p50_s=shown[4], p90_s=shown[8], run_times=run_times, rounds=len(starts))


class _Known:
    """Draws the run times of jobs."""

    def __init__(self, run_times: Sequence[RunTime], moment: datetime, choose: Choose) -> None:
        self._of_queue: dict[str, list[RunTime]] = {}
        for each in run_times:
            self._of_queue.setdefault(each.queue, []).append(each)
        self._moment = moment
        self._choose = choose

    def count(self, queue: str) -> int:
        return len(self._of_queue.get(queue, ()))

    def remaining(self, holder: Slice) -> float:
        """How much longer a job runs that has quota; `inf` where nothing like it is known to end."""
        reserved = holder.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime", "")
        ran_s = (self._moment - datetime.fromisoformat(reserved)).total_seconds() if reserved else 0.0
        like = self._like(holder)
        # One that has outlived all others may run as long as one that begins.
        candidates = [seconds - ran_s for seconds in like if seconds > ran_s] or like
        return self._choose(candidates) if candidates else inf

    def whole(self, slice: Slice, queue: str) -> float:
        """How long a job runs that begins."""
        like = self._alike(queue, sum(slice.counts.values()))
        return self._choose(like) if like else inf

    def _like(self, holder: Slice) -> list[float]:
        queue = holder.admission.cluster_queue if holder.admission is not None else ""
        return self._alike(queue, sum(holder.held_counts.values()))

    def _alike(self, queue: str, pods: int) -> list[float]:
        """Of the same queue and about the same size; of any size where those are too few."""
        known = self._of_queue.get(queue, ())
        if len(known) < LEAST:
            return []
        alike = [each.seconds for each in known if pods <= each.pods * _SIZES and each.pods <= pods * _SIZES]
        return alike if len(alike) >= LEAST else [each.seconds for each in known]


def _start(world: Snapshot, slice: Slice, known: _Known) -> float:
    """When the slice starts in one round, in seconds."""
    at_s, ends = 0.0, list[tuple[float, str]]()
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
