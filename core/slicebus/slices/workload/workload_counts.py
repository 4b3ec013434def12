"""How many slices of each LocalQueue are in which state, under the names of Kueue's statuses and metrics."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from slicebus.slices.api.kueue import INADMISSIBLE, Condition
from slicebus.slices.workload.workload import LocalQueueKey, Slice


class State(StrEnum):
    """What a slice may be counted as."""

    PENDING = "pending"
    INADMISSIBLE = "inadmissible"
    """Pending, and nothing that others leave helps it."""
    RESERVING = "reserving"
    ADMITTED = "admitted"


def states(slice: Slice) -> tuple[State, ...]:
    """What a slice counts as: nothing once it has finished."""
    if slice.finished:
        return ()
    if slice.pending:
        reason = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
        return (State.PENDING, State.INADMISSIBLE) if reason == INADMISSIBLE else (State.PENDING,)
    reserving = (State.RESERVING,) if slice.admission is not None else ()
    return (*reserving, State.ADMITTED) if slice.admitted else reserving


class WorkloadCounts:
    """The counts. Only `change` changes them."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Counter[State]] = {}

    def change(self, old: Slice | None, new: Slice | None) -> None:
        """Count a slice as it is, in place of what it was; None is a slice that is not there."""
        if old is not None:
            self._of(old.local_queue).subtract(states(old))
        if new is not None:
            self._of(new.local_queue).update(states(new))

    def of(self, local_queues: Iterable[LocalQueueKey]) -> Counter[State]:
        """The counts of these queues together."""
        found = Counter[State]()
        for key in local_queues:
            found.update(self._counts.get(key, {}))
        return found

    def _of(self, local_queue: LocalQueueKey) -> Counter[State]:
        return self._counts.setdefault(local_queue, Counter())
