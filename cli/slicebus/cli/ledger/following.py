"""Follows the manager's stream and writes its facts into the database of the ledger."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sql

from slicebus.ambient.cancellation import TaskGroup
from slicebus.bus.contract import Bus, Record, StreamOffset
from slicebus.cli.ledger.retention import Retention, prune, roll_up
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.journal.beginnings import BEFORE
from slicebus.journal.entry import Entry
from slicebus.journal.recording import Source
from slicebus.ledger.bookkeeper import Bookkeeper, LedgerState
from slicebus.ledger.facts import Fact
from slicebus.proto.errors import ConfigurationError, SlicebusError
from slicebus.proto.topology import JOURNAL

_WRITE_EVERY_S = 1.0
_TOUCH_EVERY_S = 30.0
"""While nothing arrives."""
_MOST_RECORDS = 500
"""Of one write."""
_AHEAD = 1000
"""Records that are read while the database is written."""
_TIDY_EVERY_MS = 3_600_000
_EPOCH = datetime.fromtimestamp(0, UTC)
Result = TypeVar("Result")
Arrivals = asyncio.Queue[Record | None]
"""None ends it."""


class Written(msgspec.Struct):
    """What a ledger has written since it began."""

    facts: int = 0
    days: int = 0
    """How many were rolled up."""


async def follow_into(
    bus: Bus,
    engine: sql.Engine,
    retention: Retention,
    *,
    user_label: str = "",
    follow: bool,
    alive: Path | None = None,
) -> Written:
    """Write what the stream has, and with `follow` go on with what comes. `alive`: a file to touch while it works.

    Raises ConflictError where another ledger writes into the database, UnavailableError where that or the broker cannot
    be used now, and InvalidError where the database does not take what is written.
    """
    store = LedgerStore(engine)
    state, position = await asyncio.to_thread(store.load)
    start: StreamOffset = "first"
    if position.read_ms is not None:
        start = _EPOCH + timedelta(milliseconds=position.read_ms) - BEFORE
    arrivals, writer = Arrivals(_AHEAD), LedgerWriter(store, state, position, retention, user_label=user_label)

    async def read() -> None:
        async with aclosing(bus.read_stream(JOURNAL, start, follow=follow)) as records:  # type: ignore[type-var]
            async for record in records:
                await arrivals.put(record)
        await arrivals.put(None)

    try:
        async with TaskGroup() as group:
            group.create_task(read(), name="ledger:read")
            group.create_task(writer.run(arrivals, alive), name="ledger:write")
    except ExceptionGroup as failed:
        match failed.exceptions:
            case (SlicebusError() as error,):
                raise error from failed
            case _:
                raise
    return writer.written


class LedgerWriter:
    """Takes records, and writes what they say."""

    def __init__(
        self, store: LedgerStore, state: LedgerState, position: ReadPosition, retention: Retention, *, user_label: str
    ) -> None:
        self.written = Written()
        self._store = store
        self._position = position
        self._keeper = Bookkeeper(state, user_label=user_label)
        self._batches: dict[Source, int] = {taken.source: taken.count for taken in state.taken}
        self._retention = retention
        self._tidied_ms = 0

    async def run(self, arrivals: Arrivals, alive: Path | None = None) -> None:
        """Write what arrives, up to the end. `alive`: a file to touch, but not while a write goes on."""
        has_ended = False
        while not has_ended:
            records, has_ended = await _next(arrivals, alive)
            await self.write(records)
            known_ms = self._position.known_ms or 0
            if has_ended or known_ms >= self._tidied_ms + _TIDY_EVERY_MS:
                self._tidied_ms = known_ms
                await _to_its_end(self._tidy)

    async def write(self, records: list[Record]) -> None:
        """Write the facts of records, and the position after them, in one transaction."""
        facts, after = list[Fact](), self._position
        for record in records:
            entry = Entry.from_record(record)
            facts += self._keeper.feed(entry)
            read_ms = (entry.published - _EPOCH) // timedelta(milliseconds=1) if entry.published else 0
            after = ReadPosition(
                next_offset=record.offset + 1,
                read_ms=max(after.read_ms or 0, read_ms),
                known_ms=self._keeper.known_ms,
            )
        taken = [one for one in self._keeper.taken if self._batches.get(one.source) != one.count]
        if not taken:
            return  # Nothing that the ledger does not have.
        self._position = await _to_its_end(self._store.write, facts, taken, self._position, after)
        self._batches.update((one.source, one.count) for one in taken)
        self.written.facts += len(facts)

    def _tidy(self) -> None:
        self.written.days += roll_up(self._store.engine)
        prune(self._store.engine, self._retention)
        self._store.forget_templates()


def touch(alive: Path) -> None:
    """Say that the ledger works. Raises ConfigurationError for a file that cannot be written."""
    try:
        alive.touch()
    except OSError as error:
        raise ConfigurationError(f"--alive {alive}: {error.strerror or error}") from error


async def _to_its_end(work: Callable[..., Result], *arguments: Any) -> Result:
    """Do some work in a thread. It ends also where this is cancelled: a thread goes on, and what writes next would take
    its write for another ledger's."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise


async def _next(arrivals: Arrivals, alive: Path | None) -> tuple[list[Record], bool]:
    """The next records, and whether they are the last: those of a second, and no more than one write takes."""
    records, record = list[Record](), await _first(arrivals, alive)
    with suppress(TimeoutError):
        async with asyncio.timeout(_WRITE_EVERY_S):
            while record is not None:
                records.append(record)
                if len(records) == _MOST_RECORDS:
                    break
                record = await arrivals.get()
    return records, record is None


async def _first(arrivals: Arrivals, alive: Path | None) -> Record | None:
    while True:
        if alive is not None:
            await asyncio.to_thread(touch, alive)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TOUCH_EVERY_S):
                return await arrivals.get()
