"""Publishes to the agents, one envelope a message."""

from slicebus.bus.contract import Bus
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, Message
from slicebus.proto.topology import agent_topology, exchange_of


class Publisher:
    """The manager's voice. A cluster's queues are there before anything is published to it."""

    def __init__(self, bus: Bus, issuer: Issuer) -> None:
        self._bus = bus
        self._issuer = issuer
        self._declared: set[ClusterName] = set()

    async def publish(
        self,
        cluster: ClusterName,
        message: Message,
        *,
        caused_by: Envelope | None = None,
        correlation: MessageId | None = None,
    ) -> None:
        """Return when the broker has the message. Raises UnavailableError."""
        if cluster not in self._declared:
            await self._bus.declare(agent_topology(cluster))
            self._declared.add(cluster)
        envelope = self._issuer.envelope(message, cluster, caused_by=caused_by, correlation=correlation)
        await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
