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
    Decided,
    Gone,
    Noted,
    Put,
    Received,
    Record,
)
from slicebus.journal.recording_reader import Event, Lost, Phase, Skipped, SourceReader, Whole, malformed
from slicebus.kube.cache import Key, key_of
from slicebus.proto.errors import MALFORMED

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
        self.seen_s = 0.0
        """When its last batch was published."""
        self.tables: dict[str, dict[bytes, Raw]] = {name: {} for name in tables}
        """The tables as they are now: values by key, both as JSON."""
        self._is_known = False
        """Whether a snapshot was ever complete. Before that nothing changes."""
        self._objects: dict[str, dict[Key, Manifest]] = {name: {} for name in resources}
        self._reader: SourceReader[float] | None = None
        """Of the newest leader."""
        self._untimed: list[Record] = []

    @property
    def follows(self) -> bool:
        """Whether records can be applied: not before a snapshot and after a gap."""
        return self._reader is not None and self._reader.phase is Phase.KNOWN

    @property
    def objects(self) -> Mapping[str, Mapping[Key, Manifest]]:
        """The objects as they are now, by resource."""
        return self._objects

    def feed(self, batch: Batch, published_s: float | None) -> Iterator[ObjectChange]:
        """Take a batch. Raises InvalidError."""
        leader, reader = batch.source, self._reader
        if reader is None or leader.epoch > reader.source.epoch:
            reader = self._reader = SourceReader(leader)
        elif leader != reader.source or reader.has(batch):
            return  # An earlier leader, or published twice.
        reader.begin(batch)
        self.seen_s = max(self.seen_s, published_s or 0.0)
        # Each record has the time of the next one that has any.
        for record in batch.records:
            if isinstance(record, Decided | Received):
                yield from self._flush(reader, record.at)
            else:
                self._untimed.append(record)
        if published_s is not None:
            yield from self._flush(reader, published_s)

    def _flush(self, reader: SourceReader[float], at: float) -> Iterator[ObjectChange]:
        records, self._untimed = self._untimed, []
        for record in records:
            match reader.take(record, at):
                case None | Lost() | Skipped():
                    continue  # The snapshot to come has it.
                case Whole(content=content, since=since):
                    yield from self._compare(at, content)
                    for moment, event in since:
                        yield from self._apply(moment, event)
                case event:
                    yield from self._apply(at, event)

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

    def _apply(self, at: float, record: Event) -> Iterator[ObjectChange]:
        try:
            change = self._changed(at, record)
        except MALFORMED as error:
            raise malformed(f"a {type(record).__name__}", error) from error
        if change is not None:
            yield change

    def _changed(self, at: float, record: Event) -> ObjectChange | None:
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
