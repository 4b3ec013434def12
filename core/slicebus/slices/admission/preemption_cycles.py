"""Finds preemption cycles: workloads that have preempted each other in turn and begin again, or victims that
get quota before their preemptor, and are preempted for it again.

The policies allow each step, and the workloads would lose their pods one after the other for ever. The conditions of
the Workloads tell who preempted whom last, also after a restart: see decision 0038.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from slicebus.slices.admission.preemption import Victim, preemptor_job
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
    def _preempted_by(self) -> Mapping[str, str]:
        """The last preemptor of each job, both by the UIDs of their jobs."""
        latest: dict[str, tuple[str, str]] = {}
        for slice in self._slices if self._since is not None else ():
            condition = slice.conditions.get(Condition.PREEMPTED, {})
            at, by = condition.get("lastTransitionTime", ""), preemptor_job(condition.get("message", ""))
            if by and not slice.finished and at >= (self._since or ""):
                latest[slice.job_uid] = max(latest.get(slice.job_uid, ("", "")), (at, by))
        return {job: by for job, (_, by) in latest.items()}

    def note_waiting(self, slice: Slice, tree: Node) -> None:
        """Note that a slice waits in this cycle until others leave quota of this tree. `tree` is its root."""
        self._waiting[slice.job_uid] = slice.key, tree

    def waits_behind(self, slice: Slice, tree: Node) -> Misfit | None:
        """Why a slice that was preempted for one that still waits is not assessed; None for any other.

        With it in the way, the other would choose flavors again, and might preempt it once more. It is in the way only
        of a slice that waits for quota of the same tree: a cohort may have left that tree since.
        """
        preemptor, awaited = self._waiting.get(self._preempted_by.get(slice.job_uid, ""), (None, None))
        if preemptor is None or awaited is not tree:
            return None
        return Misfit(f"It was preempted for {preemptor}, which waits, and comes after it", "the admission of that one")

    def describe_cycle(self, slice: Slice, victims: Sequence[Victim]) -> str:
        """What to tell people where a slice and one of its victims have preempted each other, directly or by way of
        others; empty where they have not."""
        before, job = self._preempted_by, slice.job_uid
        wanted = {victim.candidate.slice.job_uid: victim.candidate.slice for victim in victims}
        passed = [job]
        while (by := before.get(passed[-1])) is not None and by not in passed:
            if by in wanted and before.get(by) == job:
                others = f" by way of {len(passed) - 1} more" if len(passed) > 1 else ""
                return f"It and {wanted[by].key} have preempted each other{others}: they do not begin again so soon"
            passed.append(by)
        return ""
