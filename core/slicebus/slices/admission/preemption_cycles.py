"""Finds preemption cycles: workloads that have preempted each other in turn and begin again, or victims that
get quota before their preemptor, and are preempted for it again.

Each step is what the policies say, and the workloads would lose their pods one after the other for ever. The conditions
of the Workloads tell who preempted whom last, also after a restart: see decision 0038.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from slicebus.slices.admission.preemption import Victim, preemptor_job
from slicebus.slices.api.kueue import Condition
from slicebus.slices.placement.flavors import Misfit
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.workload.workload import Slice, SliceKey


class PreemptionCycles:
    """The preemptions among some slices."""

    def __init__(self, slices: Iterable[Slice], since: str | None) -> None:
        """`since`: only what has changed from then on counts, as metav1.Time; None where no cycle is looked for."""
        self._slices = slices
        self._since = since
        self._waiting: dict[str, tuple[SliceKey, Node]] = {}

    @cached_property
    def _preempted_by(self) -> Mapping[str, str]:
        """The job that has preempted a job last, by their UIDs."""
        found: dict[str, tuple[str, str]] = {}
        for slice in self._slices if self._since is not None else ():
            condition = slice.conditions.get(Condition.PREEMPTED, {})
            at, by = condition.get("lastTransitionTime", ""), preemptor_job(condition.get("message", ""))
            if by and not slice.finished and at >= (self._since or ""):
                found[slice.job_uid] = max(found.get(slice.job_uid, ("", "")), (at, by))
        return {job: by for job, (_, by) in found.items()}

    def waits(self, slice: Slice, tree: Node) -> None:
        """A slice waits in this cycle for quota of this tree, by its root, that others leave."""
        self._waiting[slice.job_uid] = slice.key, tree

    def behind(self, slice: Slice, tree: Node) -> Misfit | None:
        """Why a slice that was preempted for one that still waits is not assessed; None for any other.

        With it in the way, the other would choose flavors again, and might preempt it once more. It is in the way only
        of one that waits for quota of the same tree: a cohort may have left the other's since.
        """
        preemptor, of = self._waiting.get(self._preempted_by.get(slice.job_uid, ""), (None, None))
        if preemptor is None or of is not tree:
            return None
        return Misfit(f"It was preempted for {preemptor}, which waits, and comes after it", "the admission of that one")

    def gone_round(self, slice: Slice, victims: Sequence[Victim]) -> str:
        """Where a slice and one of its victims have preempted each other, at once or by way of others, what to tell
        people. Otherwise empty."""
        before, job = self._preempted_by, slice.job_uid
        wanted = {victim.candidate.slice.job_uid: victim.candidate.slice for victim in victims}
        passed = [job]
        while (by := before.get(passed[-1])) is not None and by not in passed:
            if by in wanted and before.get(by) == job:
                others = f" by way of {len(passed) - 1} more" if len(passed) > 1 else ""
                return f"It and {wanted[by].key} have preempted each other{others}: they do not begin again so soon"
            passed.append(by)
        return ""
