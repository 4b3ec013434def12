"""The last messages of a fleet, from the journal."""

from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from datetime import timedelta

from slicebus.ambient.clock import now
from slicebus.cli.broker.connection import bus_of
from slicebus.journal.entry import Entry
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import SlicebusError

_BEFORE = timedelta(minutes=1)
"""How far back the first messages are."""
_KEPT = 500


class LastMessages:
    """Collects the messages of a broker, of one namespace or of all."""

    def __init__(self, amqp_url: str, namespace: str | None) -> None:
        self._amqp_url = amqp_url
        self._namespace = namespace
        self._entries: deque[Entry] = deque(maxlen=_KEPT)
        self.problem = ""
        """Why there are no more; empty while they come."""

    @property
    def entries(self) -> list[Entry]:
        """The last ones, oldest first."""
        return list(self._entries)

    async def collect(self, *, follow: bool) -> None:
        """Collect those of the last minute, and with `follow` those that come. It ends where the broker cannot be
        read, and says why."""
        try:
            async with (
                bus_of(self._amqp_url, name="slicebus top") as bus,
                aclosing(read_journals(bus, now() - _BEFORE, follow=follow)) as records,
            ):
                async for record in records:
                    self._entries.extend(self._wanted([Entry.from_record(record)]))
        except SlicebusError as error:
            self.problem = f"no messages: {error}"

    def _wanted(self, entries: Iterable[Entry]) -> Iterable[Entry]:
        return (entry for entry in entries if self._namespace in (None, *entry.subject.split("/")[1:2]))
