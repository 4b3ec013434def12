"""Reads moments of the past for the pages, from the journal alone.

Resource handling: one reading at a time, within `MOST_S`. The last moments are kept, as far as they are small, so that
a page that is opened again, and the other pages of its moment, need no reading.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import msgspec
import orjson

from slicebus.ambient.clock import now
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.cluster.reading import ListedResource, Reading
from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs
from slicebus.cli.past.options import PastMoment
from slicebus.cli.past.reading import PastReading, at_moment, find_past, past_reading
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.hour import OVERLAP, RecordedHour, read_hour
from slicebus.cli.view.pages.timeline import AT
from slicebus.decisions.past import PastState
from slicebus.kube.resources import WORKLOADS
from slicebus.proto.errors import SlicebusError, UnavailableError

MOST_S = 30.0
"""How long a reading may take."""
_MOST_BYTES = 64 * 1024**2
"""Of the objects and messages that are kept, as JSON."""

Kept = TypeVar("Kept")
Read = Callable[[], Awaitable[tuple[Kept, int]]]
"""Reads something, and says how many bytes it has."""


class PastFleet(msgspec.Struct, frozen=True):
    """What pages show of a moment."""

    state: FleetState
    rows: Sequence[JobRow]


class PastMoments:
    """Reads moments from the manager's journal, and the hours before them from both."""

    def __init__(self, amqp_url: str | None, *, most_s: float = MOST_S) -> None:
        """Without an address every moment is refused, with what a command says."""
        self._amqp_url = amqp_url
        self._most_s = most_s
        self._reading = asyncio.Lock()
        self._fleets = Recent[datetime, PastFleet](_MOST_BYTES)
        self._hours = Recent[datetime, RecordedHour](_MOST_BYTES)

    async def fleet(self, at: datetime) -> PastFleet:
        """The manager's objects at a moment. Raises ConfigurationError with the span of the journal where it does not
        know them, and UnavailableError."""

        async def read() -> tuple[PastFleet, int]:
            found = await find_past(PastMoment(amqp_url=self._amqp_url), at, option=AT)
            return await asyncio.to_thread(_fleet_of, found, at)

        return await self._kept(self._fleets, at, read)

    async def hour(self, at: datetime) -> RecordedHour:
        """The messages and steps of the hour before a moment; why there are none, where they cannot be read."""

        async def read() -> tuple[RecordedHour, int]:
            async with bus_of(self._amqp_url or "", name="slicebus view") as bus:
                return await read_hour(bus, at)

        try:
            return await self._kept(self._hours, at, read)
        except SlicebusError as error:
            problem = f"the journal cannot be read: {error}"
            return RecordedHour(entries=(), events=(), problem=problem, dead_letters=None)

    async def _kept(self, kept: "Recent[datetime, Kept]", at: datetime, read: "Read[Kept]") -> Kept:
        async with self._reading:
            known = kept.get(at)
            if known is not None:
                return known
            try:
                async with asyncio.timeout(self._most_s):
                    found, size = await read()
            except TimeoutError as error:
                told = f"the journal was not read within {self._most_s:g} s; `slicebus jobs --at` waits for longer"
                raise UnavailableError(told) from error
            if now() - at > OVERLAP:  # Of a later moment there may be records to come.
                kept.put(at, found, size)
            return found


Key = TypeVar("Key")


class Recent(Generic[Key, Kept]):
    """Keeps what was used last, as far as its bytes allow; the last one always."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept = OrderedDict[Key, tuple[Kept, int]]()

    def get(self, key: Key) -> Kept | None:
        """What is kept under a key; None for nothing."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Key, value: Kept, size: int) -> None:
        """Keep something, in place of what was used least recently."""
        self._kept[key] = value, size
        self._bytes += size
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1][1]


def _fleet_of(found: PastState, at: datetime) -> tuple[PastFleet, int]:
    """What pages show, and its bytes as JSON. Of a large fleet it takes seconds. Raises InvalidError."""
    reading = past_reading(found, at)
    with at_moment(at):
        state = _state_of(reading)
        store = reading.store
        rows = in_order(JobRow.of(store, ref, state.sight) for ref in list(shown_refs(store)))
    size = sum(len(orjson.dumps(manifest)) for _, cache in store.decides_by() for manifest in cache.all())
    return PastFleet(state, rows), size


def _state_of(reading: PastReading) -> FleetState:
    """The manager saw everything."""
    return FleetState(
        reading=Reading(store=reading.store, parts=(ListedResource(WORKLOADS, None, ""),), hidden=()),
        leaders=reading.leaders,
        at=reading.at,
        recorded=reading.seen,
    )
