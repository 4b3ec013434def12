"""Follows the journal for the pages, and keeps its last hour."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import NoReturn

from slicebus.ambient.clock import now
from slicebus.bus.contract import Bus, Record
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.doctor.check import Check
from slicebus.cli.doctor.dead_letter_check import dead_letters_check
from slicebus.cli.journal.turns import in_turns
from slicebus.cli.view.hour import KEPT, OVERLAP, HourReader, RecordedHour
from slicebus.journal.beginnings import BEFORE
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import SlicebusError

_AGAIN_S = 5.0
_LETTERS_S = 30.0
"""Between two counts of the dead letters. A count takes every letter out of its queue for a moment."""
_READING = "the journal is being read"
NO_BROKER = (
    "no broker is named, so messages, hops, charts and the past are left out: start `slicebus view` with AMQP_URL set"
)


class History:
    """Follows the journals of a broker, and connects again where that breaks."""

    def __init__(self, amqp_url: str | None) -> None:
        """Without an address nothing is read, and the pages say so."""
        self.amqp_url = amqp_url
        self._problem = _READING if amqp_url else NO_BROKER
        self._reader = HourReader(now() - KEPT)
        self._dead_letters: Check | None = None
        self._changed = asyncio.Event()
        self.version = 0

    async def run(self) -> None:
        """Keep it up to date until cancelled; without a broker it returns at once."""
        while self.amqp_url is not None:
            try:
                async with bus_of(self.amqp_url, name="slicebus view") as bus:
                    await self._read(bus)
            except SlicebusError as error:
                self._note(f"the journal cannot be read: {error}")
            else:
                self._note("the journal has ended")
            await asyncio.sleep(_AGAIN_S)

    def hour(self) -> RecordedHour:
        """What is kept now."""
        self._reader.drop_before(now() - KEPT)
        return self._reader.hour(problem=self._problem, dead_letters=self._dead_letters)

    @property
    def first(self) -> datetime | None:
        """From when on the last hour has a manager's decisions; None where none were read."""
        first = self._reader.first
        return max(first, now() - KEPT) if first is not None else None

    async def after(self, version: int) -> int:
        """The next version after one that the caller knows, as soon as there is one."""
        while self.version == version:
            await self._changed.wait()
        return self.version

    async def _read(self, bus: Bus) -> None:
        """Read the past in the order of its times, then go on with what comes, in the order in which it comes."""
        began = now()
        since = began - KEPT
        self._reader, self._problem = HourReader(since), _READING
        counting = asyncio.create_task(self._count(bus), name="view:dead-letters")
        try:
            await self._take(read_journals(bus, since - BEFORE, follow=False))
            self._note("")
            # What was published meanwhile comes again, and is known by its id.
            await self._take(read_journals(bus, began - OVERLAP, follow=True))
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)

    async def _take(self, records: AsyncGenerator[Record, None]) -> None:
        async with aclosing(in_turns(records)) as read:
            async for record in read:
                entry = self._reader.feed(record)
                if entry is None:
                    continue
                self._reader.drop_before(now() - KEPT)
                if self._problem and entry.published:
                    self._problem = f"{_READING}, and has come to {entry.published:%H:%M:%S} UTC"
                self._bump()

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

    def _note(self, problem: str) -> None:
        self._problem = problem
        self._bump()

    def _bump(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()
