"""From where on the decisions of a part of the journal can be made again."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from slicebus.journal.entry import Entry
from slicebus.journal.recording import Began, Snapshot, Source, decode_batch
from slicebus.proto.errors import InvalidError

BEFORE = timedelta(minutes=65)
"""A leader's state is recorded at least every hour: so far back there is one."""


class Beginnings:
    """Passes on what was published since a time, and before that, of each leader, what its decisions need.

    Read from `BEFORE` that time on, so that the state is found that they begin from.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._held: dict[Source, list[Entry]] = {}
        self._begun = False

    def feed(self, entry: Entry) -> Iterator[Entry]:
        """Take an entry; gives those that are wanted, in their order."""
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
        if any(isinstance(r, Began) or (isinstance(r, Snapshot) and r.part == 0) for r in batch.records):
            held.clear()
        held.append(entry)
