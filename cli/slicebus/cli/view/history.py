"""Keeps the last hour of the journal for the pages: every message, and the steps of recorded decisions."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import NoReturn

import msgspec

from slicebus.ambient.clock import now
from slicebus.bus.contract import Bus, Record
from slicebus.bus.sizes import size_of
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.doctor.check import Check
from slicebus.cli.doctor.dead_letter_check import dead_letters_check
from slicebus.journal.beginnings import BEFORE, Beginnings
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import Redactor
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import SlicebusError

KEPT = timedelta(hours=1)
_MOST_BYTES = 64 * 1024**2
"""Of the messages that are kept: of a busier fleet it is less than an hour."""
_MOST_STEPS = 200_000
_AGAIN_S = 5.0
_LETTERS_S = 30.0
"""Between two counts of the dead letters. A count takes every letter out of its queue for a moment."""
_TURN_S = 0.02
"""How long entries are read before others get their turn."""
_OVERLAP = timedelta(seconds=10)
"""Clocks of publishers and of the broker may differ by so much."""
_MOST_IDS = 100_000
_READING = "the journal is being read"
NO_BROKER = "no broker is named, so messages, hops and charts are left out: start `slicebus view` with AMQP_URL set"


class RecordedHour(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of the journal."""

    entries: tuple[Entry, ...]
    """The messages without secrets, oldest first."""
    events: tuple[RecordedStep | Consumed, ...]
    problem: str
    """Why it is not read, or not up to now; empty where it is."""
    dead_letters: Check | None
    """None where nobody has counted them."""

    def about(self, job: str) -> "tuple[list[Entry], list[RecordedStep | Consumed]]":
        """The messages and steps of one job, `Kind/namespace/name`."""
        return (
            [entry for entry in self.entries if entry.subject == job],
            [event for event in self.events if event.job == job],
        )


class _Reader(msgspec.Struct, frozen=True):
    """What reads one record after the other."""

    beginnings: Beginnings
    steps: Steps
    since: datetime


class History:
    """Follows the journals of a broker, and connects again where that breaks."""

    def __init__(self, amqp_url: str | None) -> None:
        """Without an address nothing is read, and the pages say so."""
        self._amqp_url = amqp_url
        self._problem = _READING if amqp_url else NO_BROKER
        self._entries: deque[tuple[Entry, int]] = deque()
        self._redactor = Redactor()
        self._bytes = 0
        self._events: deque[RecordedStep | Consumed] = deque(maxlen=_MOST_STEPS)
        self._dead_letters: Check | None = None
        self._ids: dict[str, None] = {}
        """The last messages that were read, oldest first."""
        self._number = 0
        self._changed = asyncio.Event()
        self.version = 0

    async def run(self) -> None:
        """Keep it up to date until cancelled; without a broker it returns at once."""
        while self._amqp_url is not None:
            try:
                async with bus_of(self._amqp_url, name="slicebus view") as bus:
                    await self._read(bus)
            except SlicebusError as error:
                self._note(f"the journal cannot be read: {error}")
            else:
                self._note("the journal has ended")
            await asyncio.sleep(_AGAIN_S)

    def hour(self) -> RecordedHour:
        """What is kept now."""
        self._drop_old()
        return RecordedHour(
            entries=tuple(entry for entry, _ in self._entries),
            events=tuple(self._events),
            problem=self._problem,
            dead_letters=self._dead_letters,
        )

    async def after(self, version: int) -> int:
        """The next version after one that the caller knows, as soon as there is one."""
        while self.version == version:
            await self._changed.wait()
        return self.version

    async def _read(self, bus: Bus) -> None:
        """Read the past in the order of its times, then go on with what comes, in the order in which it comes."""
        self._entries.clear()
        self._events.clear()
        self._ids.clear()
        self._bytes, self._problem = 0, _READING
        counting = asyncio.create_task(self._count(bus), name="view:dead-letters")
        try:
            began = now()
            since = began - KEPT
            reader = _Reader(Beginnings(since), Steps(), since)
            await self._take(read_journals(bus, since - BEFORE, follow=False), reader)
            self._note("")
            # What was published meanwhile comes again, and is known by its id.
            await self._take(read_journals(bus, began - _OVERLAP, follow=True), reader)
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)

    async def _take(self, records: AsyncGenerator[Record, None], reader: "_Reader") -> None:
        turn_ends_s = asyncio.get_running_loop().time() + _TURN_S
        async with aclosing(records) as read:
            async for record in read:
                if self._is_known(record.message.message_id):
                    continue
                self._number += 1
                entry = Entry.from_record(msgspec.structs.replace(record, offset=self._number))
                for due in reader.beginnings.feed(entry):
                    self._keep(due, reader.steps.feed(due), reader.since)
                if self._problem and entry.published:
                    self._problem = f"{_READING}, and has come to {entry.published:%H:%M:%S} UTC"
                self._bump()
                if asyncio.get_running_loop().time() > turn_ends_s:
                    await asyncio.sleep(0)
                    turn_ends_s = asyncio.get_running_loop().time() + _TURN_S

    def _is_known(self, id: str | None) -> bool:
        if not id:
            return False
        if id in self._ids:
            return True
        self._ids[id] = None
        if len(self._ids) > _MOST_IDS:
            del self._ids[next(iter(self._ids))]
        return False

    async def _count(self, bus: Bus) -> NoReturn:
        while True:
            try:
                found = await dead_letters_check(bus)
            except SlicebusError as error:
                found = Check("dead letters", f"they cannot be read: {error}")
            if found != self._dead_letters:
                self._dead_letters = found
                self._bump()
            await asyncio.sleep(_LETTERS_S)

    def _keep(self, entry: Entry, events: Iterator[RecordedStep | Consumed], since: datetime) -> None:
        self._events.extend(event for event in events if event.at >= since)
        if entry.is_decisions:
            return
        size = size_of(entry.record.message)
        self._entries.append((entry.shown(self._redactor), size))
        self._bytes += size
        self._drop_old()

    def _drop_old(self) -> None:
        oldest = now() - KEPT
        while self._entries and (self._bytes > _MOST_BYTES or _is_before(self._entries[0][0], oldest)):
            self._bytes -= self._entries.popleft()[1]
        while self._events and self._events[0].at < oldest:
            self._events.popleft()

    def _note(self, problem: str) -> None:
        self._problem = problem
        self._bump()

    def _bump(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


def _is_before(entry: Entry, moment: datetime) -> bool:
    return entry.published is not None and entry.published < moment
