"""RabbitMQ by aio-pika.

Resource handling: one connection; one channel for publishing, one for declaring, one for each subscription and stream
reader. A broken connection closes them all; the supervisor connects again, and each user opens a new channel.

Error handling: one table translates the errors of aio-pika, aiormq and asyncio. A publish waits for a connection and
for its confirm, both within `confirm_s`; then it raises a TransientError, and may have been published. The broker
delivers the deliveries of a closed channel again; settling one here is a no-op.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
    stop_never,
)

from slicebus.ambient.backoff import Backoff
from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.rabbitmq_failures import close_quietly, translated
from slicebus.bus.rabbitmq_messages import RabbitDelivery, from_incoming, to_message
from slicebus.bus.settings import BusSettings
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ForbiddenError, InvalidError, NotFoundError, ThrottledError, UnavailableError
from slicebus.proto.topology import Queue, Topology

_log = structlog.get_logger()
_SUBSCRIBING = Backoff(first_s=0.25, most_s=1.0)
_ATTEMPT_S = 10.0
"""One attempt to connect: TCP, TLS and login."""
_CLOSE_S = 5.0
_STREAM_PREFETCH = 200
"""A stream's consumer needs a prefetch; without acknowledgements the broker delivers no more than that."""
_STREAM_IDLE_S = 1.0
"""Without a record for this long, a reader takes the end of a stream as reached."""


