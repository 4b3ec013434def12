"""Reads moments of the past for the pages: from the journal, and from a ledger what that knows of older ones.

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
from slicebus.cli.past.ledger_rows import LedgerReading
from slicebus.cli.past.options import PastMoment
from slicebus.cli.past.reading import (
    NotRecordedError,
    PastReading,
    at_moment,
    find_past,
    past_reading,
    read_ledger,
)
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
Result = TypeVar("Result")
Read = Callable[[], Awaitable[tuple[Kept, int]]]
"""Reads something, and says how many bytes it has."""


class PastFleet(msgspec.Struct, frozen=True):
    """What pages show of a moment."""

    state: FleetState
    rows: Sequence[JobRow]


class PastMoments:
    """Reads moments from the manager's journal, the hours before them from both, and from a ledger what that knows."""

    def __init__(self, amqp_url: str | None, *, ledger: str | None = None, most_s: float = MOST_S) -> None:
        """Without an address every moment is refused, with what a command says."""
        self.has_ledger = ledger is not None
        self._amqp_url = amqp_url
        self._ledger = ledger
        self._most_s = most_s
        self._reading = asyncio.Lock()
        self._fleets = Recent[datetime, PastFleet](_MOST_BYTES)
        self._hours = Recent[datetime, RecordedHour](_MOST_BYTES)

    async def fleet(self, at: datetime) -> PastFleet:
        """The manager's objects at a moment. Raises ConfigurationError with the span of the journal where it does not
        know them, as NotRecordedError where a ledger may, and UnavailableError."""
        if self.has_ledger and not self._amqp_url:
            raise NotRecordedError("there is no journal to ask: the view has no broker")

        async def read() -> tuple[PastFleet, int]:
            found = await find_past(PastMoment(amqp_url=self._amqp_url), at, option=AT)
            return await asyncio.to_thread(_fleet_of, found, at)

        return await self._kept(self._fleets, at, read)

    async def ledger(self, at: datetime, unread: NotRecordedError) -> LedgerReading:
        """What the ledger knows of a moment that the journal does not have. Raises `unread` without a ledger, and
        ConfigurationError with the span that it knows."""
        if self._ledger is None:
            raise unread
        async with self._reading:
            return await self._within(asyncio.to_thread(read_ledger, self._ledger, at, option=AT), "the ledger")

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
            found, size = await self._within(read(), "the journal")
            if now() - at > OVERLAP:  # Of a later moment there may be records to come.
                kept.put(at, found, size)
            return found

    async def _within(self, reading: Awaitable[Result], what: str) -> Result:
        try:
            async with asyncio.timeout(self._most_s):
                return await reading
        except TimeoutError as error:
            told = f"{what} was not read within {self._most_s:g} s; `slicebus jobs --at` waits for longer"
            raise UnavailableError(told) from error


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
