"""Follows the objects of a role through the recordings of all its shards, with the time of every change.

Each shard watches everything. One of them is followed. Where its recording has a gap or ends, another one is, from what
that has told meanwhile; and what is older than what is known already does not count.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.journal.entry import Entry
from slicebus.journal.recording import RoleName
from slicebus.journal.recording_reader import batch_of
from slicebus.journal.shard_history import ObjectChange, ShardHistory
from slicebus.kube.cache import Key, key_of
from slicebus.slices.api.annotation_values import read_number

Manifest = dict[str, Any]
_QUIET_S = 5.0
"""A shard records something every few seconds. One that is silent for so long, while another is not, has ended."""
_LATE_S = 1.0
"""How much later one shard may tell the same."""


class ObjectHistory:
    """Follows some resources and tables of a role. Feed it a recording from before a snapshot on."""

    def __init__(self, role: RoleName, resources: Collection[str], tables: Collection[str] = ()) -> None:
        self.interruptions = 0
        """How often the state was unknown for a while, since it was first known."""
        self._role = role
        self._resources, self._tables = resources, tables
        self._objects: dict[str, dict[Key, Manifest]] = {name: {} for name in resources}
        self._gone: set[str] = set()
        """The UIDs of objects that are gone: another shard may tell of them later."""
        self._shards: dict[int, ShardHistory] = {}
        self._followed: ShardHistory | None = None
        self._told: dict[int, list[ObjectChange]] = {}
        """What the other shards have told that the followed one may not tell any more."""
        self._last_s = 0.0

    @property
    def is_known(self) -> bool:
        """Whether a snapshot is complete. Before that nothing changes."""
        return self._followed is not None

    @property
    def objects(self) -> Mapping[str, Mapping[Key, Manifest]]:
        """The objects as they are now, by resource."""
        return self._objects

    @property
    def tables(self) -> Mapping[str, Mapping[bytes, Raw]]:
        """The tables as they are now: values by key, both as JSON."""
        return self._followed.tables if self._followed is not None else {name: {} for name in self._tables}

    def feed(self, record: StreamRecord) -> Iterator[ObjectChange]:
        """Take one record of the journal. Raises InvalidError."""
        batch = batch_of(record, self._role)
        if batch is None:
            return
        number = batch.source.shard
        shard = self._shards.setdefault(number, ShardHistory(self._resources, self._tables))
        published, followed = Entry.from_record(record).published, shard.follows
        for change in shard.feed(batch, published.timestamp() if published is not None else None):
            if self._followed is None:
                self._begin(shard)
                self._undo(change)
            if shard is self._followed:
                yield from self._take(change)
            else:
                self._told.setdefault(number, []).append(change)
        if self._followed is None:
            if shard.follows:
                self._begin(shard)
        elif shard is self._followed:
            self._forget(shard.seen_s)
            if followed and not shard.follows:
                yield from self._replace(shard)
        elif shard.follows and (not self._followed.follows or self._is_silent(shard)):
            yield from self._follow(number)

    def _begin(self, shard: ShardHistory) -> None:
        self._followed, self._told = shard, {}
        self._objects = {of: dict(objects) for of, objects in shard.objects.items()}

    def _undo(self, change: ObjectChange) -> None:
        key = key_of(change.after or change.before or {})
        if change.before is not None:
            self._objects[change.of][key] = change.before
        else:
            self._objects[change.of].pop(key, None)

    def _is_silent(self, other: ShardHistory) -> bool:
        return self._followed is not None and other.seen_s > self._followed.seen_s + _QUIET_S

    def _replace(self, lost: ShardHistory) -> Iterator[ObjectChange]:
        """Follow another shard in place of one that has a gap, if there is one."""
        able = (number for number, one in self._shards.items() if one.follows and lost.seen_s <= one.seen_s + _QUIET_S)
        number = next(able, None)
        if number is None:
            self.interruptions += 1
        else:
            yield from self._follow(number)

    def _follow(self, number: int) -> Iterator[ObjectChange]:
        shard = self._followed = self._shards[number]
        told = self._told.pop(number, [])
        for change in (*told, *self._differences(shard)):
            yield from self._take(change)

    def _differences(self, shard: ShardHistory) -> Iterator[ObjectChange]:
        """What a shard knows otherwise, which it has told before anybody looked."""
        for of, objects in shard.objects.items():
            known = self._objects[of]
            for key in [*known, *(key for key in objects if key not in known)]:
                if (before := known.get(key)) != (after := objects.get(key)):
                    yield ObjectChange(shard.seen_s, of, before, after)

    def _forget(self, seen_s: float) -> None:
        """Forget what the followed shard has told by now."""
        for number, changes in self._told.items():
            self._told[number] = [change for change in changes if change.at > seen_s - _LATE_S]

    def _take(self, change: ObjectChange) -> Iterator[ObjectChange]:
        objects, manifest = self._objects[change.of], change.after or change.before or {}
        key = key_of(manifest)
        known = objects.get(key)
        uid = manifest["metadata"].get("uid", "")
        if change.after is None:
            self._gone.add(uid)
            if known is None or known["metadata"].get("uid", "") != uid:
                return
            del objects[key]
        elif uid in self._gone or not _is_news(change.after, known):
            return
        else:
            objects[key] = change.after
        self._last_s = max(self._last_s, change.at)
        yield msgspec.structs.replace(change, at=self._last_s, before=known)


def _is_news(manifest: Manifest, known: Manifest | None) -> bool:
    """Whether an object is a later version than what is known of it."""
    if known is None:
        return True
    new, old = map(_version, (manifest, known))
    return new > old if new and old else manifest != known


def _version(manifest: Manifest) -> int:
    """0 for one that says none."""
    text = manifest.get("metadata", {}).get("resourceVersion")
    return read_number(text) if isinstance(text, str) else 0
