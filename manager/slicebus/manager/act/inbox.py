"""Receives what the agents publish: decodes it, decides, carries out the commands, then acknowledges the delivery.

A dead letter that comes back was published by the manager's own user, and names its first sender. A message of an ended
epoch is refused, and is no dead letter: the agent's successor has reported everything anew (docs/decisions/0012). Nor
is a message of another cluster with the same name: it is not in the fleet until it has a name of its own (0014). Nor is
one of an epoch that is to come: the cluster shows that its clock is ahead, and reports everything anew after that
(0064).
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import structlog
from msgspec import structs
from prometheus_client import CollectorRegistry, Counter

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.retries import repeated
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letters.headers import as_sent, was_passed_on
from slicebus.bus.lanes import Backlog, Keeps, OnDead, consume, turns_of
from slicebus.bus.metering import DeliveryMetrics
from slicebus.bus.sizes import MESSAGE_BYTES, cut
from slicebus.bus.turns import LARGE_BYTES, Pace
from slicebus.decisions.commands import Command, Patch
from slicebus.decisions.decider import Decider, Incoming
from slicebus.kube.cache import Change
from slicebus.kube.times import now_text
from slicebus.manager.act.held_messages import HeldMessages
from slicebus.manager.act.own_deliveries import OwnDeliveries, cluster_of
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.act.router import Router
from slicebus.manager.decide.messages import heartbeat_bounds, message_router
from slicebus.manager.decide.messages.authorization import UNAUTHORIZED
from slicebus.manager.metrics.resizes import ResizeMetrics
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.codec import Decoded, decode_report
from slicebus.proto.envelope import Envelope, WireMessage
from slicebus.proto.errors import (
    DeadReason,
    DecisionError,
    ForbiddenError,
    NotFoundError,
    PermanentError,
    ProtocolError,
    TransientError,
    UnavailableError,
)
from slicebus.proto.headers import DECIMAL_PATTERN, PREFIX, SUBJECT
from slicebus.proto.messages import (
    MESSAGES,
    ClusterName,
    Heartbeat,
    Hello,
    Inventory,
    JobRef,
    Lane,
    Report,
    Status,
    job_of,
)
from slicebus.proto.topology import cluster_queue, manager_queue, words
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_SEQUENCE = f"{PREFIX}sequence"
_IS_NUMBER = re.compile(DECIMAL_PATTERN)
_WORKERS = 64
_WORKERS_OF_A_LANE = 8
"""Most messages of one lane of a cluster that are handled at once: what each does in between delays the others."""
_SUPERSEDED = (Status.type, Heartbeat.type)
_UNKNOWN_BYTES = 64 * 1024
"""The limit of a message whose type is unknown: only its head is of use."""
_HEARTBEAT_REST_S = 0.2
"""Heartbeats of a cluster are taken no faster. Of those that wait only the newest counts."""
_SPEAKER = f"{PREFIX}clusteruid", f"{PREFIX}epoch"
_AGAIN = Backoff(first_s=0.5, most_s=30.0)


class ManagerInbox:
    """Handles the messages of the manager's two lanes."""

    def __init__(
        self,
        *,
        bus: Bus,
        decide: Decider[ManagerStore],
        executor: Executor,
        locks: Locks[JobRef],
        requeue: Callable[[JobRef], None],
        resyncer: Resyncer,
        registry: CollectorRegistry,
        message_bytes: int = MESSAGE_BYTES,
        on_dead: OnDead | None = None,
        keeps_dead: Keeps = lambda _: True,
        router: Router | None = None,
        note: Callable[[Envelope, Report], None] = lambda *_: None,
    ) -> None:
        """`router` passes on the messages for other shards; None where there are none. `note` gets every message that
        is taken."""
        self._bus = bus
        self._note = note
        self._on_dead = on_dead
        self._keeps_dead = keeps_dead
        self._message_bytes = message_bytes
        self._turns, self._pace = turns_of(_WORKERS, most_each=_WORKERS_OF_A_LANE), Pace()
        self._router = router
        self._listeners: list[Callable[[ClusterName], None]] = []
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._locks = locks
        self._requeue = requeue
        self._resyncer = resyncer
        self._held = HeldMessages(decide.state)
        self.backlog = Backlog()
        """What was received and is not settled yet."""
        self._deliveries = DeliveryMetrics(registry)
        self._resizes = ResizeMetrics(registry)
        for jobs in decide.state.jobs.values():
            self._resizes.follow(jobs)
            jobs.subscribe(self._forget_deleted)
        self.last_message_at: dict[ClusterName, float] = {}
        """The time of each cluster's last message, in the loop's time."""
        self.refused_clusters = self._held.refused_clusters
        self._received = Counter(
            "slicebus_manager_messages", "Messages received from agents.", ["cluster", "type"], registry=registry
        )
        self._fenced = Counter(
            "slicebus_manager_fenced",
            "Messages refused because their agent's epoch has ended.",
            ["cluster", "type"],
            registry=registry,
        )
        self._refused = Counter(
            "slicebus_manager_refused_messages",
            "Messages whose effect the API server has refused: they are tried again.",
            ["cluster", "type"],
            registry=registry,
        )
        self._ahead = Counter(
            "slicebus_manager_ahead",
            "Messages refused because the clock of their cluster is, or was, ahead of the manager's.",
            ["cluster", "type"],
            registry=registry,
        )
        self._foreign = Counter(
            "slicebus_manager_of_other_clusters",
            "Messages refused because another cluster has the name, or the cluster another name.",
            ["cluster", "type"],
            registry=registry,
        )

    def on_message(self, callback: Callable[[ClusterName], None]) -> None:
        """Call back with the cluster of every message, before it is answered."""
        self._listeners.append(callback)

    async def run(self, lane: Lane, *, prefetch: int, shard: int = 0) -> None:
        """Handle one lane of a shard until cancelled. Raises NotFoundError when its queue has gone: the manager makes
        it, and asks for what lay in it, when it begins anew. The queue of a shard that no longer exists may be
        missing. The broker may be away when this begins."""
        consume_lane = partial(self._consume, manager_queue(lane, shard), prefetch=prefetch, of=shard)
        try:
            await repeated(consume_lane, on=TransientError, wait=_AGAIN)
        except (NotFoundError, ForbiddenError) as error:
            if shard == self._store.shards.own.index:
                raise
            _log.warning("shard.queue.left", shard=shard, lane=lane, error=str(error))

    async def run_cluster(self, cluster: ClusterName, *, prefetch: int) -> None:
        """Handle the lanes of one cluster until cancelled. Raises NotFoundError when one of its queues has gone."""
        queues = [cluster_queue(cluster, lane) for lane in Lane]
        await self._consume(*queues, prefetch=prefetch, of=0, only=cluster)

    async def _consume(self, *queues: str, prefetch: int, of: int, only: ClusterName | None = None) -> None:
        async with self._bus.subscribe(*queues, prefetch=prefetch, keep=self._keep) as subscription:
            await consume(
                subscription if only is None else OwnDeliveries(subscription, only),
                partial(self._handle, of=of),
                key=_order_key,
                turns=self._turns,
                pace=self._pace,
                owner=_lane_of,
                rest_s=lambda delivery: _HEARTBEAT_REST_S if _is_heartbeat(delivery.message) else 0.0,
                on_dead=self._on_dead,
                keeps_dead=self._keeps_dead,
                superseded=_is_superseded,
                backlog=self.backlog,
                on_settled=self._deliveries.settled,
            )

    def _keep(self, message: WireMessage) -> WireMessage:
        """What is kept of a message from its arrival on: no body that is larger than those of its type are."""
        known = MESSAGES.get(words(message.routing_key)[1])
        most = known.most_bytes if known is not None else _UNKNOWN_BYTES
        return cut(message, min(most or self._message_bytes, self._message_bytes))

    async def _handle(self, delivery: Delivery, *, of: int) -> None:
        """Handle a message to a shard: this one, or one whose place it has taken."""
        wire = as_sent(delivery.message, trusted=self._bus.user)
        is_final = was_passed_on(delivery.message, trusted=self._bus.user) and of == self._store.shards.own.index
        decoded, is_heartbeat = None, _is_heartbeat(wire)
        if self._router is not None and not (is_final or is_heartbeat):
            decoded = self._read(wire)
            if decoded is not None and await self._router.pass_on(wire, decoded.message):
                self._note_heard(decoded.envelope.cluster)
                return
        if is_heartbeat and len(wire.body) > heartbeat_bounds.LARGE_BYTES:
            # What is recorded of it is bounded too.
            wire, decoded = structs.replace(wire, body=heartbeat_bounds.reduced(self._store, wire.body)), None
        incoming = self._decide.receive(wire, decode_report, decoded)
        if len(wire.body) >= LARGE_BYTES:
            await asyncio.sleep(0)  # Others go on in between.
        job = job_of(incoming.message)
        async with self._locks.of(job) if job is not None else nullcontext():
            await self._take(incoming, passed_on=is_final)

    def _read(self, wire: WireMessage) -> Decoded[Report] | None:
        """A message that may be passed on; None for one that cannot be read, or whose sender may not speak for its
        cluster: it concerns this shard."""
        try:
            decoded = decode_report(wire)
            message_router.authorize(self._store, decoded.envelope, now=now_text())
        except ProtocolError:
            return None
        return decoded

    async def _take(self, incoming: Incoming[Report], *, passed_on: bool) -> None:
        """Decide what a message changes, and carry it out."""
        envelope, message = incoming.envelope, incoming.message
        try:
            commands = self._decide(message_router.receive, incoming=incoming, now=now_text(), passed_on=passed_on)
        except ProtocolError as error:
            if error.reason in UNAUTHORIZED:
                await self._refuse(incoming, error)
                return
            self._note_message(envelope)
            raise
        self._note_message(envelope)
        self._resizes.note(envelope, message)
        self._note(envelope, message)
        await self._write(incoming, commands)
        # After the write: one that conflicts is tried again, and with it the answer.
        await self._resyncer.answer(envelope, message)
        if isinstance(message, Hello):
            self._publish_again(envelope.cluster)
        if isinstance(message, Inventory):
            await self._resyncer.take(envelope, message)

    async def _write(self, incoming: Incoming[Report], commands: Sequence[Command]) -> None:
        """Carry out what a message changes. Where the API server refuses that, or fails at it for some seconds, the
        message is kept, and the job says so; a report on the cluster itself comes again by itself."""
        job = job_of(incoming.message)
        try:
            await self._carry_out(incoming, commands)
        except (PermanentError, UnavailableError) as error:
            if not self._held.is_kept(incoming, error):
                raise
            labels = {"cluster": incoming.envelope.cluster, "type": incoming.envelope.type}
            _log.warning("message.refused", **labels, job=job.key if job else "", error=str(error))
            self._refused.labels(**labels).inc()
            self._held.hold(job, incoming, error)
            if job is None:
                return
            if isinstance(error, UnavailableError):
                await self._keep_end(job, incoming.message, commands, error)
            note = self._decide(message_router.note_refused, incoming=incoming, problem=str(error), now=now_text())
            await self._executor.run(note, caused_by=incoming.envelope)
            self._requeue(job)

    async def _carry_out(self, incoming: Incoming[Report], commands: Sequence[Command]) -> None:
        job = job_of(incoming.message)
        await self._executor.run(commands, caused_by=incoming.envelope)
        if job is not None and job in self._store.unshown_ends:
            await self._executor.run(self._decide(message_router.keep_end, job=job))
        if job is not None or commands:
            self._held.settle(job, incoming)

    async def _keep_end(
        self, job: JobRef, message: Report, commands: Sequence[Command], error: UnavailableError
    ) -> None:
        """Keep an end that the API server fails to show, as one that it refuses. That of a job whose pods run on waits:
        the write that charges it for those comes first, and may be the one that failed."""
        refused = (command.if_refused for command in commands if isinstance(command, Patch))
        note = next(filter(None, refused), None)
        if note is None or (isinstance(message, Status) and message.has_left_pods):
            return
        kept = structs.replace(note, value=structs.replace(note.value, message=str(error)))
        await self._executor.run([kept])
        await self._executor.run(self._decide(message_router.keep_end, job=job))

    async def retry(self, job: JobRef) -> PermanentError | UnavailableError | None:
        """Handle the kept messages of a job again; return the error of one that is still refused. One that may not be
        acted on any more is dropped. The caller holds the job's lock."""
        problem: PermanentError | UnavailableError | None = None
        for incoming in self._held.of(job):
            try:
                commands = self._decide(message_router.receive, incoming=incoming, now=now_text(), passed_on=True)
                await self._carry_out(incoming, commands)
            except (ProtocolError, DecisionError) as error:
                _log.warning("message.dropped", job=job.key, type=incoming.envelope.type, error=str(error))
                self._held.settle(job, incoming)
            except (PermanentError, UnavailableError) as error:
                if not self._held.is_kept(incoming, error):
                    raise
                problem = error
        return problem

    def _note_message(self, envelope: Envelope) -> None:
        self._received.labels(envelope.cluster, envelope.type).inc()
        self._note_heard(envelope.cluster)

    def _note_heard(self, cluster: ClusterName) -> None:
        self.last_message_at[cluster] = asyncio.get_running_loop().time()
        for callback in self._listeners:
            callback(cluster)

    async def _refuse(self, incoming: Incoming[Report], error: ProtocolError) -> None:
        """Log a message whose sender may not speak for the cluster. Raises the error where it is a dead letter."""
        envelope = incoming.envelope
        fields = {"cluster": envelope.cluster, "type": envelope.type, "detail": error.detail}
        if error.reason is DeadReason.UNKNOWN_CLUSTER and isinstance(incoming.message, Heartbeat):
            _log.info("heartbeat.ignored", **fields)
        elif error.reason is DeadReason.WRONG_CLUSTER:
            await self._show(incoming, message_router.refuse_cluster)
            self._foreign.labels(envelope.cluster, envelope.type).inc()
            _log.warning("message.rejected", **fields)
        elif error.reason is DeadReason.FUTURE_EPOCH:
            await self._show(incoming, message_router.note_clock)
            self._ahead.labels(envelope.cluster, envelope.type).inc()
            _log.warning("message.ahead", **fields)
        elif error.reason is DeadReason.FENCED_EPOCH:
            if isinstance(incoming.message, Hello | Heartbeat):
                await self._show(incoming, message_router.note_clock)
            self._fenced.labels(envelope.cluster, envelope.type).inc()
            _log.warning("message.fenced", **fields)
        else:
            raise error

    async def _show(self, incoming: Incoming[Report], decision: Callable[..., Sequence[Command]]) -> None:
        """Show something on a cluster. What the API server refuses is shown with the next message."""
        try:
            await self._executor.run(self._decide(decision, incoming=incoming, now=now_text()))
        except (PermanentError, UnavailableError) as error:
            self._held.note_unshown(incoming, error)
            _log.warning("cluster.unwritten", cluster=incoming.envelope.cluster, error=str(error))

    def _forget_deleted(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            ref, store = job_ref(change.old), self._store
            kept = store.reported, store.notices, store.waits, store.reported_pods, store.unshown_ends, store.ends
            for table in kept:
                table.pop(ref, None)
            self._held.forget(ref)

    def _publish_again(self, cluster: ClusterName) -> None:
        """Have the orders of a new agent's jobs published again: it may have missed messages to the agent before it."""
        for ref in dict.fromkeys(self._store.refs()):
            if self._store.view(ref).cluster == cluster:
                self._store.published.pop(ref, None)
                self._store.notices.pop(ref, None)
                self._requeue(ref)
        for ref in self._store.jobs_left_on(cluster):
            self._store.recalled.pop((cluster, ref), None)
            self._requeue(ref)


def _lane_of(delivery: Delivery) -> str:
    """Who waits for turns: the lane of a cluster. Statuses that hang hold up no requests."""
    return f"{delivery.queue}/{cluster_of(delivery)}"


def _is_heartbeat(message: WireMessage) -> bool:
    return words(message.routing_key)[1] == Heartbeat.type


def _order_key(delivery: Delivery) -> str:
    """The key of a message. Messages with one key stay in order: those of one object of one cluster on one lane, and
    the heartbeats of one cluster."""
    cluster, kind, _ = words(delivery.message.routing_key)
    if kind == Heartbeat.type:
        return f"{cluster}/{kind}"
    return f"{delivery.queue}/{cluster}/{delivery.message.headers.get(SUBJECT, '')}"


def _is_superseded(older: Delivery, newer: Delivery) -> bool:
    """Whether both are statuses of one job, or heartbeats, from one agent, and the second was published later."""
    first, second = older.message, newer.message
    if first.routing_key != second.routing_key or words(first.routing_key)[1] not in _SUPERSEDED:
        return False
    if first.user_id != second.user_id or any(first.headers.get(name) != second.headers.get(name) for name in _SPEAKER):
        return False
    numbers = [message.headers.get(_SEQUENCE, "") for message in (first, second)]
    # Nobody has checked the headers yet, and int() raises for thousands of digits. A message of another form is dead.
    return all(map(_IS_NUMBER.fullmatch, numbers)) and int(numbers[0]) < int(numbers[1])
