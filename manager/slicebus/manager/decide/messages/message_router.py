"""Routes each agent message to its handler in `message_handlers`.

The shard that gets a message from an agent authorizes the sender. Forwarded messages are not authorized again; the
forwarding shard did that, and this one may know an older state of the fleet. The first shard answers for the clusters.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from slicebus.decisions.commands import Command, Forget, Remember
from slicebus.decisions.decider import Incoming
from slicebus.manager.decide.cluster import clocks, identity, relocation, terms, worker_cluster_status
from slicebus.manager.decide.job import charges, size_bounds, unshown_ends, waiting
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.decide.messages.authorization import check
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.worker_clusters import BY_UID
from slicebus.proto.envelope import Envelope
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    Hello,
    Inventory,
    JobPhase,
    JobRef,
    Manifest,
    Refused,
    Report,
    ScaleRequest,
    Status,
    job_of,
)
from slicebus.slices.jobs import KINDS, status_shape_of
from slicebus.slices.jobs.fit import misfit


def receive(store: ManagerStore, *, incoming: Incoming[Report], now: str, passed_on: bool = False) -> Sequence[Command]:
    """Authorize and handle a message from an agent. `passed_on`: another shard has authorized it.

    Raises ProtocolError; its reason is one of `UNAUTHORIZED` where the sender may not speak for its cluster."""
    if not passed_on:
        authorize(store, incoming.envelope, now=now)
    handled = _handle(store, incoming.envelope, incoming.message, now=now)
    return [*_note_epoch(store, incoming.envelope), *handled]


def _note_epoch(store: ManagerStore, envelope: Envelope) -> Iterator[Command]:
    """Remember the newest epoch of each agent: the WorkerCluster, which the first shard writes, may show it later."""
    if store.shards.own.index > 0 and envelope.epoch > store.heard_epochs.get(envelope.agent, 0):
        yield Remember(table=ManagerTable.HEARD_EPOCHS, key=envelope.agent, value=envelope.epoch)


def _handle(store: ManagerStore, envelope: Envelope, message: Report, *, now: str) -> Sequence[Command]:
    match message:
        case Hello() | Heartbeat() if store.shards.own.index > 0:
            return []
        case Hello() | Heartbeat():
            return _handle_of_cluster(store, envelope, message, now)
        case ScaleRequest():
            return _handle_request(store, envelope, message, now)
        case Applied():
            view = store.view(_known(message.job))
            noted = mode_of(store).with_applied(view, message_handlers.applied(view, message, envelope), now)
            return [*noted, *message_handlers.carried_out(view, message, envelope, now=now)]
        case Refused():
            return message_handlers.refused(store.view(_known(message.job)), message, envelope, now=now)
        case Status():
            return _handle_status(store, envelope, message, now)
        case Inventory():
            return []  # The resyncer compares it, when all its pages are here.


def authorize(store: ManagerStore, envelope: Envelope, *, now: str) -> None:
    """Check that the sender may speak for its cluster. Raises ProtocolError, see `receive`."""
    newest_epoch = epoch_at(datetime.fromisoformat(now)) + round(store.settings.epoch_skew_s)
    sender = store.sender(envelope.cluster)
    if sender is not None and (heard := store.heard_epochs.get(envelope.agent, 0)) > sender.epoch:
        sender = msgspec.structs.replace(sender, epoch=heard)
    check(envelope, sender, newest_epoch=newest_epoch, other_name=_other_name(store, envelope))


def _other_name(store: ManagerStore, envelope: Envelope) -> ClusterName | None:
    """The other WorkerCluster that has the UID of a message; None without one."""
    bound = (store.clusters.get(None, name) for _, name in store.clusters.keyed_by(BY_UID, envelope.cluster_uid))
    return identity.other_name(envelope.cluster, filter(None, bound))


def refuse_cluster(store: ManagerStore, *, incoming: Incoming[Report], now: str) -> Sequence[Command]:
    """The commands that report a cluster which uses the name of another one. Its messages have no other effect."""
    envelope = incoming.envelope
    cluster = store.clusters.get(None, envelope.cluster)
    if cluster is None or not isinstance(incoming.message, Hello | Heartbeat):
        return []
    return identity.conflict(cluster, envelope, now=now, other=_other_name(store, envelope))


def note_clock(store: ManagerStore, *, incoming: Incoming[Report], now: str) -> Sequence[Command]:
    """The commands that note what a message says of its cluster's clock, whether it is accepted or not."""
    envelope = incoming.envelope
    cluster = store.clusters.get(None, envelope.cluster)
    return _note_clock(store, cluster, envelope, now) if cluster is not None else []


def _note_clock(store: ManagerStore, cluster: Manifest, envelope: Envelope, now: str) -> Sequence[Command]:
    if store.shards.own.index > 0:
        return []
    late_before, most_s = store.late.get(envelope.agent), store.settings.epoch_skew_s
    return clocks.note(cluster, envelope, late_before=late_before, most_s=most_s, now=now)


def note_refused(store: ManagerStore, *, incoming: Incoming[Report], problem: str, now: str) -> Sequence[Command]:
    """Show on a job that the API server refuses what a worker reports, and tell the worker whose request waits for it.

    `problem` has the words of the API server."""
    message, job = incoming.message, job_of(incoming.message)
    view = store.view(job) if job is not None and job.kind in KINDS else None
    return waiting.note_refused(view, message, incoming.envelope, problem, now=now) if view is not None else []


