"""The queues of the in-process broker, and who consumes them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason
from slicebus.proto.topology import Queue

if TYPE_CHECKING:
    from slicebus.sandbox.bus import MemoryBroker


class QueuedMessage:
    """One message in a queue, and how often it was delivered."""

    __slots__ = ("delivered", "message", "number")

    def __init__(self, message: WireMessage, number: int) -> None:
        self.message = message
        self.number = number
        self.delivered = 0


class MemoryQueue:
    """A quorum queue: ready messages in order, and those that consumers hold."""

    def __init__(self, declared: Queue) -> None:
        self.declared = declared
        self.ready: deque[QueuedMessage] = deque()
        self.consumers: list[MemoryConsumer] = []
        self.published = 0

    @property
    def single_active(self) -> bool:
        """Whether one consumer at a time gets messages."""
        return bool(self.declared.arguments.get("x-single-active-consumer"))

    def push(self, message: WireMessage) -> None:
        """Append a message."""
        self.published += 1
        self.ready.append(QueuedMessage(message, self.published))

    def put_back(self, entry: QueuedMessage) -> None:
        """Put a message back where it was: before everything published after it."""
        position = next((i for i, other in enumerate(self.ready) if other.number > entry.number), len(self.ready))
        self.ready.insert(position, entry)

    def is_full(self) -> bool:
        """Whether it takes no more."""
        limit = self.declared.arguments.get("x-max-length")
        return isinstance(limit, int) and len(self.ready) >= limit

    def active_consumers(self) -> "list[MemoryConsumer]":
        """The consumers that get messages now."""
        return self.consumers[:1] if self.single_active else list(self.consumers)


class MemoryDelivery:
    """One message that a consumer holds."""

    def __init__(self, subscription: "MemoryConsumer", entry: QueuedMessage) -> None:
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


class MemoryConsumer:
    """A consumer of one queue."""

    def __init__(
        self,
        broker: "MemoryBroker",
        queue: MemoryQueue,
        *,
        prefetch: int,
        user: str,
        keep: Keep,
        offered: "asyncio.Queue[tuple[MemoryConsumer, QueuedMessage] | None]",
    ) -> None:
        self.broker = broker
        self.queue = queue
        self.user = user
        self.keep = keep
        self.unsettled: dict[QueuedMessage, None] = {}
        self._prefetch = prefetch
        self._offered = offered

    @property
    def has_room(self) -> bool:
        """Whether it is below its prefetch."""
        return len(self.unsettled) < self._prefetch

    def offer(self, entry: QueuedMessage) -> None:
        """Deliver a message to it."""
        self.unsettled[entry] = None
        self._offered.put_nowait((self, entry))

    def settle(self, entry: QueuedMessage) -> bool:
        """Remove a message from those it holds; False when it no longer holds it. Makes room for the next."""
        if entry not in self.unsettled:
            return False
        del self.unsettled[entry]
        self.broker.deliver(self.queue.declared.name)
        return True

    def close(self) -> None:
        """Put everything unsettled back, in order."""
        self.queue.consumers.remove(self)
        for entry in reversed(self.unsettled):
            self.queue.put_back(entry)
        self.unsettled.clear()
        self.broker.deliver(self.queue.declared.name)


class MemorySubscription:
    """A consumer of each of some queues."""

    def __init__(
        self, broker: "MemoryBroker", queues: Sequence[MemoryQueue], *, prefetch: int, user: str, keep: Keep
    ) -> None:
        self._offered: asyncio.Queue[tuple[MemoryConsumer, QueuedMessage] | None] = asyncio.Queue()
        self._closed = False
        self._consumers = [
            MemoryConsumer(broker, queue, prefetch=prefetch, user=user, keep=keep, offered=self._offered)
            for queue in queues
        ]
        for consumer in self._consumers:
            consumer.queue.consumers.append(consumer)
            broker.deliver(consumer.queue.declared.name)

    def close(self) -> None:
        """Put everything unsettled back, in order. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for consumer in self._consumers:
            consumer.close()
        self._offered.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[MemoryDelivery]:
        """Deliveries until it is closed."""
        while not self._closed:
            offered = await self._offered.get()
            if offered is None or self._closed:
                return
            yield MemoryDelivery(*offered)
