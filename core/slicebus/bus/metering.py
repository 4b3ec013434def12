"""Measures what a role publishes, and what becomes of the messages that it receives.

Labels have bounded values: exchanges and message types are those of the contract, whatever a sender writes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from slicebus.bus.contract import Bus, Delivery, QueueDepth, Record, StreamOffset, Subscription
from slicebus.bus.sizes import Keep
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
)
from slicebus.proto.messages import MESSAGES
from slicebus.proto.rights import Use
from slicebus.proto.topology import Binding, Topology, words

_CONFIRM_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds, up to the time within which a confirm has to come."""
_HANDLING_BUCKETS = (0.0025, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600)
"""Seconds, up to the time after which a delivery is put back."""
_OTHER = "other"
_REASONS: tuple[tuple[type[SlicebusError], str], ...] = (
    (ThrottledError, "unconfirmed"),
    (UnavailableError, "unavailable"),
    (NotFoundError, "unroutable"),
    (InvalidError, "too_large"),
    (ForbiddenError, "forbidden"),
)


class Settled(StrEnum):
    """What became of a delivery."""

    HANDLED = "handled"
    """Its effect is durable, or it had none."""
    SUPERSEDED = "superseded"
    """A newer one of its object came first."""
    REQUEUED = "requeued"
    """Its time was over: it was put back."""
    DEAD_LETTERED = "dead_lettered"
    """It cannot be handled, also where its cluster has no room for another dead letter."""


OnSettled = Callable[[Delivery, Settled, float], None]
"""A function that is called with each settled delivery, and the seconds since it was received."""


class DeliveryMetrics:
    """Measures how long deliveries take from their receipt until they are settled."""

    def __init__(self, registry: CollectorRegistry) -> None:
        times = Histogram(
            "slicebus_message_handling_seconds",
            "From the receipt of a message until it was settled, with its waits and retries.",
            ["type", "result"],
            buckets=_HANDLING_BUCKETS,
            registry=registry,
        )
        self._times_of = cache(times.labels)

    def settled(self, delivery: Delivery, result: Settled, took_s: float) -> None:
        """Measure one. A type that does not exist counts as `other`."""
        type = words(delivery.message.routing_key)[1]
        self._times_of(type if type in MESSAGES else _OTHER, result.value).observe(took_s)


class MeteredBus:
    """Measures the publishes of one role, over a bus that others may use as well."""

    def __init__(self, bus: Bus, registry: CollectorRegistry) -> None:
        self._bus = bus
        confirms = Histogram(
            "slicebus_broker_confirm_seconds",
            "From a publish until the broker has confirmed it, with the wait for a connection.",
            ["exchange"],
            buckets=_CONFIRM_BUCKETS,
            registry=registry,
        )
        # A few: prometheus_client looks each up anew.
        self._confirms_of = cache(confirms.labels)
        self._failures = Counter(
            "slicebus_broker_publish_failures",
            "Publishes that failed. What is lost by that is published again, by whoever published it.",
            ["exchange", "reason"],
            registry=registry,
        )

    @property
    def user(self) -> str:
        """The user of the connection."""
        return self._bus.user

    @property
    def connected(self) -> bool:
        """Whether the connection is up."""
        return self._bus.connected

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing from publishers; empty while it does."""
        return self._bus.blocked

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call back whenever a connection follows a lost one."""
        self._bus.on_reconnect(callback)

    async def declare(self, topology: Topology) -> None:
        """Create what is missing."""
        await self._bus.declare(topology)

    async def unbind(self, bindings: Iterable[Binding]) -> None:
        """Remove bindings."""
        await self._bus.unbind(bindings)

    async def check(self, topology: Topology) -> Sequence[str]:
        """The missing or different parts."""
        return await self._bus.check(topology)

    async def refused(self, uses: Iterable[Use]) -> Sequence[Use] | None:
        """The uses that the broker refuses."""
        return await self._bus.refused(uses)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        """Publish, and measure how long the confirm took, or count why there is none."""
        began_s = asyncio.get_running_loop().time()
        try:
            await self._bus.publish(exchange, message)
        except SlicebusError as error:
            self._failures.labels(exchange, _reason_of(error)).inc()
            raise
        self._confirms_of(exchange).observe(asyncio.get_running_loop().time() - began_s)

    def subscribe(
        self, *queues: str, prefetch: int, keep: Keep | None = None
    ) -> AbstractAsyncContextManager[Subscription]:
        """Consume queues."""
        return self._bus.subscribe(*queues, prefetch=prefetch, keep=keep)

    def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        """Read a stream."""
        return self._bus.read_stream(stream, offset, follow=follow)

    async def depth(self, queue: str) -> QueueDepth:
        """The depth of a queue."""
        return await self._bus.depth(queue)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._bus.aclose()


def _reason_of(error: SlicebusError) -> str:
    return next((reason for type, reason in _REASONS if isinstance(error, type)), _OTHER)
