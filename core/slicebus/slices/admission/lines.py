"""Keeps the waiting slices in lines: those of one line differ in nothing that a cycle reads, but for their age.

A cycle decides the first few of each line one by one. The others it decides by the next one of them, and again where
anything has changed meanwhile (`waiting_queue`). So it costs what the number of lines costs, not that of slices.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator

import msgspec

from slicebus.slices.admission.queue_order import Rank, rank
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.workload.workload import LocalQueueKey, Slice, SliceKey

FRONT = 2
"""How many of each line are decided one by one, and told in numbers what they lack."""
Shown = tuple[str, str]
"""The reason and the message that a slice shows while it waits."""


class Line:
    """The waiting slices that are alike."""

    def __init__(self) -> None:
        self.members: list[Slice] = []
        """By rank."""
        self._showing: dict[Shown, dict[SliceKey, Slice]] = {}

    def add(self, slice: Slice) -> None:
        """Add a slice."""
        insort(self.members, slice, key=_place)
        self._showing.setdefault(shown_by(slice), {})[slice.key] = slice

    def remove(self, slice: Slice) -> None:
        """Remove a slice, as it was added."""
        del self.members[bisect_left(self.members, _place(slice), key=_place)]
        shown = shown_by(slice)
        del self._showing[shown][slice.key]
        if not self._showing[shown]:
            del self._showing[shown]

    def without(self, keys: Collection[SliceKey]) -> "Line":
        """The line without some of them."""
        left = Line()
        for slice in self.members:
            if slice.key not in keys:
                left.add(slice)
        return left

    def not_showing(self, shown: Shown) -> Iterator[tuple[int, Slice]]:
        """Those that show something else, each with its index."""
        for other, slices in self._showing.items():
            for slice in slices.values() if other != shown else ():
                yield bisect_left(self.members, _place(slice), key=_place), slice


class Behind(msgspec.Struct, frozen=True):
    """Those of a line that a cycle does not decide one by one."""

    line: Line
    start: int
    """The index of the first of them."""


class Lines:
    """Follows who waits. `put` and `remove` change it."""

    def __init__(self, *, front: int = FRONT) -> None:
        """`front` is how many of each line are decided one by one."""
        self._front = front
        self._lines: dict[LocalQueueKey, dict[bytes, Line]] = {}
        self._alone: dict[LocalQueueKey, dict[SliceKey, Slice]] = {}
        self._known: dict[SliceKey, tuple[Slice, bytes | None]] = {}
        """Everybody who waits, and the kind of line; None for one that is like no other."""

    def put(self, slice: Slice, *, is_only: bool) -> None:
        """Add or replace a waiting slice. `is_only`: its job has no other one, and no quota."""
        kind = kind_of(slice) if is_only and is_plain(slice) else None
        before, its_kind = self._known.get(slice.key, (None, None))
        if before is slice and its_kind == kind:
            return
        self.remove(slice.key)
        self._known[slice.key] = slice, kind
        if kind is None:
            self._alone.setdefault(slice.local_queue, {})[slice.key] = slice
        else:
            self._lines.setdefault(slice.local_queue, {}).setdefault(kind, Line()).add(slice)

    def remove(self, key: SliceKey) -> None:
        """Remove a slice, if it is there."""
        slice, kind = self._known.pop(key, (None, None))
        if slice is None:
            return
        queue = slice.local_queue
        if kind is None:
            del self._alone[queue][key]
            if not self._alone[queue]:
                del self._alone[queue]
            return
        line = self._lines[queue][kind]
        line.remove(slice)
        if not line.members:
            del self._lines[queue][kind]
            if not self._lines[queue]:
                del self._lines[queue]

    def waiting_in(
        self, queues: Iterable[LocalQueueKey], *, apart: Collection[SliceKey] = ()
    ) -> tuple[list[Slice], list[Behind]]:
        """Those who wait in these LocalQueues and are decided one by one, and the others. Those `apart` count as if
        they were in no line."""
        first: list[Slice] = []
        behind: list[Behind] = []
        for queue in queues:
            first += self._alone.get(queue, {}).values()
            for line in self._lines.get(queue, {}).values():
                if apart:
                    first += (slice for slice in line.members if slice.key in apart)
                    line = line.without(apart)
                first += line.members[: self._front]
                if len(line.members) > self._front:
                    behind.append(Behind(line, self._front))
        return first, sorted(behind, key=lambda each: rank(each.line.members[0]))


def shown_by(slice: Slice) -> Shown:
    """What a slice shows while it waits; empty where it shows nothing yet."""
    condition = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    is_shown = condition.get("status") == "False"
    return (condition.get("reason", ""), condition.get("message", "")) if is_shown else ("", "")


def is_plain(slice: Slice) -> bool:
    """Whether nothing that a cycle reads of a waiting slice is its own but its age: nobody was preempted for it, nor it
    for anybody, and nothing was taken back from its job."""
    shown = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason")
    is_new = slice.replaces is None and not slice.queued_since and slice.reclaimed is None and slice.observed is None
    return slice.pending and is_new and Condition.PREEMPTED not in slice.conditions and shown != WAITING_FOR_PREEMPTED


def _place(slice: Slice) -> tuple[Rank, SliceKey]:
    return rank(slice), slice.key


def kind_of(slice: Slice) -> bytes:
    """What a cycle reads of a slice that waits for its start, without its age and name."""
    pods = [
        (each.name, each.count, each.requests, each.devices, each.template, sorted(each.unasked))
        for each in slice.pod_sets
    ]
    elastic = (slice.elastic, slice.partial, slice.replica_sizes, slice.elasticity, slice.reclaimable)
    where = (slice.cluster_selector, slice.scheduler, sorted(slice.avoids), slice.active, slice.cluster)
    return _encoder.encode((slice.local_queue, slice.priority, pods, elastic, where))


_encoder = msgspec.json.Encoder(order="sorted")
