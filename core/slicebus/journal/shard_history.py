"""Follows the objects of one shard of a role through its recording, with the time of every change.

A change has no time of its own in a recording: it has that of the next decision or message, or of its batch where that
is earlier. After a gap, and when another leader begins, the difference to its snapshot is what has changed.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from slicebus.journal.object_diffs import changed_object
from slicebus.journal.recording import (
    Batch,
    Began,
    Decided,
    Gap,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    SnapshotPart,
    Source,
)
from slicebus.kube.cache import Key, key_of
from slicebus.proto.errors import MALFORMED, InvalidError

Manifest = dict[str, Any]


class ObjectChange(msgspec.Struct, frozen=True):
    """An object was added, changed or removed."""

    at: float
    """Unix time."""
    of: str
    """The resource: `workloads.kueue.x-k8s.io`."""
    before: Manifest | None
    after: Manifest | None


class ShardHistory:
    """Follows some resources and tables. Feed it the batches of a shard from before a snapshot on."""

    def __init__(self, resources: Collection[str], tables: Collection[str]) -> None:
        self.follows = False
        """Whether records can be applied: not before a snapshot and after a gap."""
        self.seen_s = 0.0
        """When its last batch was published."""
        self.tables: dict[str, dict[bytes, Raw]] = {name: {} for name in tables}
        """The tables as they are now: values by key, both as JSON."""
        self._is_known = False
        """Whether a snapshot was ever complete. Before that nothing changes."""
        self._objects: dict[str, dict[Key, Manifest]] = {name: {} for name in resources}
        self._leader: Source | None = None
        self._next = 0
        self._snapshot: list[Put | Noted] | None = None
        self._held: list[tuple[float, Record]] = []
        """The changes since the first part of a snapshot."""
        self._untimed: list[Record] = []

    @property
    def objects(self) -> Mapping[str, Mapping[Key, Manifest]]:
        """The objects as they are now, by resource."""
        return self._objects

    def feed(self, batch: Batch, published_s: float | None) -> Iterator[ObjectChange]:
        """Take a batch. Raises InvalidError."""
        leader = batch.source
        if self._leader is None or leader.epoch > self._leader.epoch:
            self._leader, self._next = leader, batch.number
            self._interrupt()
        elif leader != self._leader or batch.number < self._next:
            return  # An earlier leader, or published twice.
        if batch.number > self._next:
            self._interrupt()
        self._next = batch.number + 1
        self.seen_s = max(self.seen_s, published_s or 0.0)
        # Each record has the time of the next one that has any.
        for record in batch.records:
            if isinstance(record, Decided | Received):
                yield from self._flush(record.at)
            else:
                self._untimed.append(record)
        if published_s is not None:
            yield from self._flush(published_s)

    def _flush(self, at: float) -> Iterator[ObjectChange]:
        records, self._untimed = self._untimed, []
        for record in records:
            yield from self._take(at, record)

    def _take(self, at: float, record: Record) -> Iterator[ObjectChange]:
        match record:
            case Began() | Gap():
                self._interrupt()
            case SnapshotPart() if not self.follows:
                yield from self._collect(at, record)
            case SnapshotPart():
                return  # What it has is known.
            case _ if self.follows:
                yield from self._apply(at, record)
            case _ if self._snapshot is not None:
                self._held.append((at, record))
            case _:
                return  # The snapshot to come has it.

    def _interrupt(self) -> None:
        self.follows, self._snapshot, self._held = False, None, []

    def _collect(self, at: float, part: SnapshotPart) -> Iterator[ObjectChange]:
        if part.part == 0:
            self._snapshot, self._held = [], []
        if self._snapshot is None:
            return
        self._snapshot += part.content
        if not part.last:
            return
        content, held = self._snapshot, self._held
        self._snapshot, self._held, self.follows = None, [], True
        yield from self._compare(at, content)
        for moment, record in held:
            yield from self._apply(moment, record)

    def _compare(self, at: float, content: list[Put | Noted]) -> Iterator[ObjectChange]:
        """Take a whole state over, and yield what differs from the one before."""
        before, self._objects = self._objects, {name: {} for name in self._objects}
        self.tables = {name: {} for name in self.tables}
        was_known, self._is_known = self._is_known, True
        for record in content:
            for _ in self._apply(at, record):
                pass
        if not was_known:
            return
        for of, objects in self._objects.items():
            for key in before[of].keys() | objects.keys():
                old, new = before[of].get(key), objects.get(key)
                if old != new:
                    yield ObjectChange(at, of, old, new)

    def _apply(self, at: float, record: Record) -> Iterator[ObjectChange]:
        try:
            change = self._changed(at, record)
        except MALFORMED as error:
            raise InvalidError(f"a {type(record).__name__} that no role records: {error!r}") from error
        if change is not None:
            yield change

    def _changed(self, at: float, record: Record) -> ObjectChange | None:
        match record:
            case Put(of=of) if of in self._objects:
                key = key_of(record.object)
                old = self._objects[of].get(key)
                new = changed_object(record, old)
                kept = {part: old[part] for part in record.cut if old is not None and part in old and part not in new}
                self._objects[of][key] = new = new | kept
                return ObjectChange(at, of, old, new)
            case Gone(of=of, namespace=namespace, name=name) if of in self._objects:
                old = self._objects[of].pop((namespace, name), None)
                return ObjectChange(at, of, old, None) if old is not None else None
            case Noted(table=table, key=key, value=value) if table in self.tables:
                self.tables[table][bytes(key)] = value
            case _:
                pass
        return None