def keep_end(store: ManagerStore, *, job: JobRef) -> Sequence[Command]:
    """Keep the end of a job that the API server has just refused to show."""
    end = store.unshown_ends.get(job)
    return unshown_ends.keep(store.view(job), end) if end is not None else []


def _handle_of_cluster(
    store: ManagerStore, envelope: Envelope, message: Hello | Heartbeat, now: str
) -> Sequence[Command]:
    """Take in what an agent says of its cluster. A heartbeat that comes after a newer one, by way of another queue or
    because it was requeued, has no effect."""
    cluster = store.clusters.get(None, envelope.cluster)
    key, at = envelope.agent, (envelope.epoch, envelope.sequence)
    is_late = isinstance(message, Heartbeat) and at < store.last_heartbeat.get(key, at)
    if cluster is None or is_late:
        return []
    is_leaving = envelope.cluster in store.given_up and store.has_leaving_jobs(envelope.cluster)
    is_back = not is_leaving and not store.jobs_left_on(envelope.cluster)
    queues, fence_s = store.local_queues.all(), relocation.fence_s(store.settings.cluster_lost_requeue_s)
    namespaces = None if store.beside_kueue else [queue["metadata"]["namespace"] for queue in queues]
    answer = terms.answer(
        message, envelope, store.flavors.all(), fence_s=fence_s, namespaces=namespaces, is_back=is_back
    )
    # Both write the WorkerCluster: after the first write the second one conflicts, and the message is handled again.
    clock = _note_clock(store, cluster, envelope, now)
    if isinstance(message, Hello):
        return [*clock, *worker_cluster_status.hello(cluster, message, envelope, now=now), *answer]
    granted = store.quotas.ledger.granted.get(envelope.cluster, {})
    return [
        Remember(table=ManagerTable.LAST_HEARTBEAT, key=key, value=at),
        *clock,
        *worker_cluster_status.heartbeat(cluster, message, envelope, now=now, fence_s=fence_s, granted=granted),
        *answer,
    ]


def _handle_request(store: ManagerStore, envelope: Envelope, message: ScaleRequest, now: str) -> Sequence[Command]:
    """Take a request in, unless it is for more than the job itself allows, or for what no job can have: the job says so
    then on both sides."""
    view = store.view(_known(message.job))
    is_news, factor = message_handlers.is_news(view, message, envelope), store.settings.resize_factor
    if is_news and (problem := size_bounds.problem(view, message.wanted, factor=factor)):
        return waiting.note_past_bounds(view, message, envelope, problem, now=now)
    taken = message_handlers.scale_request(view, message, envelope)
    was_past = view.refused_request is not None and view.refused_request.reason == size_bounds.PAST_BOUNDS
    settled = [Forget(table=ManagerTable.REFUSED_REQUESTS, key=view.ref)] if taken and was_past else []
    return [*settled, *mode_of(store).with_request(store, view, taken, now)]


def _handle_status(store: ManagerStore, envelope: Envelope, message: Status, now: str) -> Sequence[Command]:
    """Take a status in. One that was requeued may come after a newer one of its job: it has no effect."""
    key, at = (envelope.agent, message.job.uid), (envelope.epoch, envelope.sequence)
    newest = store.last_status.get(key)
    if newest is not None and at < newest:
        return []
    _ensure_typed(message)
    view = store.view(_known(message.job))
    notes: list[Command] = []
    if view.job is None:
        notes = [Forget(table=ManagerTable.LAST_STATUS, key=key)] if newest is not None else []
    elif at != newest:
        notes.append(Remember(table=ManagerTable.LAST_STATUS, key=key, value=at))
        if mode_of(store).keeps_reports and not message.has_left_pods:
            notes.append(Remember(table=ManagerTable.REPORTED, key=message.job, value=message))
    taken = message_handlers.status(view, message, envelope, now=now, take=mode_of(store).mirror)
    charged = charges.take(view, message, envelope, queues=store.quotas.cluster_queues, now=now)
    gang = message_handlers.gang(view, message, envelope.cluster)
    waits = waiting.take_report(view, message, envelope.cluster)
    if message.phase is JobPhase.RUNNING:
        # The status is only shown: where that is refused, what decides about quota is written all the same.
        return [*notes, *charged, *gang, *waits, *taken]
    return [*notes, *taken, *charged, *gang, *waits]


def _ensure_typed(message: Status) -> None:
    """Raises ProtocolError for a status that is none of the job's kind. Whoever may publish for a cluster may say
    anything, and decisions read its fields."""
    kind = KINDS.get(message.job.kind)
    problem = misfit(message.job_status, status_shape_of(kind)) if kind is not None else ""
    if problem:
        raise ProtocolError(DeadReason.MALFORMED, f"job_status: no status of a {message.job.kind}: {problem}")


def _known(ref: JobRef) -> JobRef:
    if ref.kind not in KINDS:
        raise ProtocolError(DeadReason.REFUSED, f"no job kind {ref.kind!r}")
    return ref
