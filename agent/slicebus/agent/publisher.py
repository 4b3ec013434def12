"""Publishes to the manager, one envelope a message."""

from slicebus.bus.contract import Bus
from slicebus.process.commands import Publish
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.issuer import Issuer
from slicebus.proto.topology import exchange_of


class Publisher:
    """The agent's voice."""

    def __init__(self, bus: Bus, issuer: Issuer) -> None:
        self._bus = bus
        self._issuer = issuer

    async def publish(self, command: Publish, caused_by: Envelope | None = None) -> None:
        """Return when the broker has the message. Raises UnavailableError."""
        message = command.message
        envelope = self._issuer.envelope(message, command.cluster, caused_by=caused_by, correlation=command.correlation)
        await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
