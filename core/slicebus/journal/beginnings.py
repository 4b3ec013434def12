"""Finds where a replay has to begin, for the decisions of a part of the journal."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from slicebus.journal.entry import Entry
from slicebus.journal.recording import Began, SnapshotPart, Source, decode_batch
from slicebus.proto.errors import InvalidError

BEFORE = timedelta(minutes=65)
"""How far back there is a snapshot of each leader: one is recorded at least every hour."""


class Beginnings:
    """Passes on every entry from a time on, preceded by each leader's newest snapshot and the entries after it.

    Feed it the journal from `BEFORE` that time on, so that it has the snapshots.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._held: dict[Source, list[Entry]] = {}
        self._begun = False

    def feed(self, entry: Entry) -> Iterator[Entry]:
        """Take the next entry, and return the entries to pass on, in order."""
        if not self._begun and (entry.published is None or entry.published >= self._since):
            self._begun = True
            held = [before for entries in self._held.values() for before in entries]
            yield from sorted(held, key=lambda before: before.offset)
            self._held.clear()
        if self._begun:
            yield entry
        elif entry.is_decisions:
            self._hold(entry)

    def _hold(self, entry: Entry) -> None:
        try:
            batch = decode_batch(entry.record.message)
        except InvalidError:
            return
        held = self._held.setdefault(batch.source, [])
        if any(isinstance(r, Began) or (isinstance(r, SnapshotPart) and r.part == 0) for r in batch.records):
            held.clear()
        held.append(entry)
