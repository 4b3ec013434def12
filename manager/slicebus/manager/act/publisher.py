"""Publishes to the agents, one envelope a message."""

from slicebus.bus.contract import Bus
from slicebus.decisions.commands import Publish
from slicebus.manager.state.store import Store
from slicebus.manager.state.worker_clusters import queue_uid
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid
from slicebus.proto.topology import agent_topology, exchange_of


class Publisher:
    """Publishes the manager's messages. It declares the queues of a cluster before its first message."""

    def __init__(self, bus: Bus, issuer: Issuer, store: Store) -> None:
        self._bus = bus
        self._issuer = issuer
        self._store = store
        self._declared: set[tuple[ClusterName, ClusterUid | None]] = set()

    async def publish(self, command: Publish, caused_by: Envelope | None) -> None:
        """Return when the broker has the message. Raises UnavailableError."""
        message, cluster = command.message, command.cluster
        uid = queue_uid(self._store.clusters.get(None, cluster))
        if (cluster, uid) not in self._declared:
            await self._bus.declare(agent_topology(cluster, uid))
            self._declared.add((cluster, uid))
        envelope = self._issuer.envelope(
            message, cluster, caused_by=caused_by, correlation=command.correlation, cluster_uid=uid
        )
        await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
