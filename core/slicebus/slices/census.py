"""How many slices of each LocalQueue are in which state, under the names of Kueue's statuses and metrics."""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum

from slicebus.slices.kueue import INADMISSIBLE, Condition
from slicebus.slices.workload import Slice

LocalQueueKey = tuple[str, str]
"""Namespace and name."""


class State(StrEnum):
    """What a slice may be counted as."""

    PENDING = "pending"
    INADMISSIBLE = "inadmissible"
    """Pending, and nothing that others leave helps it."""
    RESERVING = "reserving"
    ADMITTED = "admitted"


def states(slice: Slice | None) -> tuple[State, ...]:
    """What a slice counts as: nothing once it has finished."""
    if slice is None or slice.finished:
        return ()
    if slice.pending:
        reason = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
        return (State.PENDING, State.INADMISSIBLE) if reason == INADMISSIBLE else (State.PENDING,)
    reserving = (State.RESERVING,) if slice.admission is not None else ()
    return (*reserving, State.ADMITTED) if slice.admitted else reserving


class Census:
    """The counts. Only `change` changes them."""

    def __init__(self) -> None:
        self._counts: dict[LocalQueueKey, Counter[State]] = {}

    @property
    def local_queues(self) -> Collection[LocalQueueKey]:
        """Every LocalQueue that a slice names or has named, there or not."""
        return self._counts

    def change(self, old: Slice | None, new: Slice | None) -> None:
        """Count a slice as it is, in place of what it was; None is a slice that is not there."""
        for slice, sign in ((old, -1), (new, 1)):
            for state in states(slice):
                assert slice is not None
                self._counts.setdefault((slice.namespace, slice.queue), Counter())[state] += sign

    def of(self, local_queues: Iterable[LocalQueueKey]) -> Counter[State]:
        """The counts of these queues together."""
        found = Counter[State]()
        for key in local_queues:
            found.update(self._counts.get(key, {}))
        return found
