"""Finds preemption cycles: workloads that have preempted each other in turn and begin again, or victims that
get quota before their preemptor, and are preempted for it again.

The policies allow each step, and the workloads would lose their pods one after the other for ever. The conditions of
the Workloads tell who preempted whom last, also after a restart: see decision 0038. Whoever only lost pods has a note.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from slicebus.slices.admission.preemption import preemptor_job
from slicebus.slices.admission.reductions import Victim
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.flavors import Misfit
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.workload.workload import Slice, SliceKey


class PreemptionCycles:
    """Knows the preemptions among some slices."""

    def __init__(self, slices: Iterable[Slice], since: str | None) -> None:
        """Only preemptions from `since` on count, a metav1.Time; None where no cycle is looked for."""
        self._slices = slices
        self._since = since
        self._waiting: dict[str, tuple[SliceKey, Node]] = {}

    @cached_property
    def _evicted_for(self) -> Mapping[str, str]:
        """The last job that each one was evicted for, both by the UIDs of their jobs."""
        latest: dict[str, tuple[str, str]] = {}
        for slice in self._recent:
            condition = slice.conditions.get(Condition.PREEMPTED, {})
            at, by = condition.get("lastTransitionTime", ""), preemptor_job(condition.get("message", ""))
            if by and at >= (self._since or ""):
                latest[slice.job_uid] = max(latest.get(slice.job_uid, ("", "")), (at, by))
        return {job: by for job, (_, by) in latest.items()}

    @cached_property
    def _shrunk_for(self) -> Mapping[str, frozenset[str]]:
        """The jobs that each one has lost pods to, all by the UIDs of their jobs."""
        found: dict[str, frozenset[str]] = {}
        for slice in self._recent:
            taken = slice.reclaimed.preemptors if slice.reclaimed is not None else ()
            jobs = frozenset(each.job_uid for each in taken if each.job_uid and each.at >= (self._since or ""))
            if jobs:
                found[slice.job_uid] = found.get(slice.job_uid, frozenset()) | jobs
        return found

    @property
    def _recent(self) -> Iterable[Slice]:
        return (slice for slice in self._slices if not slice.finished) if self._since is not None else ()

    def _preemptors_of(self, job: str) -> list[str]:
        evicted_for = self._evicted_for.get(job)
        return sorted({*([evicted_for] if evicted_for else []), *self._shrunk_for.get(job, ())})

    def note_waiting(self, slice: Slice, tree: Node) -> None:
        """Note that a slice waits in this cycle until others leave quota of this tree. `tree` is its root."""
        self._waiting[slice.job_uid] = slice.key, tree

    def waits_behind(self, slice: Slice, tree: Node, *, has_quota: bool) -> Misfit | None:
        """Why a slice that was preempted for one that still waits is not assessed; None for any other. `has_quota`:
        whether its chain holds some.

        With it in the way, the other would choose flavors again, and might preempt it once more. It is in the way only
        of a slice that waits for quota of the same tree: a cohort may have left that tree since. Whoever has quota
        again after an eviction grows beside the other; a job that lost pods does not.
        """
        lost_to = self._shrunk_for.get(slice.job_uid, frozenset())
        jobs = lost_to if has_quota else {self._evicted_for.get(slice.job_uid, ""), *lost_to}
        waiting = (self._waiting[job] for job in sorted(jobs) if job in self._waiting)
        preemptor = next((key for key, awaited in waiting if awaited is tree), None)
        if preemptor is None:
            return None
        return Misfit(f"It was preempted for {preemptor}, which waits, and comes after it", "the admission of that one")

    def describe_cycle(self, slice: Slice, victims: Sequence[Victim]) -> str:
        """What to tell people where a slice and one of its victims have preempted each other, directly or by way of
        others; empty where they have not."""
        job = slice.job_uid
        wanted = {victim.candidate.slice.job_uid: victim.candidate.slice for victim in victims}
        distances = {job: 0}
        to_follow = deque([job])
        while to_follow:
            passed = to_follow.popleft()
            for by in self._preemptors_of(passed):
                if by in wanted and job in self._preemptors_of(by):
                    others = f" by way of {distances[passed]} more" if distances[passed] else ""
                    return f"It and {wanted[by].key} have preempted each other{others}: they do not begin again so soon"
                if by not in distances:
                    distances[by] = distances[passed] + 1
                    to_follow.append(by)
        return ""
