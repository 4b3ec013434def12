"""Limits how many workloads the growth of jobs on one worker cluster preempts in a time.

A worker's agent asks for the growth, and a stolen one asks for all that its jobs may have. A first slice is its user's
wish, and has no limit. The conditions and notes of the Workloads tell who was preempted or lost pods for whom, also
after a restart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from slicebus.slices.admission.preemption import preemptor_job, preemptor_uid
from slicebus.slices.admission.reductions import Victim
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.flavors import Misfit
from slicebus.slices.quota.holdings import Part
from slicebus.slices.workload.workload import Slice, SliceKey

GROWTH_LIMITED: Final = "GrowthLimited"
"""The reason of a growth that waits for the time only."""


def is_limited(slice: Slice) -> bool:
    """Whether a slice shows that it waits for time to pass."""
    condition = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    return slice.pending and condition.get("status") == "False" and condition.get("reason") == GROWTH_LIMITED


class GrowthLimit(msgspec.Struct, frozen=True):
    """How many workloads growth may preempt in a time, for each cluster and tree of quota."""

    most: int
    within_s: float
    since: str
    """Preemptions from then on count, a metav1.Time."""


def _preemptors_of(slice: Slice, since: str) -> Iterator[tuple[str, str]]:
    """For whom a slice was preempted or lost pods from then on: the UIDs of their jobs and Workloads."""
    condition = slice.conditions.get(Condition.PREEMPTED, {})
    if condition.get("lastTransitionTime", "") >= since:
        text = condition.get("message", "").removeprefix("Previously: ")
        yield preemptor_job(text), preemptor_uid(text)
    # The note goes over to the slice that waits for what was taken: it counts where the quota is.
    taken = slice.reclaimed.preemptors if slice.reclaimed is not None and slice.admission is not None else ()
    yield from ((each.job_uid, each.uid) for each in taken if each.at >= since)


class Growths:
    """Counts the victims of growth by cluster."""

    def __init__(self, part: Part, queues: Iterable[str], limit: GrowthLimit | None) -> None:
        """`queues` are the ClusterQueues of the part, by name; `limit` is None where nothing is limited."""
        self._part = part
        self._queues = queues
        self._limit = limit
        self._more: dict[str, set[SliceKey]] = {}

    @cached_property
    def _before(self) -> Mapping[str, Collection[SliceKey]]:
        """Who was preempted before this cycle, by the cluster of the growth."""
        if (limit := self._limit) is None:
            return {}
        holders = {slice.job_uid: slice for name in self._queues for slice in self._part.holdings.holders_in(name)}
        found: dict[str, set[SliceKey]] = {}
        for slice in self._part.preempted:
            for job, uid in _preemptors_of(slice, limit.since):
                grown = holders.get(job)
                if grown is None or grown.cluster is None:
                    continue
                if grown.replaces is None and grown.uid == uid:
                    continue  # It was preempted for the job's start.
                found.setdefault(grown.cluster, set()).add(slice.key)
        return found

    def refuse(self, replaced: Slice | None, victims: Sequence[Victim]) -> Misfit | None:
        """Why a growth does not get these victims now; None where it does. `replaced` is what it replaces."""
        limit, cluster = self._limit, replaced.cluster if replaced is not None else None
        if limit is None or not cluster or not victims:
            return None
        before = {*self._before.get(cluster, ()), *self._more.get(cluster, ())}
        needed = {victim.candidate.slice.key for victim in victims}
        if len(before | needed) <= limit.most:
            return None
        message = (
            f"Growth on worker cluster {cluster} may preempt {limit.most} workloads in {limit.within_s:g} s: "
            f"it has preempted {len(before)}, and this one would preempt {len(needed)}"
        )
        lacking = "time, or quota that comes free" if len(needed) <= limit.most else "quota that comes free"
        return Misfit(message, lacking, GROWTH_LIMITED)

    def note(self, replaced: Slice | None, victims: Sequence[Victim]) -> None:
        """Count the victims of a growth that gets them."""
        if replaced is not None and replaced.cluster:
            known = self._more.setdefault(replaced.cluster, set())
            known.update(victim.candidate.slice.key for victim in victims)
