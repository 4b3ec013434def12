"""Speaks to RabbitMQ by aio-pika.

Resource handling: one connection; one channel for publishing, one for declaring, one for each subscription and stream
reader. A broken connection closes them all. `LinkKeeper` connects again, and each user opens a new channel.

Error handling: one table translates the errors of aio-pika, aiormq and asyncio. A publish waits for a connection and
for its confirm, both within `confirm_s`. Then it raises a TransientError, and may have been published. The broker
delivers the deliveries of a closed channel again. Settling one here is a no-op.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.retries import repeated
from slicebus.bus.access.address import Access, address_of
from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.rabbitmq.byte_room import ByteRoom
from slicebus.bus.rabbitmq.connector import Connector
from slicebus.bus.rabbitmq.failures import close_quietly, translated
from slicebus.bus.rabbitmq.link import Link, LinkKeeper
from slicebus.bus.rabbitmq.messages import to_message
from slicebus.bus.rabbitmq.rights import refused
from slicebus.bus.rabbitmq.stream import read_on, read_to_end
from slicebus.bus.rabbitmq.subscription import RabbitSubscription
from slicebus.bus.settings import BusSettings
from slicebus.bus.sizes import Keep, check_publishable, cut, limit_of, size_of
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError, NotFoundError, ThrottledError, UnavailableError
from slicebus.proto.rights import Use
from slicebus.proto.topology import Binding, Queue, Topology

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.05, most_s=1.0)


class RabbitBus:
    """Keeps one connection to a broker up until it is closed."""

    def __init__(self, url: str, *, name: str, settings: BusSettings, access: Access = Access()) -> None:  # noqa: B008
        self._settings = settings
        self._connector = Connector(address_of(url, access), access, name=name, settings=settings)
        self._keeper = LinkKeeper(self._connector, name=name, settings=settings)
        self._in_flight = asyncio.Semaphore(settings.in_flight)
        self._bytes_in_flight = ByteRoom(settings.in_flight_bytes)
        self._given_up: set[asyncio.Task[None]] = set()
        self._declaring = asyncio.Lock()
        self._opening = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        settings: BusSettings,
        access: Access = Access(),  # noqa: B008 a frozen value
    ) -> Self:
        """Connect to a broker. Raises UnavailableError, ForbiddenError, and ConfigurationError for a login that cannot
        be read."""
        bus = cls(url, name=name, settings=settings, access=access)
        await bus._keeper.start()
        return bus

    @property
    def user(self) -> str:
        """The login name, which the broker has verified. Every connection of this bus has the same."""
        return self._connector.user

    @property
    def connected(self) -> bool:
        """Whether the connection is up."""
        return self._keeper.is_up

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing from the connection; empty while it does, and while there is none."""
        return self._keeper.blocked

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call back after each connection that follows a lost one."""
        self._keeper.reconnected.append(callback)

    async def declare(self, topology: Topology) -> None:
        """Create what is missing, one declaration at a time: a refusal closes its channel."""
        async with self._declaring, self._channel("declare") as channel:
            for exchange in topology.exchanges:
                await channel.declare_exchange(
                    exchange.name, aio_pika.ExchangeType.TOPIC, durable=True, arguments=dict(exchange.arguments)
                )
            for queue in topology.queues:
                if not (queue.kept and await self._exists(queue)):
                    await self._declare_queue(channel, queue)
            for binding in topology.bindings:
                bound_queue = await channel.get_queue(binding.queue, ensure=False)
                await bound_queue.bind(binding.exchange, binding.routing_key)

    async def unbind(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings."""
        async with self._declaring, self._channel("unbind") as channel:
            for binding in bindings:
                bound_queue = await channel.get_queue(binding.queue, ensure=False)
                await bound_queue.unbind(binding.exchange, binding.routing_key)

    async def check(self, topology: Topology) -> Sequence[str]:
        """The missing or different parts. Declaring a queue as it should be compares it and changes nothing."""
        problems = []
        for exchange in topology.exchanges:
            try:
                async with self._channel("check") as channel:
                    await channel.get_exchange(exchange.name, ensure=True)
            except NotFoundError:
                problems.append(f"exchange {exchange.name} is missing")
        for queue in topology.queues:
            try:
                async with self._channel("check") as channel:
                    await channel.get_queue(queue.name, ensure=True)
                async with self._channel("check") as channel:
                    await self._declare_queue(channel, queue)
            except NotFoundError:
                problems.append(f"queue {queue.name} is missing")
            except InvalidError as error:
                problems.append(str(error))
        return problems

    async def refused(self, uses: Iterable[Use]) -> Sequence[Use] | None:
        """The uses that the broker refuses to this user."""
        return await refused(self, uses)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        """Return with the broker's confirm. Concurrent calls share the channel and are pipelined.

        After a broken connection the message is published again on the next one: it may be there twice.
        """
        check_publishable(exchange, message, most_bytes=self._settings.message_bytes)
        began_s = asyncio.get_running_loop().time()
        async with self._in_flight, self._bytes_in_flight.hold(size_of(message)):
            try:
                async with asyncio.timeout(self._settings.confirm_s):
                    await repeated(lambda: self._publish_once(exchange, message), on=UnavailableError, wait=_BACKOFF)
            except TimeoutError as error:
                if self.connected:
                    self._give_up_channel(began_s)
                    text = "the broker confirms nothing: it may have blocked publishers because memory or disk is short"
                    raise ThrottledError(text) from error
                raise UnavailableError(f"no connection within {self._settings.confirm_s:.0f} s") from error

    @asynccontextmanager
    async def subscribe(
        self, *queues: str, prefetch: int, keep: Keep | None = None
    ) -> AsyncIterator[RabbitSubscription]:
        """Consume queues on one channel until the context is left."""
        async with self._channel("subscribe") as channel:
            for queue in queues:
                await channel.get_queue(queue, ensure=True)
        kept = keep or partial(cut, most_bytes=limit_of(queues[0], self._settings.message_bytes))
        subscription = RabbitSubscription(self, queues, prefetch=prefetch, keep=kept, answer_s=self._settings.confirm_s)
        try:
            yield subscription
        finally:
            await subscription.close()

    async def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        """Read records from an offset on; without `follow` to where the stream ended when the reading began. Raises
        UnavailableError where the broker does not send all of that."""
        if follow:
            position: StreamOffset = offset
            while not self.closed:
                async with self._channel("read") as channel:
                    async for record in read_on(channel, stream, position):
                        position = record.offset + 1
                        yield record
            return
        async with self._channel("read") as channel, self._channel("read") as ahead:
            async for record in read_to_end(channel, ahead, stream, offset):
                yield record

    async def depth(self, queue: str) -> QueueDepth:
        """Read the depth of a queue by a passive declaration."""
        async with self._channel("depth") as channel:
            declared = await channel.declare_queue(queue, passive=True)
            result = declared.declaration_result
            return QueueDepth(ready=result.message_count or 0, consumers=result.consumer_count or 0)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._keeper.aclose()

    async def wait_up(self) -> Link:
        """The connection, as soon as there is one."""
        return await self._keeper.wait_up()

    async def open_channel(self, link: Link | None = None, *, confirms: bool = False) -> AbstractChannel:
        """A new channel on a connection; by default on the present one."""
        link = link or await self.wait_up()
        with translated("open a channel"):
            # aiormq waits for ever for a connection that was lost while the broker blocked it. `connect_s` of a role
            # has no end.
            async with asyncio.timeout(min(self._settings.connect_s, self._settings.confirm_s)):
                channel = link.connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
                await channel.initialize()
        return channel

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._keeper.closed

    @asynccontextmanager
    async def _channel(self, action: str) -> AsyncIterator[AbstractChannel]:
        with translated(action):
            async with asyncio.timeout(self._settings.confirm_s):
                link = await self.wait_up()
        with link.used():
            with translated(action):
                async with asyncio.timeout(self._settings.confirm_s):
                    channel = await self.open_channel(link)
            try:
                with translated(action):
                    yield channel
            finally:
                await close_quietly(channel)

    async def _publish_once(self, exchange: str, message: WireMessage) -> None:
        link = await self.wait_up()
        with link.used():
            channel = await self._publish_channel(link)
            with translated(f"publish {message.routing_key}"):
                # `ensure=False`: asking for the exchange would cost a round trip for every message.
                target = await channel.get_exchange(exchange, ensure=False)
                await target.publish(to_message(message), message.routing_key, mandatory=True)

    async def _publish_channel(self, link: Link) -> AbstractChannel:
        # One caller opens it for all that wait: after a reconnect these may be hundreds.
        async with self._opening:
            if link.publishing is None or link.publishing.is_closed:
                link.publishing = await self.open_channel(link, confirms=True)
                link.publishing_since_s = asyncio.get_running_loop().time()
            return link.publishing

    def _give_up_channel(self, unconfirmed_since_s: float) -> None:
        """Publish on another channel from now on. A queue that has lost its leader may never confirm on this one. What
        else is under way there is published again."""
        link = self._keeper.link
        if link is not None and link.publishing is not None and link.publishing_since_s <= unconfirmed_since_s:
            closing = asyncio.create_task(close_quietly(link.publishing), name="bus:given-up channel")
            link.publishing = None
            self._given_up.add(closing)
            closing.add_done_callback(self._given_up.discard)

    async def _exists(self, queue: Queue) -> bool:
        try:
            async with self._channel("declare") as channel:
                await channel.get_queue(queue.name, ensure=True)
        except NotFoundError:
            return False
        return True

    async def _declare_queue(self, channel: AbstractChannel, queue: Queue) -> None:
        await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))
