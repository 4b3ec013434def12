"""Converts messages between slicebus and aio-pika, and settles deliveries."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from slicebus.bus.dead_letters.headers import dead_by_broker, dead_copy
from slicebus.bus.rabbitmq.failures import translated
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, UnavailableError
from slicebus.proto.topology import dead_letters_of

if TYPE_CHECKING:
    from slicebus.bus.rabbitmq.bus import RabbitBus

_log = structlog.get_logger()
_DELIVERY_COUNT = "x-delivery-count"
_DEATHS = "x-death"


def to_message(message: WireMessage) -> aio_pika.Message:
    """Convert a message for aio-pika."""
    return aio_pika.Message(
        body=message.body,
        headers=dict(message.headers),
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        user_id=message.user_id,
        content_type=message.content_type,
        type=message.type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT if message.persistent else aio_pika.DeliveryMode.NOT_PERSISTENT,
    )


def from_incoming(incoming: AbstractIncomingMessage) -> WireMessage:
    """Convert a message from aio-pika. Headers that are no text are dropped: the broker's counts, and its `x-death`,
    whose content goes into our headers."""
    message = WireMessage(
        routing_key=incoming.routing_key or "",
        body=incoming.body,
        headers={name: value for name, value in incoming.headers.items() if isinstance(value, str)},
        message_id=incoming.message_id,
        correlation_id=incoming.correlation_id,
        user_id=incoming.user_id,
        content_type=incoming.content_type or "",
        type=incoming.type,
        persistent=incoming.delivery_mode == aio_pika.DeliveryMode.PERSISTENT,
    )
    deaths = incoming.headers.get(_DEATHS)
    if not isinstance(deaths, list) or not deaths or not isinstance(deaths[0], dict):
        return message
    # The newest death comes first. A publisher may have written anything here.
    queue, reason, at = (deaths[0].get(name) for name in ("queue", "reason", "time"))
    moment = at if isinstance(at, datetime) else datetime.now(UTC)
    return dead_by_broker(message, queue=str(queue), detail=str(reason), at=moment)


class RabbitDelivery:
    """Holds one message of a consumer, and its channel."""

    def __init__(
        self,
        bus: "RabbitBus",
        incoming: AbstractIncomingMessage,
        message: WireMessage,
        channel: AbstractChannel,
        *,
        queue: str,
        on_settled: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._incoming = incoming
        self._channel = channel
        self._queue = queue
        self._on_settled = on_settled
        self._message = message

    @property
    def message(self) -> WireMessage:
        """The message."""
        return self._message

    @property
    def queue(self) -> str:
        """The queue that it came from."""
        return self._queue

    @property
    def redelivered(self) -> int:
        """How often it was delivered before this time, as the queue counts; at least 1 where its flag says so."""
        count = self._incoming.headers.get(_DELIVERY_COUNT, 0)
        return max(count if isinstance(count, int) else 0, int(bool(self._incoming.redelivered)))

    @property
    def held(self) -> bool:
        """Whether this consumer still holds it: closing its channel releases it."""
        return not (self._channel.is_closed or self._incoming.processed)

    async def ack(self) -> None:
        """Settle it."""
        await self._settle("ack", self._incoming.ack)

    async def requeue(self) -> None:
        """Put it back."""
        await self._settle("requeue", partial(self._incoming.nack, requeue=True))

    async def dead_letter(self, reason: DeadReason, detail: str) -> None:
        """Publish a copy with the reason to the dead-letter exchange of its queue, then settle it."""
        if self._is_stale():
            return
        copy = dead_copy(
            self._message,
            queue=self._queue,
            reason=reason,
            detail=detail,
            at=datetime.now(UTC),
            by=self._bus.user,
        )
        await self._bus.publish(dead_letters_of(self._queue), copy)
        await self.ack()

    async def _settle(self, action: str, settle: Callable[[], Awaitable[None]]) -> None:
        """Settle it, unless the connection has broken: then the broker delivers it again."""
        try:
            if not self._is_stale():
                with translated(action):
                    await settle()
        except UnavailableError as error:
            _log.info("delivery.unsettled", queue=self._queue, message_id=self._message.message_id, error=str(error))
        self._on_settled()

    def _is_stale(self) -> bool:
        """Whether its channel is closed, so that it can no longer be settled."""
        if self._channel.is_closed:
            _log.info("delivery.stale", queue=self._queue, message_id=self._message.message_id)
            return True
        return False
