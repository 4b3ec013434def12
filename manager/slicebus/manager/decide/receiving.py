"""What messages from the agents change. `intake` has what becomes of each.

The first shard of the manager looks at every sender. What it passes on to another one is not looked at again: what that
one knows of the fleet may be older. It answers for the cluster, too.
"""

from collections.abc import Sequence
from datetime import datetime

from slicebus.decisions.commands import Command, Forget, Remember
from slicebus.decisions.decider import Incoming
from slicebus.manager.decide import identity, intake, terms, waiting, worker_cluster_status
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.state.store import Store
from slicebus.manager.state.tables import TableName
from slicebus.proto.envelope import Envelope
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import (
    Applied,
    Heartbeat,
    Hello,
    Inventory,
    JobRef,
    Message,
    Refused,
    ScaleRequest,
    Status,
)
from slicebus.slices.jobs import KINDS


def receive(
    store: Store, *, incoming: Incoming, now: str, fence_s: float | None, epoch_skew_s: float | None = None
) -> Sequence[Command]:
    """Authorize and handle a message from an agent. `fence_s` is the fence that agents shall keep, in seconds, and
    `epoch_skew_s` how far an epoch may be ahead of now; older recordings do not limit that.

    Raises ProtocolError; its reason is one of `intake.UNAUTHORIZED` where the sender may not speak for its cluster."""
    envelope, message = incoming.envelope, incoming.message
    if store.shards.own.index == 0:
        authorize(store, envelope, now=now, epoch_skew_s=epoch_skew_s)
    match message:
        case Hello() | Heartbeat() if store.shards.own.index > 0:
            return []
        case Hello() | Heartbeat():
            return _receive_of_cluster(store, envelope, message, now, fence_s)
        case ScaleRequest():
            return mode_of(store).requested(store, store.view(_known(message.job)), message, envelope, now)
        case Applied():
            return mode_of(store).applied(store.view(_known(message.job)), message, envelope, now)
        case Refused():
            return intake.refused(store.view(_known(message.job)), message, envelope, now=now)
        case Status():
            return _receive_status(store, envelope, message, now)
        case Inventory():
            return []
    raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{message.type} is not for a manager")


def authorize(store: Store, envelope: Envelope, *, now: str, epoch_skew_s: float | None) -> None:
    """Check that the sender may speak for its cluster. Raises ProtocolError, see `receive`."""
    newest_epoch = None if epoch_skew_s is None else epoch_at(datetime.fromisoformat(now)) + round(epoch_skew_s)
    intake.authorize(envelope, store.sender(envelope.cluster), newest_epoch=newest_epoch)


def refuse_cluster(store: Store, *, incoming: Incoming, now: str) -> Sequence[Command]:
    """The commands that report a cluster which uses the name of another one. Its messages have no other effect."""
    cluster = store.clusters.get(None, incoming.envelope.cluster)
    if cluster is None or not isinstance(incoming.message, Hello | Heartbeat):
        return []
    return identity.conflict(cluster, incoming.envelope, now=now)


def _receive_of_cluster(
    store: Store, envelope: Envelope, message: Message, now: str, fence_s: float | None
) -> Sequence[Command]:
    cluster = store.clusters.get(None, envelope.cluster)
    if cluster is None:
        return []
    assert isinstance(message, Hello | Heartbeat)
    is_leaving = envelope.cluster in store.given_up and store.has_leaving_jobs(envelope.cluster)
    is_back = not is_leaving and not store.jobs_left_on(envelope.cluster)
    queues = store.local_queues.all()
    namespaces = None if store.beside_kueue else [queue["metadata"]["namespace"] for queue in queues]
    answer = terms.answer(
        message, envelope, store.flavors.all(), fence_s=fence_s, namespaces=namespaces, is_back=is_back
    )
    if isinstance(message, Hello):
        return [*worker_cluster_status.hello(cluster, message, envelope, now=now), *answer]
    granted = store.quotas.ledger.granted.get(envelope.cluster, {})
    return [
        *worker_cluster_status.heartbeat(cluster, message, envelope, now=now, fence_s=fence_s, granted=granted),
        *answer,
    ]


def _receive_status(store: Store, envelope: Envelope, message: Status, now: str) -> Sequence[Command]:
    """Take a status in. One that was requeued may come after a newer one of its job: it has no effect."""
    key, at = (envelope.speaker, message.job.uid), (envelope.epoch, envelope.sequence)
    newest = store.last_status.get(key)
    if newest is not None and at < newest:
        return []
    view = store.view(_known(message.job))
    notes: list[Command] = []
    if view.job is None:
        notes = [Forget(table=TableName.LAST_STATUS, key=key)] if newest is not None else []
    elif at != newest:
        notes.append(Remember(table=TableName.LAST_STATUS, key=key, value=at))
        if mode_of(store).keeps_reports:
            notes.append(Remember(table=TableName.REPORTED, key=message.job, value=message))
    taken = intake.status(view, message, envelope, now=now, take=mode_of(store).mirror)
    return [*notes, *taken, *waiting.take_report(view, message, envelope.cluster)]


def _known(ref: JobRef) -> JobRef:
    if ref.kind not in KINDS:
        raise ProtocolError(DeadReason.REFUSED, f"no job kind {ref.kind!r}")
    return ref
