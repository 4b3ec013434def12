"""An in-process broker with the guarantees of RabbitMQ's quorum queues and streams.

The demo and tests use it. It has topic exchanges, confirms, mandatory routing, verified users, delivery limits,
dead-lettering, single active consumers and streams by offset and time; contract tests compare it with the real one. It
is deterministic: no threads, no randomness, and a clock only for the time of stream records.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import ClassVar

import msgspec

from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.dead_letter_headers import dead_by_broker, dead_copy
from slicebus.bus.settings import BusSettings
from slicebus.bus.sizes import Keep, check_publishable, cut, limit_of
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from slicebus.proto.rights import Use
from slicebus.proto.topology import DEAD, Binding, Queue, Topology
from slicebus.sandbox.streams import Stream


class _Entry:
    """One message in a queue, and how often it was delivered."""

    __slots__ = ("delivered", "message", "number")

    def __init__(self, message: WireMessage, number: int) -> None:
        self.message = message
        self.number = number
        self.delivered = 0


class _Queue:
    """A quorum queue: ready messages in order, and those that consumers hold."""

    def __init__(self, declared: Queue) -> None:
        self.declared = declared
        self.ready: deque[_Entry] = deque()
        self.consumers: list[MemorySubscription] = []
        self.published = 0

    @property
    def single_active(self) -> bool:
        return bool(self.declared.arguments.get("x-single-active-consumer"))

    def push(self, message: WireMessage) -> None:
        self.published += 1
        self.ready.append(_Entry(message, self.published))

    def put_back(self, entry: _Entry) -> None:
        """Put a message back where it was: before everything published after it."""
        position = next((i for i, other in enumerate(self.ready) if other.number > entry.number), len(self.ready))
        self.ready.insert(position, entry)

    def is_full(self) -> bool:
        limit = self.declared.arguments.get("x-max-length")
        return isinstance(limit, int) and len(self.ready) >= limit

    def active_consumers(self) -> "list[MemorySubscription]":
        return self.consumers[:1] if self.single_active else list(self.consumers)


class MemoryBroker:
    """The broker. Connections that give the same name share one."""

    _named: ClassVar[dict[str, "MemoryBroker"]] = {}

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self.exchanges: set[str] = set()
        self.queues: dict[str, _Queue] = {}
        self.streams: dict[str, Stream] = {}
        self.bindings: dict[Binding, None] = {}

    @classmethod
    def named(cls, name: str) -> "MemoryBroker":
        """The in-process broker of that name; created on first use."""
        return cls._named.setdefault(name, cls())

    @classmethod
    def forget(cls, name: str) -> None:
        """Forget a broker and its content. Open connections keep it."""
        cls._named.pop(name, None)

    def declare(self, topology: Topology) -> None:
        """Create what is missing. Raises InvalidError for a queue that exists with other arguments."""
        self.exchanges.update(exchange.name for exchange in topology.exchanges)
        for queue in topology.queues:
            if not queue.kept and (difference := self._difference(queue)) is not None:
                raise InvalidError(difference)
            if queue.arguments.get("x-queue-type") == "stream":
                self.streams.setdefault(queue.name, Stream(queue))
            else:
                self.queues.setdefault(queue.name, _Queue(queue))
        self.bindings |= dict.fromkeys(topology.bindings)

    def problems(self, topology: Topology) -> list[str]:
        """The missing or different parts of a topology."""
        missing = [
            f"exchange {exchange.name} is missing"
            for exchange in topology.exchanges
            if exchange.name not in self.exchanges
        ]
        for queue in topology.queues:
            if queue.name not in self.queues and queue.name not in self.streams:
                missing.append(f"queue {queue.name} is missing")
            elif (difference := self._difference(queue)) is not None:
                missing.append(difference)
        return missing

    def publish(self, exchange: str, message: WireMessage) -> None:
        """Route a message. Raises NotFoundError when nothing matches, UnavailableError when a queue is full."""
        if exchange not in self.exchanges:
            raise NotFoundError(f"no exchange {exchange}")
        names = dict.fromkeys(
            binding.queue
            for binding in self.bindings
            if binding.exchange == exchange and _matches(binding.routing_key, message.routing_key)
        )
        if not names:
            raise NotFoundError(f"no queue for {message.routing_key} at exchange {exchange}")
        full = [name for name in names if name in self.queues and self.queues[name].is_full()]
        if full:
            raise UnavailableError(f"queue {full[0]} is full")
        for name in names:
            if name in self.streams:
                self.streams[name].append(message, self._clock())
            else:
                self.queues[name].push(message)
                self.deliver(name)

    def deliver(self, name: str) -> None:
        """Deliver ready messages to consumers below their prefetch."""
        queue = self.queues[name]
        while queue.ready:
            free = [consumer for consumer in queue.active_consumers() if consumer.has_room]
            if not free:
                return
            entry = queue.ready.popleft()
            limit = queue.declared.arguments.get("x-delivery-limit")
            if isinstance(limit, int) and entry.delivered > limit:
                self._dead_letter(queue, entry.message)
                continue
            entry.delivered += 1
            min(free, key=lambda consumer: len(consumer.unsettled)).offer(entry)

    def dead_letter(self, queue: str, message: WireMessage, reason: DeadReason, detail: str, *, by: str) -> None:
        """Publish a user's copy of a message to the dead-letter exchange."""
        self.publish(DEAD, dead_copy(message, queue=queue, reason=reason, detail=detail, at=self._clock(), by=by))

    def _dead_letter(self, queue: _Queue, message: WireMessage) -> None:
        """Dead-letter a message at its delivery limit, or drop it where the queue has no dead-letter exchange."""
        if (exchange := queue.declared.arguments.get("x-dead-letter-exchange")) is not None:
            copy = dead_by_broker(message, queue=queue.declared.name, detail="delivery_limit", at=self._clock())
            self.publish(str(exchange), copy)

    def _difference(self, queue: Queue) -> str | None:
        existing = self.queues.get(queue.name) or self.streams.get(queue.name)
        if existing is None or existing.declared == queue:
            return None
        return f"queue {queue.name} exists with {existing.declared.arguments}, not with {queue.arguments}"


