"""Jobs that may have quota for a limited time in all, and the rule for them.

What a Workload that gives its quota back says of the time for which its job has had quota is that of every run since
somebody last activated it, through resizes; and no job loses its quota for its time before that is over.
"""

from collections.abc import Iterator
from datetime import datetime
from random import Random
from typing import Any

from simulation.later import with_later
from simulation.queues import QUEUES
from simulation.schedule import Moment, Schedule, StopQueue, Submit
from simulation.violations import Violation
from slicebus.slices.api.kueue import Condition, EvictionReason, FinishedReason
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
_NAMES = "lm"
"""Not the names of the other jobs of a run."""
_KINDS = ("Job", "Job", "RayCluster", "RayJob")
_LIMITS_S = (15, 40, 90)
_MARGIN_S = 2
"""Times on objects are whole seconds."""


def with_time_limits(schedule: Schedule) -> Schedule:
    """The same run, on one of eight with such jobs, whose queues are drained for a while."""
    return with_later(schedule, "time limits", _time_limits)


class TimeRules:
    """Follows for how long each job has quota, by the times that Workloads say."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}
        """Since when each job that has quota has had it without a pause, by UID."""
        self._before: dict[str, float] = {}
        """For how many seconds it has had quota before that."""

    def see_slice(self, slice: Slice, old: Slice | None, manifest: Manifest) -> None:
        """A slice has changed: raise Violation where its job is said to have run for another time."""
        job, had = slice.job_uid, old is not None and old.admission is not None
        said = (manifest.get("status") or {}).get("accumulatedPastExecutionTimeSeconds") or 0
        limit_s = manifest["spec"].get("maximumExecutionTimeSeconds")
        if slice.admission is not None and not had and (slice.replaces is None or job not in self._since):
            self._since[job], self._before[job] = _time(slice, Condition.QUOTA_RESERVED), said
        is_over = has_run_out(slice)
        if slice.admission is not None and slice.evicted and not (old and old.evicted) and is_over and limit_s:
            self._check_end(slice, limit_s)
        if had and slice.admission is None:
            ran_s = self._ran_s(slice)
            expected_s = 0.0 if is_over else ran_s
            if limit_s and abs(said - expected_s) > _MARGIN_S:
                raise Violation(
                    f"time: {slice.name} says that it has had quota for {said} s, and had for {expected_s} s"
                )
        end = slice.conditions.get(Condition.FINISHED, {}).get("reason")
        if (had and slice.admission is None) or (had and slice.finished and end != FinishedReason.SLICE_REPLACED):
            self._since.pop(job, None)

    def _check_end(self, slice: Slice, limit_s: int) -> None:
        if (ran_s := self._ran_s(slice)) < limit_s - _MARGIN_S:
            raise Violation(f"time: {slice.name} loses its quota after {ran_s} s, and has {limit_s} s")

    def _ran_s(self, slice: Slice) -> float:
        since = self._since.get(slice.job_uid)
        ran_s = (_time(slice, Condition.EVICTED) - since).total_seconds() if since is not None else 0.0
        return self._before.get(slice.job_uid, 0.0) + max(0.0, ran_s)


def has_run_out(slice: Slice) -> bool:
    """Whether its time was the last thing that took quota from a slice."""
    return bool(slice.conditions.get(Condition.EVICTED, {}).get("reason") == EvictionReason.EXECUTION_TIME)


def _time(slice: Slice, type: Condition) -> datetime:
    return datetime.fromisoformat(slice.conditions[type]["lastTransitionTime"])


def _time_limits(random: Random, run_s: float) -> Iterator[Moment]:
    if not 3 / 8 < random.random() <= 1 / 2:
        return
    for name in _NAMES:
        at_s, queue = round(random.uniform(0, run_s / 3), 2), random.choice([*QUEUES])
        yield Submit(
            at_s=at_s,
            kind=random.choice(_KINDS),
            name=name,
            size=random.choice((1, 2)),
            autoscales=False,
            queue=queue,
            priority=random.choice(("low", "high")),
            time_s=random.choice(_LIMITS_S),
        )
        stopped_s = round(random.uniform(2, 20), 2)
        for_s = round(random.uniform(2, 8), 2)
        yield StopQueue(
            at_s=round(at_s + stopped_s, 2), kind="ClusterQueue", queue=queue, policy="HoldAndDrain", for_s=for_s
        )
