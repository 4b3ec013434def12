"""Publishes to the manager, one envelope a message."""

from collections.abc import Callable

from slicebus.agent.act.addressees import Addressees
from slicebus.bus.contract import Bus
from slicebus.decisions.commands import Publish
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import ForbiddenError, NotFoundError, UnavailableError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterUid, Message
from slicebus.proto.topology import exchange_of


class AgentPublisher:
    """Publishes messages under the agent's identity."""

    def __init__(
        self,
        bus: Bus,
        issuer: Issuer,
        *,
        cluster_uid: ClusterUid,
        addressees: Addressees,
        note: Callable[[Envelope, Message], None] = lambda *_: None,
    ) -> None:
        """`note` gets everything that is about to be published."""
        self._bus = bus
        self._note = note
        self._addressees = addressees
        self._cluster_uid = cluster_uid
        self._issuer = issuer
        self.refused = ""
        """What the broker has answered to the last message, where it lets the agent's user not publish that."""

    async def publish(self, command: Publish, caused_by: Envelope | None = None) -> None:
        """Return when the broker has the message. Raises UnavailableError, also where no queue takes it: a broker that
        is being rebuilt lacks exchanges and bindings for a moment. It raises that too where the broker refuses the
        message: somebody may give the right back.
        """
        message = command.message
        envelope = self._issuer.envelope(
            message,
            command.cluster,
            self._cluster_uid,
            caused_by=caused_by,
            correlation=command.correlation,
            to_shard=self._addressees.of(message),
        )
        self._note(envelope, message)
        try:
            await self._bus.publish(exchange_of(message.direction), encode(envelope, message))
        except NotFoundError as error:
            raise UnavailableError(str(error)) from error
        except ForbiddenError as error:
            self.refused = str(error)
            raise UnavailableError(str(error)) from error
        self.refused = ""