class MemoryDelivery:
    """One message that a consumer holds."""

    def __init__(self, subscription: "MemorySubscription", entry: _Entry) -> None:
        self._subscription = subscription
        self._entry = entry
        self._message = subscription.keep(entry.message)

    @property
    def message(self) -> WireMessage:
        """The message."""
        return self._message

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._subscription.queue.declared.name

    @property
    def redelivered(self) -> int:
        """How often it was delivered before this time."""
        return self._entry.delivered - 1

    @property
    def held(self) -> bool:
        """Whether this consumer still holds it."""
        return self._entry in self._subscription.unsettled

    async def ack(self) -> None:
        """Settle it."""
        self._subscription.settle(self._entry)

    async def requeue(self) -> None:
        """Put it back."""
        if self._subscription.settle(self._entry):
            self._subscription.queue.put_back(self._entry)
            self._subscription.broker.deliver(self.queue)

    async def dead_letter(self, reason: DeadReason, detail: str) -> None:
        """Move it to the dead-letter queue."""
        if self.held:
            self._subscription.broker.dead_letter(self.queue, self.message, reason, detail, by=self._subscription.user)
            self._subscription.settle(self._entry)


class MemorySubscription:
    """A consumer of one queue."""

    def __init__(self, broker: MemoryBroker, queue: _Queue, *, prefetch: int, user: str, keep: Keep) -> None:
        self.broker = broker
        self.queue = queue
        self.user = user
        self.keep = keep
        self.unsettled: dict[_Entry, None] = {}
        self._prefetch = prefetch
        self._offered: asyncio.Queue[_Entry | None] = asyncio.Queue()
        self._closed = False

    @property
    def has_room(self) -> bool:
        """Whether it is below its prefetch."""
        return len(self.unsettled) < self._prefetch

    def offer(self, entry: _Entry) -> None:
        """Deliver a message to it."""
        self.unsettled[entry] = None
        self._offered.put_nowait(entry)

    def settle(self, entry: _Entry) -> bool:
        """Remove a message from those it holds; False when it no longer holds it. Makes room for the next."""
        if entry not in self.unsettled:
            return False
        del self.unsettled[entry]
        self.broker.deliver(self.queue.declared.name)
        return True

    def close(self) -> None:
        """Put everything unsettled back, in order. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.queue.consumers.remove(self)
        for entry in reversed(self.unsettled):
            self.queue.put_back(entry)
        self.unsettled.clear()
        self._offered.put_nowait(None)
        self.broker.deliver(self.queue.declared.name)

    async def __aiter__(self) -> AsyncIterator[MemoryDelivery]:
        """Deliveries until it is closed."""
        while not self._closed:
            entry = await self._offered.get()
            if entry is None or self._closed:
                return
            yield MemoryDelivery(self, entry)


class MemoryBus:
    """A connection to an in-process broker."""

    def __init__(self, broker: MemoryBroker, *, user: str, settings: BusSettings = BusSettings()) -> None:  # noqa: B008 a frozen value
        self._broker = broker
        self._user = user
        self._settings = settings
        self._subscriptions: set[MemorySubscription] = set()
        self._open = True

    @property
    def user(self) -> str:
        """The connection's user."""
        return self._user

    @property
    def connected(self) -> bool:
        """Whether it is open."""
        return self._open

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Never call back: this connection is lost only for good."""

    async def declare(self, topology: Topology) -> None:
        """Create what is missing."""
        self._check_open()
        self._broker.declare(topology)

    async def unbind(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings."""
        self._check_open()
        for binding in bindings:
            self._broker.bindings.pop(binding, None)

    async def check(self, topology: Topology) -> Sequence[str]:
        """The missing or different parts."""
        self._check_open()
        return self._broker.problems(topology)

    async def refused(self, uses: Iterable[Use]) -> Sequence[Use] | None:
        """None: every user may do everything here."""
        self._check_open()
        return None

    async def publish(self, exchange: str, message: WireMessage) -> None:
        """Route a message to every matching queue."""
        self._check_open()
        if message.user_id is not None and message.user_id != self._user:
            raise ForbiddenError(f"user_id {message.user_id!r} is not the connection's user {self._user!r}")
        check_publishable(exchange, message, most_bytes=self._settings.message_bytes)
        # A broker is never as fast as a function call: other tasks run first.
        await asyncio.sleep(0)
        self._broker.publish(exchange, msgspec.structs.replace(message))

    @asynccontextmanager
    async def subscribe(
        self, queue: str, *, prefetch: int, keep: Keep | None = None
    ) -> AsyncIterator[MemorySubscription]:
        """Consume a queue until the context is left."""
        self._check_open()
        if queue not in self._broker.queues:
            raise NotFoundError(f"no queue {queue}")
        kept = keep or partial(cut, most_bytes=limit_of(queue, self._settings.message_bytes))
        subscription = MemorySubscription(
            self._broker, self._broker.queues[queue], prefetch=prefetch, user=self._user, keep=kept
        )
        subscription.queue.consumers.append(subscription)
        self._subscriptions.add(subscription)
        self._broker.deliver(queue)
        try:
            yield subscription
        finally:
            subscription.close()
            self._subscriptions.discard(subscription)

    async def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        """Records from an offset on."""
        self._check_open()
        if stream not in self._broker.streams:
            raise NotFoundError(f"no stream {stream}")
        log = self._broker.streams[stream]
        position = log.start(offset)
        while True:
            grew = log.grew
            for record in log.since(position):
                position = record.offset + 1
                yield record
            if not follow:
                return
            if position >= log.next_offset:
                await grew.wait()

    async def depth(self, queue: str) -> QueueDepth:
        """The depth of a queue."""
        if queue in self._broker.streams:
            return QueueDepth(ready=len(self._broker.streams[queue].records), consumers=0)
        if queue not in self._broker.queues:
            raise NotFoundError(f"no queue {queue}")
        state = self._broker.queues[queue]
        return QueueDepth(ready=len(state.ready), consumers=len(state.consumers))

    async def aclose(self) -> None:
        """Close every subscription."""
        self._open = False
        for subscription in list(self._subscriptions):
            subscription.close()

    def _check_open(self) -> None:
        if not self._open:
            raise UnavailableError("the connection is closed")


@lru_cache(maxsize=4096)
def _matches(pattern: str, key: str) -> bool:
    """Whether a binding key matches: `*` is one word, `#` is any number of them."""

    def match(patterns: Sequence[str], words: Sequence[str]) -> bool:
        if not patterns:
            return not words
        head, rest = patterns[0], patterns[1:]
        if head == "#":
            return any(match(rest, words[count:]) for count in range(len(words) + 1))
        return bool(words) and head in ("*", words[0]) and match(rest, words[1:])

    return match(pattern.split("."), key.split("."))
