"""An in-process broker with the guarantees of RabbitMQ's quorum queues and streams.

The demo and tests use it. It has topic exchanges, confirms, mandatory routing, verified users, delivery limits,
dead-lettering, single active consumers and streams by offset and time; contract tests compare it with the real one. It
is deterministic: no threads, no randomness, and a clock only for the time of stream records.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import ClassVar

import msgspec

from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.dead_letters.headers import dead_by_broker, dead_copy
from slicebus.bus.settings import BusSettings
from slicebus.bus.sizes import Keep, check_publishable, cut, limit_of
from slicebus.journal.streams import merged
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import (
    DeadReason,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from slicebus.proto.rights import Use
from slicebus.proto.topology import JOURNALS, Binding, Queue, Topology, dead_letters_of
from slicebus.sandbox.queues import MemoryQueue, MemorySubscription
from slicebus.sandbox.streams import Stream

_ALARM_S = 0.1
"""How often a publisher that is blocked looks whether the alarm is over."""


class MemoryBroker:
    """The broker. Connections that give the same name share one."""

    _named: ClassVar[dict[str, "MemoryBroker"]] = {}

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self.exchanges: dict[str, str] = {}
        """The alternate of each, empty for none."""
        self.queues: dict[str, MemoryQueue] = {}
        self.streams: dict[str, Stream] = {}
        self.bindings: dict[Binding, None] = {}
        self.alarm = ""
        """Why it takes nothing from publishers; empty while it does."""

    @classmethod
    def named(cls, name: str) -> "MemoryBroker":
        """The in-process broker of that name; created on first use."""
        return cls._named.setdefault(name, cls())

    @classmethod
    def forget(cls, name: str) -> None:
        """Forget a broker and its content. Open connections keep it."""
        cls._named.pop(name, None)

    @property
    def journal(self) -> list[Record]:
        """Both streams of the journal, as they are read together."""
        return list(merged(*(self.streams[name].records for name in JOURNALS if name in self.streams)))

    def declare(self, topology: Topology) -> None:
        """Create what is missing. Raises InvalidError for what exists with other arguments."""
        for exchange in topology.exchanges:
            if self.exchanges.setdefault(exchange.name, exchange.alternate) != exchange.alternate:
                raise InvalidError(f"exchange {exchange.name} exists with another alternate")
        for queue in topology.queues:
            if not queue.kept and (difference := self._difference(queue)) is not None:
                raise InvalidError(difference)
            if queue.arguments.get("x-queue-type") == "stream":
                self.streams.setdefault(queue.name, Stream(queue))
            else:
                self.queues.setdefault(queue.name, MemoryQueue(queue))
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
        names = self._routed(exchange, message.routing_key)
        if not names and (alternate := self.exchanges[exchange]) in self.exchanges:
            names = self._routed(alternate, message.routing_key)
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

    def _routed(self, exchange: str, key: str) -> dict[str, None]:
        return dict.fromkeys(
            binding.queue
            for binding in self.bindings
            if binding.exchange == exchange and _matches(binding.routing_key, key)
        )

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
        """Publish a user's copy of a message to the dead-letter exchange of its queue."""
        copy = dead_copy(message, queue=queue, reason=reason, detail=detail, at=self._clock(), by=by)
        self.publish(dead_letters_of(queue), copy)

    def _dead_letter(self, queue: MemoryQueue, message: WireMessage) -> None:
        """Dead-letter a message at its delivery limit, or drop it where the queue has no dead-letter exchange."""
        if (exchange := queue.declared.arguments.get("x-dead-letter-exchange")) is not None:
            copy = dead_by_broker(message, queue=queue.declared.name, detail="delivery_limit", at=self._clock())
            self.publish(str(exchange), copy)

    def _difference(self, queue: Queue) -> str | None:
        existing = self.queues.get(queue.name) or self.streams.get(queue.name)
        if existing is None or existing.declared == queue:
            return None
        return f"queue {queue.name} exists with {existing.declared.arguments}, not with {queue.arguments}"


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

    @property
    def blocked(self) -> str:
        """The alarm of the broker: it says so to everybody, and not only to who has published."""
        return self._broker.alarm

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
        if self._broker.alarm:
            await self._wait_for_the_end_of_the_alarm()
        # A broker is never as fast as a function call: other tasks run first.
        await asyncio.sleep(0)
        self._broker.publish(exchange, msgspec.structs.replace(message))

    @asynccontextmanager
    async def subscribe(
        self, *queues: str, prefetch: int, keep: Keep | None = None
    ) -> AsyncIterator[MemorySubscription]:
        """Consume queues until the context is left."""
        self._check_open()
        for queue in queues:
            if queue not in self._broker.queues:
                raise NotFoundError(f"no queue {queue}")
        kept = keep or partial(cut, most_bytes=limit_of(queues[0], self._settings.message_bytes))
        found = [self._broker.queues[queue] for queue in queues]
        subscription = MemorySubscription(self._broker, found, prefetch=prefetch, user=self._user, keep=kept)
        self._subscriptions.add(subscription)
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

    async def _wait_for_the_end_of_the_alarm(self) -> None:
        """Raises ThrottledError where it does not come in the time for a confirm."""
        try:
            async with asyncio.timeout(self._settings.confirm_s):
                while self._broker.alarm:  # noqa: ASYNC110 a test only sets a text
                    await asyncio.sleep(_ALARM_S)
        except TimeoutError as error:
            raise ThrottledError(f"the broker confirms nothing: {self._broker.alarm}") from error

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