class RabbitBus:
    """One connection to a broker, kept up until it is closed."""

    def __init__(self, url: str, *, name: str, settings: BusSettings) -> None:
        self._url = url
        self._name = name
        self._settings = settings
        self._connection: AbstractConnection | None = None
        self._publishing: AbstractChannel | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._closed = False
        self._in_flight = asyncio.Semaphore(settings.in_flight)
        self._declaring = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._supervisor: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, url: str, *, name: str, settings: BusSettings) -> Self:
        """A connection that is up. Raises UnavailableError or ForbiddenError."""
        bus = cls(url, name=name, settings=settings)
        await bus._connect(within_s=settings.connect_s)
        bus._supervisor = asyncio.create_task(bus._supervise(), name=f"bus:{name}")
        return bus

    @property
    def user(self) -> str:
        """The login name, which the broker has verified."""
        return unquote(urlsplit(self._url).username or "guest")

    @property
    def connected(self) -> bool:
        """Whether the connection is up."""
        return self._up.is_set()

    async def declare(self, topology: Topology) -> None:
        """Create what is missing. One declaration at a time: a refusal closes its channel."""
        async with self._declaring, self._channel("declare") as channel:
            for exchange in topology.exchanges:
                await channel.declare_exchange(exchange.name, aio_pika.ExchangeType.TOPIC, durable=True)
            for queue in topology.queues:
                if not (queue.kept and await self._exists(queue)):
                    await self._declare_queue(channel, queue)
            for binding in topology.bindings:
                found = await channel.get_queue(binding.queue, ensure=False)
                await found.bind(binding.exchange, binding.routing_key)

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

    async def publish(self, exchange: str, message: WireMessage) -> None:
        """Return with the broker's confirm. Concurrent calls share the channel and are pipelined.

        After a broken connection the message is published again on the next one: it may be there twice.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(UnavailableError), wait=Backoff(first_s=0.05, most_s=1.0)
        )
        async with self._in_flight:
            try:
                async with asyncio.timeout(self._settings.confirm_s):
                    await attempts(self._publish_once, exchange, message)
            except TimeoutError as error:
                if self.connected:
                    text = "the broker confirms nothing: it may have blocked publishers because memory or disk is short"
                    raise ThrottledError(text) from error
                raise UnavailableError(f"no connection within {self._settings.confirm_s:.0f} s") from error

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> AsyncIterator["RabbitSubscription"]:
        """Consume a queue until the context is left."""
        async with self._channel("subscribe") as channel:
            await channel.get_queue(queue, ensure=True)
        subscription = RabbitSubscription(self, queue, prefetch=prefetch)
        try:
            yield subscription
        finally:
            await subscription.close()

    async def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        """Records from an offset on. Without `follow` it ends at the first record that is newer than the call, or after
        a second without any."""
        if follow:
            position: StreamOffset = offset
            while not self._closed:
                async with self._channel("read") as channel:
                    async for record in self._read(channel, stream, position):
                        position = record.offset + 1
                        yield record
            return
        async with self._channel("read") as channel, self._channel("read") as ahead:
            end = await _end_of(ahead, stream)
            async for record in self._read(channel, stream, offset, until_silent=True):
                if end.done() and record.offset >= end.result():
                    return
                yield record
            if channel.is_closed:
                raise UnavailableError(f"the connection was lost while {stream} was read")

    async def depth(self, queue: str) -> QueueDepth:
        """The depth of a queue, from a passive declaration."""
        async with self._channel("depth") as channel:
            found = await channel.declare_queue(queue, passive=True)
            result = found.declaration_result
            return QueueDepth(ready=result.message_count or 0, consumers=result.consumer_count or 0)

    async def aclose(self) -> None:
        """Close the connection."""
        self._closed = True
        self._down.set()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        if self._connection is not None:
            # A peer that no longer answers must not delay the end of the process.
            with suppress(Exception), translated("close"):
                async with asyncio.timeout(_CLOSE_S):
                    await self._connection.close()

    async def wait_up(self) -> AbstractConnection:
        """The connection, as soon as there is one."""
        while True:
            await self._up.wait()
            if self._connection is not None and not self._connection.is_closed:
                return self._connection
            self._up.clear()
            self._down.set()

    async def open_channel(self, *, confirms: bool = False) -> AbstractChannel:
        """A new channel on the present connection."""
        connection = await self.wait_up()
        with translated("open a channel"):
            channel = connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
            await channel.initialize(timeout=self._settings.connect_s)
        return channel

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called."""
        return self._closed

    @asynccontextmanager
    async def _channel(self, what: str) -> AsyncIterator[AbstractChannel]:
        with translated(what):
            async with asyncio.timeout(self._settings.confirm_s):
                channel = await self.open_channel()
        try:
            with translated(what):
                yield channel
        finally:
            await close_quietly(channel)

    async def _publish_once(self, exchange: str, message: WireMessage) -> None:
        channel = await self._publish_channel()
        with translated(f"publish {message.routing_key}"):
            # `ensure=False`: asking for the exchange would cost a round trip for every message.
            target = await channel.get_exchange(exchange, ensure=False)
            await target.publish(to_message(message), message.routing_key, mandatory=True)

    async def _publish_channel(self) -> AbstractChannel:
        # One caller opens it for all that wait: after a reconnect these may be hundreds.
        async with self._opening:
            if self._publishing is None or self._publishing.is_closed:
                self._publishing = await self.open_channel(confirms=True)
            return self._publishing

    async def _exists(self, queue: Queue) -> bool:
        try:
            async with self._channel("declare") as channel:
                await channel.get_queue(queue.name, ensure=True)
        except NotFoundError:
            return False
        return True

    async def _declare_queue(self, channel: AbstractChannel, queue: Queue) -> None:
        await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments))

    async def _read(
        self, channel: AbstractChannel, stream: str, offset: StreamOffset, *, until_silent: bool = False
    ) -> AsyncIterator[Record]:
        await channel.set_qos(prefetch_count=_STREAM_PREFETCH)
        queue = await channel.get_queue(stream, ensure=True)
        incoming: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        start: Any = offset.astimezone() if isinstance(offset, datetime) else offset
        await queue.consume(incoming.put, arguments={"x-stream-offset": start})
        first = offset if isinstance(offset, int) else 0
        while not self._closed:
            try:
                # Not wait_for: in Python 3.11 that loses a cancellation that comes together with a message.
                async with asyncio.timeout(_STREAM_IDLE_S):
                    message = await incoming.get()
            except TimeoutError:
                if until_silent or channel.is_closed:
                    return
                continue
            await message.ack()
            number = _stream_offset(message)
            # The broker starts at the beginning of the chunk that has the offset.
            if number >= first:
                yield Record(offset=number, message=from_incoming(message), timestamp=message.timestamp)

    async def _connect(self, *, within_s: float | None) -> None:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(UnavailableError),
            wait=Backoff(first_s=0.2, most_s=self._settings.reconnect_most_s),
            stop=stop_after_delay(within_s) if within_s else stop_never,
            before_sleep=self._log_attempt,
            reraise=True,
        )
        await attempts(self._connect_once)

    def _log_attempt(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("bus.unreachable", name=self._name, attempt=state.attempt_number, error=str(error))

    async def _connect_once(self) -> None:
        with translated(f"connect to {urlsplit(self._url).hostname}"):
            connection = await aio_pika.connect(
                self._url,
                timeout=min(self._settings.connect_s, _ATTEMPT_S),
                client_properties={"connection_name": self._name},
                heartbeat=None if "heartbeat" in parse_qs(urlsplit(self._url).query) else self._settings.heartbeat_s,
            )
        connection.close_callbacks.add(self._lost)
        self._connection, self._publishing = connection, None
        self._down.clear()
        self._up.set()

    def _lost(self, _: Any, error: BaseException | None) -> None:
        self._up.clear()
        self._down.set()
        if not self._closed:
            _log.warning("bus.lost", name=self._name, error=str(error))

    async def _supervise(self) -> None:
        while not self._closed:
            await self._down.wait()
            if self._closed:
                return
            try:
                await self._connect(within_s=None)
            except ForbiddenError as error:
                # Users and permissions may follow: a restored broker starts before its definitions are loaded.
                _log.error("bus.refused", name=self._name, error=str(error))
                await asyncio.sleep(self._settings.reconnect_most_s)
                continue
            _log.info("bus.reconnected", name=self._name)


async def _end_of(channel: AbstractChannel, stream: str) -> asyncio.Future[int]:
    """The offset of the first record that is published from now on; set when that comes."""
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def goes_on(message: AbstractIncomingMessage) -> None:
        if not end.done():
            end.set_result(_stream_offset(message))

    await channel.set_qos(prefetch_count=1)
    queue = await channel.get_queue(stream, ensure=True)
    await queue.consume(goes_on, arguments={"x-stream-offset": "next"})
    return end


def _stream_offset(message: AbstractIncomingMessage) -> int:
    return int(message.headers["x-stream-offset"])  # type: ignore[arg-type]


class RabbitSubscription:
    """A consumer that outlives its channels."""

    def __init__(self, bus: RabbitBus, queue: str, *, prefetch: int) -> None:
        self._bus = bus
        self._queue = queue
        self._prefetch = prefetch
        self._closing = asyncio.Event()
        self._channel: AbstractChannel | None = None

    async def __aiter__(self) -> AsyncIterator[RabbitDelivery]:
        """Deliveries until it is closed, over as many connections as it takes."""
        failures = 0
        while not (self._closing.is_set() or self._bus.closed):
            try:
                async for message, channel in self._consume():
                    failures = 0
                    yield RabbitDelivery(self._bus, message, channel, queue=self._queue)
            except (UnavailableError, NotFoundError) as error:
                # While a broker is restored, a queue may be missing for a moment.
                _log.warning("subscription.interrupted", queue=self._queue, error=str(error))
                failures += 1
                await asyncio.sleep(_SUBSCRIBING.pause_s(failures))

    async def close(self) -> None:
        """Close the channel; the broker delivers unsettled messages again."""
        self._closing.set()
        if self._channel is not None:
            await close_quietly(self._channel)

    async def _consume(self) -> AsyncIterator[tuple[AbstractIncomingMessage, AbstractChannel]]:
        channel = await self._bus.open_channel()
        self._channel = channel
        incoming: asyncio.Queue[AbstractIncomingMessage | None] = asyncio.Queue()
        channel.close_callbacks.add(lambda *_: incoming.put_nowait(None))
        with translated(f"consume {self._queue}"):
            await channel.set_qos(prefetch_count=self._prefetch)
            queue = await channel.get_queue(self._queue, ensure=True)
            await queue.consume(incoming.put)
        try:
            while True:
                message = await incoming.get()
                if message is None or self._closing.is_set():
                    return
                yield message, channel
        finally:
            await close_quietly(channel)
