"""Consumes queues on one channel, over as many connections as it takes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from slicebus.ambient.backoff import Backoff
from slicebus.bus.rabbitmq.failures import close_quietly, translated
from slicebus.bus.rabbitmq.messages import RabbitDelivery, from_incoming
from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError

if TYPE_CHECKING:
    from slicebus.bus.rabbitmq.bus import RabbitBus

_log = structlog.get_logger()
_SUBSCRIBING = Backoff(first_s=0.25, most_s=1.0)
_GONE_S = 10.0
"""A queue that is missing for so long has gone. A broker that starts, or loses a node, lacks queues for a moment."""


class RabbitSubscription:
    """Consumes queues, and outlives its channels."""

    def __init__(self, bus: "RabbitBus", queues: Sequence[str], *, prefetch: int, keep: Keep, answer_s: float) -> None:
        self._bus = bus
        self._queues = queues
        self._prefetch = prefetch
        self._keep = keep
        self._answer_s = answer_s
        self._closing = asyncio.Event()
        self._channel: AbstractChannel | None = None

    async def __aiter__(self) -> AsyncIterator[RabbitDelivery]:
        """Iterate over deliveries until it is closed, over as many connections as it takes. Raises NotFoundError when
        a queue has gone."""
        failures, gone_at = 0, None
        while not (self._closing.is_set() or self._bus.closed):
            try:
                async for delivery in self._consume():
                    failures = 0
                    yield delivery
                gone_at = None
            except (UnavailableError, NotFoundError) as error:
                gone_at = self._gone_at(gone_at, error)
                _log.warning("subscription.interrupted", queue=self._queues[0], error=str(error))
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
        try:
            # AMQP 0-9-1 bounds what each consumer of a channel holds.
            with translated(f"consume {', '.join(self._queues)}"):
                # A connection that ends meanwhile may leave an answer out.
                async with asyncio.timeout(self._answer_s):
                    await channel.set_qos(prefetch_count=self._prefetch)
                    for queue in self._queues:
                        await consumer.begin(await channel.get_queue(queue, ensure=True))
            link.consumers.add(consumer)
            while (arrival := await consumer.arrived.get()) is not None and not self._closing.is_set():
                queue, incoming, message = arrival
                yield RabbitDelivery(self._bus, incoming, message, channel, queue=queue, on_settled=consumer.settle)
        finally:
            # A consumer that leaves keeps its channel: its deliveries are settled there.
            if not consumer.is_leaving:
                link.consumers.discard(consumer)
                await close_quietly(channel)


class _Consumer:
    """Consumes queues on one channel, and holds what came there."""

    def __init__(self, channel: AbstractChannel, keep: Keep) -> None:
        self._channel = channel
        self.arrived: asyncio.Queue[tuple[str, AbstractIncomingMessage, WireMessage] | None] = asyncio.Queue()
        """None: nothing more comes."""
        self.is_leaving = False
        self._keep = keep
        self._consumed: list[tuple[AbstractQueue, str]] = []
        """The queues, with the tags of their consumers."""
        self._unsettled = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def begin(self, queue: AbstractQueue) -> None:
        """Consume a queue. The broker ends a consumer whose queue is deleted."""
        underlay = await self._channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(lambda _: self.end())
        self._consumed.append((queue, await queue.consume(partial(self._receive, queue.name))))

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
        self.is_leaving = True
        with translated("cancel a consumer"):
            for queue, tag in self._consumed:
                await queue.cancel(tag)
            # aiormq hands each message to a task, and the last ones may be on their way: a round trip takes longer.
            await self._channel.get_queue(self._consumed[0][0].name, ensure=True)
        # Behind what has come already: the queue's order is kept.
        self.arrived.put_nowait(None)
        await self._idle.wait()
        # A connection is closed without what was written last, an acknowledgement; a channel after it.
        await close_quietly(self._channel)

    async def _receive(self, queue: str, incoming: AbstractIncomingMessage) -> None:
        self._unsettled += 1
        self._idle.clear()
        message = self._keep(from_incoming(incoming))
        # What is not kept is freed now, however many messages are before it.
        incoming.body = b""  # type: ignore[misc]
        self.arrived.put_nowait((queue, incoming, message))
