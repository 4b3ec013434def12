"""Defines the interface of a bus, and what it guarantees.

Delivery is at least once. Within one queue deliveries start in publish order. A delivery that was put back comes again,
with `redelivered` counted up, before or after its neighbours. Only the caller acknowledges.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason
from slicebus.proto.rights import Use
from slicebus.proto.topology import Binding, Topology

StreamOffset = int | datetime | Literal["first", "last", "next"]
"""The start of a read of a stream: a record's offset, a time, or one of RabbitMQ's words."""


class Record(msgspec.Struct, frozen=True):
    """One message of a stream."""

    offset: int
    message: WireMessage
    timestamp: datetime | None
    """The time from the broker or the publisher, in UTC."""


class QueueDepth(msgspec.Struct, frozen=True):
    """The number of ready messages and of consumers of a queue."""

    ready: int
    consumers: int


class Delivery(Protocol):
    """One message that a consumer holds, and settles exactly once.

    After its connection has broken, settling does nothing: the broker delivers the message again.
    """

    @property
    def message(self) -> WireMessage:
        """The message."""

    @property
    def queue(self) -> str:
        """The queue that it came from."""

    @property
    def redelivered(self) -> int:
        """How often it was delivered before this time."""

    @property
    def held(self) -> bool:
        """Whether this consumer still holds it: it is unsettled, and its connection has not broken."""

    async def ack(self) -> None:
        """Settle it: the effect is durable."""

    async def requeue(self) -> None:
        """Put it back, to be delivered again until the queue's delivery limit dead-letters it."""

    async def dead_letter(self, reason: DeadReason, detail: str) -> None:
        """Move it to the dead-letter queue with the reason in its headers; settled once the broker has confirmed."""


class Subscription(Protocol):
    """A running consumer of one queue, or of several. Iterating ends when the subscription is closed, or with
    NotFoundError when a queue has gone."""

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """Iterate over deliveries, at most `prefetch` of each queue unsettled at a time."""


class Bus(Protocol):
    """A connection to a broker. It reconnects on its own; subscriptions go on after a reconnect."""

    @property
    def user(self) -> str:
        """The user that the broker verified for this connection."""

    @property
    def connected(self) -> bool:
        """Whether a publish would reach the broker now."""

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing from publishers, in its words: memory or disk is short. Empty while it does, and
        as long as this connection has published nothing since the shortage began."""

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call back whenever a connection follows a lost one. What the broker held meanwhile may be lost too."""

    async def declare(self, topology: Topology) -> None:
        """Create missing exchanges, queues and bindings.

        Idempotent. Raises InvalidError where one exists with other properties.
        """

    async def unbind(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings. A missing binding is no error, nor is a missing queue."""

    async def check(self, topology: Topology) -> Sequence[str]:
        """The missing or different parts of the topology, for people; empty where it is right. Changes nothing."""

    async def refused(self, uses: Iterable[Use]) -> Sequence[Use] | None:
        """The uses that the broker refuses to this connection's user; None from a broker that knows no rights. Changes
        nothing."""

    async def publish(self, exchange: str, message: WireMessage) -> None:
        """Return when the broker has confirmed that every matching queue has the message.

        Calls may run concurrently and are pipelined. Raises NotFoundError when no queue matched or the exchange does
        not exist, InvalidError when it is larger than the limit, ForbiddenError for another user's id. Without a
        confirm in time the message may still have been published: UnavailableError without a connection,
        ThrottledError with one.
        """

    def subscribe(
        self, *queues: str, prefetch: int, keep: Keep | None = None
    ) -> AbstractAsyncContextManager[Subscription]:
        """Consume queues. Leaving the context closes it; deliveries not settled by then are delivered again.

        `keep` is called in the order of each queue, and returns what is kept of a message from its arrival on: by
        default all of it, without its body where it is larger than the limit (`sizes.cut`).
        """

    def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        """Read a stream from `offset` to its present end; with `follow`, go on with what is published later."""

    async def depth(self, queue: str) -> QueueDepth:
        """The depth of a queue now. Raises NotFoundError."""

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
