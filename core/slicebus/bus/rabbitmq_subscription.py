"""Consumes one queue, over as many connections as it takes."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from slicebus.ambient.backoff import Backoff
from slicebus.bus.rabbitmq_failures import close_quietly, translated
from slicebus.bus.rabbitmq_messages import RabbitDelivery, from_incoming
from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError

if TYPE_CHECKING:
    from slicebus.bus.rabbitmq import RabbitBus

_log = structlog.get_logger()
_SUBSCRIBING = Backoff(first_s=0.25, most_s=1.0)
_GONE_S = 10.0
"""A queue that is missing for so long has gone. A broker that starts, or loses a node, lacks queues for a moment."""


class RabbitSubscription:
    """Consumes a queue, and outlives its channels."""

    def __init__(self, bus: "RabbitBus", queue: str, *, prefetch: int, keep: Keep) -> None:
        self._bus = bus
        self._queue = queue
        self._prefetch = prefetch
        self._keep = keep
        self._closing = asyncio.Event()
        self._channel: AbstractChannel | None = None

    async def __aiter__(self) -> AsyncIterator[RabbitDelivery]:
        """Iterate over deliveries until it is closed, over as many connections as it takes. Raises NotFoundError when
        the queue has gone."""
        failures, gone_at = 0, None
        while not (self._closing.is_set() or self._bus.closed):
            try:
                async for delivery in self._consume():
                    failures = 0
                    yield delivery
                gone_at = None
            except (UnavailableError, NotFoundError) as error:
                gone_at = self._gone_at(gone_at, error)
                _log.warning("subscription.interrupted", queue=self._queue, error=str(error))
                failures += 1
                await asyncio.sleep(_SUBSCRIBING.pause_s(failures))

    def _gone_at(self, gone_at: float | None, error: SlicebusError) -> float | None:
        """When a queue counts as gone that is missing since this failure or an earlier one; raises the error then."""
        if not isinstance(error, NotFoundError):
            return None
        now_s = asyncio.get_running_loop().time()
        if gone_at is not None and now_s >= gone_at:
            raise error
        return gone_at or now_s + _GONE_S

    async def close(self) -> None:
        """Close the channel; the broker delivers unsettled messages again."""
        self._closing.set()
        if self._channel is not None:
            await close_quietly(self._channel)

    async def _consume(self) -> AsyncIterator[RabbitDelivery]:
        link = await self._bus.wait_up()
        channel = await self._bus.open_channel(link)
        self._channel = channel
        consumer = _Consumer(channel, self._keep)
        channel.close_callbacks.add(lambda *_: consumer.end())
        with translated(f"consume {self._queue}"):
            await channel.set_qos(prefetch_count=self._prefetch)
            await consumer.begin(await channel.get_queue(self._queue, ensure=True))
        link.consumers.add(consumer)
        try:
            while (arrival := await consumer.arrived.get()) is not None and not self._closing.is_set():
                yield RabbitDelivery(self._bus, *arrival, channel, queue=self._queue, on_settled=consumer.settle)
        finally:
            # A consumer that leaves keeps its channel: its deliveries are settled there.
            if not consumer.is_leaving:
                link.consumers.discard(consumer)
                await close_quietly(channel)


class _Consumer:
    """Consumes on one channel, and holds what came there."""

    def __init__(self, channel: AbstractChannel, keep: Keep) -> None:
        self._channel = channel
        self.arrived: asyncio.Queue[tuple[AbstractIncomingMessage, WireMessage] | None] = asyncio.Queue()
        """None: nothing more comes."""
        self.is_leaving = False
        self._keep = keep
        self._queue: AbstractQueue | None = None
        self._tag = ""
        self._unsettled = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def begin(self, queue: AbstractQueue) -> None:
        """Consume a queue. The broker ends a consumer whose queue is deleted."""
        underlay = await self._channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(lambda _: self.end())
        self._queue, self._tag = queue, await queue.consume(self._receive)

    def settle(self) -> None:
        """Note that one message is settled."""
        self._unsettled -= 1
        if self._unsettled <= 0:
            self._idle.set()

    def end(self) -> None:
        """Note that the channel is closed: nothing more comes, and what came can no longer be settled."""
        self._unsettled = 0
        self._idle.set()
        self.arrived.put_nowait(None)

    async def leave(self) -> None:
        """Consume nothing more on this channel. Return when every message that came there is settled."""
        assert self._queue is not None
        self.is_leaving = True
        with translated("cancel a consumer"):
            await self._queue.cancel(self._tag)
            # aiormq hands each message to a task, and the last ones may be on their way: a round trip takes longer.
            await self._channel.get_queue(self._queue.name, ensure=True)
        # Behind what has come already: the queue's order is kept.
        self.arrived.put_nowait(None)
        await self._idle.wait()
        # A connection is closed without what was written last, an acknowledgement; a channel after it.
        await close_quietly(self._channel)

    async def _receive(self, incoming: AbstractIncomingMessage) -> None:
        self._unsettled += 1
        self._idle.clear()
        message = self._keep(from_incoming(incoming))
        # What is not kept is freed now, however many messages are before it.
        incoming.body = b""  # type: ignore[misc]
        self.arrived.put_nowait((incoming, message))
