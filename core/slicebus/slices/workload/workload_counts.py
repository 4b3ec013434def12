"""Counts the slices of each LocalQueue by state, under the names of Kueue's statuses and metrics."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from slicebus.slices.api.kueue import INADMISSIBLE, Condition
from slicebus.slices.workload.workload import LocalQueueKey, Slice


class SliceState(StrEnum):
    """What a slice may be counted as."""

    PENDING = "pending"
    INADMISSIBLE = "inadmissible"
    """Pending, and nothing that others leave helps it."""
    RESERVING = "reserving"
    ADMITTED = "admitted"


def states(slice: Slice) -> tuple[SliceState, ...]:
    """What a slice counts as: nothing once it has finished."""
    if slice.finished:
        return ()
    if slice.pending:
        reason = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
        return (SliceState.PENDING, SliceState.INADMISSIBLE) if reason == INADMISSIBLE else (SliceState.PENDING,)
    reserving = (SliceState.RESERVING,) if slice.admission is not None else ()
    return (*reserving, SliceState.ADMITTED) if slice.admitted else reserving


class WorkloadCounts:
    """Counts slices by LocalQueue and state. Only `change` changes the counts."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Counter[SliceState]] = {}

    def change(self, old: Slice | None, new: Slice | None) -> None:
        """Count a slice as it is, in place of what it was; None is a slice that is not there."""
        if old is not None:
            self._counts_of(old.local_queue).subtract(states(old))
        if new is not None:
            self._counts_of(new.local_queue).update(states(new))

    def total(self, local_queues: Iterable[LocalQueueKey]) -> Counter[SliceState]:
        """The counts of these queues together."""
        counts = Counter[SliceState]()
        for key in local_queues:
            counts.update(self._counts.get(key, {}))
        return counts

    def _counts_of(self, local_queue: LocalQueueKey) -> Counter[SliceState]:
        return self._counts.setdefault(local_queue, Counter())
