"""Checks who may speak for a cluster: compares the user, the UID and the epoch of a message with its WorkerCluster."""

from slicebus.manager.state.worker_clusters import Sender
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import ClusterName

UNAUTHORIZED = frozenset(
    {
        DeadReason.UNKNOWN_CLUSTER,
        DeadReason.WRONG_USER,
        DeadReason.WRONG_CLUSTER,
        DeadReason.FENCED_EPOCH,
        DeadReason.FUTURE_EPOCH,
    }
)
"""Why a sender may not speak for the cluster that its envelope names."""


def check(
    envelope: Envelope, sender: Sender | None, *, newest_epoch: int, other_name: ClusterName | None = None
) -> None:
    """Check that the sender may speak for the cluster. Raises ProtocolError with a reason of `UNAUTHORIZED`.

    `sender` is who may speak for the cluster that the envelope names; None where there is no such WorkerCluster.
    `newest_epoch` is the highest that an agent can have by now. A higher one is refused. Where one is stored it fences
    nobody, or it would fence every agent until that time.
    `other_name` is the other WorkerCluster that has the UID of the envelope; None without one.
    """
    if sender is None:
        raise ProtocolError(DeadReason.UNKNOWN_CLUSTER, f"there is no WorkerCluster {envelope.cluster!r}")
    if not sender.accepted:
        raise ProtocolError(
            DeadReason.UNKNOWN_CLUSTER, f"WorkerCluster {envelope.cluster!r} is not accepted: set spec.accepted to true"
        )
    if envelope.user_id != sender.user:
        detail = f"user {envelope.user_id!r} may not speak for cluster {envelope.cluster!r}, only {sender.user!r} may"
        raise ProtocolError(DeadReason.WRONG_USER, detail)
    if other_name is not None:
        detail = f"cluster {envelope.cluster_uid} speaks as {envelope.cluster!r}, and its name is {other_name!r}"
        raise ProtocolError(DeadReason.WRONG_CLUSTER, detail)
    if sender.uid and envelope.cluster_uid != sender.uid:
        detail = f"cluster {envelope.cluster_uid} speaks as {envelope.cluster!r}, which is {sender.uid}"
        raise ProtocolError(DeadReason.WRONG_CLUSTER, detail)
    if envelope.epoch > newest_epoch:
        ahead = envelope.epoch - newest_epoch
        detail = f"epoch {envelope.epoch} of {envelope.cluster!r} is {ahead} s too far ahead: compare the clocks"
        raise ProtocolError(DeadReason.FUTURE_EPOCH, detail)
    if envelope.epoch < sender.epoch <= newest_epoch:
        detail = f"epoch {envelope.epoch} of {envelope.cluster!r} has ended, {sender.epoch} speaks now"
        raise ProtocolError(DeadReason.FENCED_EPOCH, detail)
