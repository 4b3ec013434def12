"""Reads the two streams of the journal as one.

The manager's stream is out of the agents' reach, so there are two (docs/decisions/0066). Each has an order. Between
them records are ordered by the time that the broker recorded, or else by that of their publishers, whose clocks may
differ.

A record is numbered by how many the two streams have before it, so that another reading gives it the same number.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from slicebus.bus.contract import Bus, Record, StreamOffset
from slicebus.journal.entry import Entry
from slicebus.proto.topology import JOURNALS

_NEVER = datetime.min.replace(tzinfo=UTC)
_AHEAD = 1000
"""Records that wait to be merged, while a reading goes on with what is published."""


async def read_journals(bus: Bus, start: StreamOffset, *, follow: bool) -> AsyncGenerator[Record, None]:
    """Read both streams from `start`, a time or a word, to their present ends; with `follow`, go on with what is
    published later, in the order in which it comes."""
    if follow:
        async with aclosing(_follow(bus, start)) as records:
            async for record in records:
                yield record
        return
    order = _Order()
    async with (
        aclosing(bus.read_stream(JOURNALS[0], start, follow=False)) as first,  # type: ignore[type-var]
        aclosing(bus.read_stream(JOURNALS[1], start, follow=False)) as second,  # type: ignore[type-var]
    ):
        streams = [aiter(first), aiter(second)]
        heads = [await _next(stream) for stream in streams]
        while (at := order.first(heads)) is not None:
            yield order.numbered(at, heads)
            heads[at] = await _next(streams[at])


def merged(*streams: Iterable[Record]) -> Iterator[Record]:
    """The same for records that are there already."""
    order, rest = _Order(), [iter(stream) for stream in streams]
    heads = [next(stream, None) for stream in rest]
    while (at := order.first(heads)) is not None:
        yield order.numbered(at, heads)
        heads[at] = next(rest[at], None)


class _Order:
    """Knows which of the next records of the streams comes first, and its number."""

    def __init__(self) -> None:
        self._times = [_NEVER] * len(JOURNALS)
        self._next = [0] * len(JOURNALS)

    def first(self, heads: list[Record | None]) -> int | None:
        """Which stream has the first one; None when both are at their end. A record is as late as one before it."""
        for at, head in enumerate(heads):
            if head is not None:
                self._times[at] = max(self._times[at], _time_of(head))
                self._next[at] = head.offset
        there = [at for at, head in enumerate(heads) if head is not None]
        return min(there, key=lambda at: self._times[at], default=None)

    def numbered(self, at: int, heads: list[Record | None]) -> Record:
        """The next record of a stream, under its number."""
        record = heads[at]
        assert record is not None
        number = sum(self._next)
        self._next[at] = record.offset + 1
        return record if number == record.offset else msgspec.structs.replace(record, offset=number)


def _time_of(record: Record) -> datetime:
    return record.timestamp or Entry.from_record(record).published or _NEVER


async def _next(stream: AsyncIterator[Record]) -> Record | None:
    return await anext(stream, None)


async def _follow(bus: Bus, start: StreamOffset) -> AsyncGenerator[Record, None]:
    """Both streams as their records come. No TaskGroup: it would end whoever reads, and not this reading."""
    arrived: asyncio.Queue[tuple[int, Record]] = asyncio.Queue(_AHEAD)

    async def read(at: int) -> None:
        async with aclosing(bus.read_stream(JOURNALS[at], start, follow=True)) as records:  # type: ignore[type-var]
            async for record in records:
                await arrived.put((at, record))

    order = _Order()
    readers = [asyncio.create_task(read(at), name=f"read:{name}") for at, name in enumerate(JOURNALS)]
    try:
        while True:
            arrival = asyncio.create_task(arrived.get(), name="read:arrival")
            try:
                done, _ = await asyncio.wait([arrival, *readers], return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrival.cancel()
            for reader in readers:
                if reader in done:
                    reader.result()
            if arrival not in done:
                return
            at, record = arrival.result()
            heads: list[Record | None] = [None] * len(JOURNALS)
            heads[at] = record
            order.first(heads)
            yield order.numbered(at, heads)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
