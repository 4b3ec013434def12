"""Publishes to the agents, one envelope a message, and makes their queues: an agent may make none."""

import asyncio
from collections.abc import Callable

from slicebus.bus.contract import Bus
from slicebus.decisions.commands import Publish
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import pinned_uid
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Hello, Message
from slicebus.proto.topology import agent_topology, exchange_of

_AGAIN_S = 600.0
"""After this time the queues of a cluster are declared again: somebody may have deleted them, or they may have
expired."""


class ManagerPublisher:
    """Publishes the manager's messages. It declares the queues of a cluster before its first message, before the answer
    to a hello, and every ten minutes."""

    def __init__(
        self,
        bus: Bus,
        issuer: Issuer,
        store: ManagerStore,
        *,
        note: Callable[[Envelope, Message], None] = lambda *_: None,
    ) -> None:
        """`note` gets everything that is about to be published."""
        self._bus = bus
        self._note = note
        self._issuer = issuer
        self._store = store
        self._declared_at: dict[tuple[ClusterName, ClusterUid], float] = {}
        """When the queues of a cluster were declared last, in the loop's time."""

    async def publish(self, command: Publish, caused_by: Envelope | None) -> None:
        """Return when the broker has the message. Raises UnavailableError, also where no queue takes it (the queues of
        the cluster are then made before the next message), and where no agent of the cluster has spoken yet."""
        message, cluster = command.message, command.cluster
        manifest = self._store.clusters.get(None, cluster)
        uid = pinned_uid(manifest) if manifest is not None else None
        if uid is None:
            raise UnavailableError(f"no agent of cluster {cluster} has spoken yet")
        try:
            if self._is_due(cluster, uid) or (caused_by is not None and caused_by.type == Hello.type):
                await self._bus.declare(agent_topology(cluster, uid))
                self._declared_at[cluster, uid] = asyncio.get_running_loop().time()
            envelope = self._issuer.envelope(
                message, cluster, uid, caused_by=caused_by, correlation=command.correlation
            )
            self._note(envelope, message)
            await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
        except NotFoundError as error:
            self._declared_at.pop((cluster, uid), None)
            raise UnavailableError(str(error)) from error

    def _is_due(self, cluster: ClusterName, uid: ClusterUid) -> bool:
        declared_at = self._declared_at.get((cluster, uid))
        return declared_at is None or asyncio.get_running_loop().time() - declared_at > _AGAIN_S
