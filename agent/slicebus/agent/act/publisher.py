"""Publishes to the manager, one envelope a message."""

from slicebus.agent.state.store import Store
from slicebus.agent.state.views import JobKey
from slicebus.bus.contract import Bus
from slicebus.decisions.commands import Publish
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterUid, RequestKey, ScaleRequest
from slicebus.proto.topology import exchange_of


class Publisher:
    """Publishes messages under the agent's identity. Remembers the last request on each job until the job has it."""

    def __init__(self, bus: Bus, issuer: Issuer, store: Store, *, cluster_uid: ClusterUid) -> None:
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._issuer = issuer
        self._store = store

    async def publish(self, command: Publish, caused_by: Envelope | None = None) -> None:
        """Return when the broker has the message. Raises UnavailableError."""
        message = command.message
        envelope = self._issuer.envelope(
            message,
            command.cluster,
            caused_by=caused_by,
            correlation=command.correlation,
            cluster_uid=self._cluster_uid,
        )
        await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
        if isinstance(message, ScaleRequest):
            key = JobKey.of(message.job)
            self._store.published[key] = RequestKey(message.worker_uid, message.worker_generation)
