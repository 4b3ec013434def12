"""Reads a stream: to the end that it had when the reading began, or on.

AMQP does not say where a stream ends. Two more consumers tell: one gets the first record that is published from then
on, and one the first record of the last chunk. A broker that is short of something may send nothing for seconds in the
middle of a stream, so that silence means the end only behind that record.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

import msgspec
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from slicebus.bus.contract import Record, StreamOffset
from slicebus.bus.rabbitmq.messages import from_incoming
from slicebus.bus.sizes import RECORDING_BYTES, cut
from slicebus.proto.errors import UnavailableError

_PREFETCH = 200
"""A stream's consumer needs a prefetch; without acknowledgements the broker delivers no more than that."""
_SILENT_S = 1.0
"""Without a record for this long, a reader looks whether it is at the end."""
_EMPTY_S = 3.0
"""So long after it began, a stream that has shown nothing at all is empty."""
_UNSURE_S = 5.0
"""The same for one whose last records are from about the time from which on it is read."""
_LOST_S = 30.0
"""So long the broker may send nothing of what is there."""
_CLOCKS = timedelta(seconds=10)
"""Clocks of publishers and of the broker may differ by so much."""


class Tail(msgspec.Struct, frozen=True):
    """The first record of a stream's last chunk."""

    offset: int
    time: datetime | None


class Silence(Enum):
    """What it means that no record comes."""

    GOES_ON = auto()
    END = auto()
    LOST = auto()
    """The broker does not send what is there."""


def meaning(start: StreamOffset, read_to: int | None, tail: Tail | None, silent_s: float) -> Silence:
    """What it means that a reading from `start` has had no record for so long. `read_to` is the offset of the last one,
    None before any; `tail` is None as long as nobody knows it."""
    if tail is not None and read_to is not None:
        ends_after_s = 0.0 if read_to >= tail.offset else _LOST_S
    elif tail is not None:
        ends_after_s = _nothing_is_there_after_s(start, tail)
    else:
        ends_after_s = _EMPTY_S if read_to is None else _LOST_S
    if silent_s < ends_after_s:
        return Silence.GOES_ON
    return Silence.LOST if ends_after_s == _LOST_S else Silence.END


def _nothing_is_there_after_s(start: StreamOffset, tail: Tail) -> float:
    """How long a reading waits for its first record, where the stream has some."""
    if start == "next" or (isinstance(start, int) and start > tail.offset):
        return 0.0
    if not isinstance(start, datetime):
        return _LOST_S
    if tail.time is None:
        return _UNSURE_S
    if tail.time < start:
        return 0.0
    return _UNSURE_S if tail.time < start + _CLOCKS else _LOST_S


async def read_on(channel: AbstractChannel, stream: str, start: StreamOffset) -> AsyncIterator[Record]:
    """Read records from an offset on, until the channel is closed."""
    incoming = await _consumed(channel, stream, start)
    while not channel.is_closed:
        if (message := await _within(incoming, _SILENT_S)) is None:
            continue
        if (record := await _taken(message, start)) is not None:
            yield record


async def read_to_end(
    channel: AbstractChannel, ahead: AbstractChannel, stream: str, start: StreamOffset
) -> AsyncIterator[Record]:
    """Read records from an offset to the present end; `ahead` is a channel for who tells that. Raises UnavailableError
    where the broker does not send what is there."""
    later = await _first_of(ahead, stream, "next")
    tail = await _first_of(ahead, stream, "last")
    incoming = await _consumed(channel, stream, start)
    read_to: int | None = None
    silent_s = 0.0
    while True:
        message = await _within(incoming, _SILENT_S)
        if message is None:
            silent_s += _SILENT_S
            if channel.is_closed or ahead.is_closed:
                raise UnavailableError(f"the connection was lost while {stream} was read")
            match meaning(start, read_to, _tail(tail), silent_s):
                case Silence.END:
                    return
                case Silence.GOES_ON:
                    continue
                case Silence.LOST:
                    raise UnavailableError(f"{stream}: the broker has sent nothing for {silent_s:.0f} s, and has more")
        silent_s, read_to = 0.0, offset_of(message)
        if later.done() and read_to >= offset_of(later.result()):
            return
        if (record := await _taken(message, start)) is not None:
            yield record


def offset_of(message: AbstractIncomingMessage) -> int:
    """The offset of a message in its stream."""
    return int(message.headers["x-stream-offset"])  # type: ignore[arg-type]


def _tail(first: asyncio.Future[AbstractIncomingMessage]) -> Tail | None:
    return Tail(offset_of(first.result()), first.result().timestamp) if first.done() else None


async def _first_of(channel: AbstractChannel, stream: str, offset: str) -> asyncio.Future[AbstractIncomingMessage]:
    """The first record from an offset on; it is set when that comes."""
    first: asyncio.Future[AbstractIncomingMessage] = asyncio.get_running_loop().create_future()

    async def comes(message: AbstractIncomingMessage) -> None:
        if not first.done():
            first.set_result(message)

    await _consume(channel, stream, offset, comes, prefetch=1)
    return first


async def _consumed(
    channel: AbstractChannel, stream: str, start: StreamOffset
) -> asyncio.Queue[AbstractIncomingMessage]:
    incoming: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    offset: Any = start.astimezone() if isinstance(start, datetime) else start
    await _consume(channel, stream, offset, incoming.put, prefetch=_PREFETCH)
    return incoming


async def _consume(
    channel: AbstractChannel, stream: str, offset: Any, take: Callable[[AbstractIncomingMessage], Any], *, prefetch: int
) -> None:
    await channel.set_qos(prefetch_count=prefetch)
    queue = await channel.get_queue(stream, ensure=True)
    await queue.consume(take, arguments={"x-stream-offset": offset})


async def _within(incoming: asyncio.Queue[AbstractIncomingMessage], seconds: float) -> AbstractIncomingMessage | None:
    """The next message; None where none comes in time."""
    try:
        # Not wait_for: in Python 3.11 that loses a cancellation that comes together with a message.
        async with asyncio.timeout(seconds):
            return await incoming.get()
    except TimeoutError:
        return None


async def _taken(message: AbstractIncomingMessage, start: StreamOffset) -> Record | None:
    """The record of a message; None for one before the start: the broker begins with the chunk that has it."""
    await message.ack()
    number = offset_of(message)
    if isinstance(start, int) and number < start:
        return None
    return Record(offset=number, message=cut(from_incoming(message), RECORDING_BYTES), timestamp=message.timestamp)
