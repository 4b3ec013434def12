"""Receives what the agents publish: decodes it, decides, carries out the commands, then acknowledges the delivery.

A dead letter that comes back was published by the manager's own user, and names its first sender. A message of an ended
epoch is refused, and is no dead letter: the agent's successor has reported everything anew (docs/decisions/0012). Nor
is a message of another cluster with the same name: it is not in the fleet until it has a name of its own (0014).
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letter_headers import as_sent, was_passed_on
from slicebus.bus.lanes import OnDead, consume
from slicebus.decisions.decider import Decider, Incoming
from slicebus.kube.cache import Change
from slicebus.kube.times import now_text
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.act.router import Router
from slicebus.manager.decide.messages import message_router
from slicebus.manager.decide.messages.authorization import UNAUTHORIZED
from slicebus.manager.metrics.resizes import ResizeMetrics
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.codec import Decoded, decode_report
from slicebus.proto.envelope import Envelope, WireMessage
from slicebus.proto.errors import DeadReason, ForbiddenError, NotFoundError, ProtocolError
from slicebus.proto.headers import PREFIX, SUBJECT
from slicebus.proto.messages import ClusterName, Heartbeat, Hello, Inventory, JobRef, Lane, Report, Status, job_of
from slicebus.proto.topology import manager_queue, words
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_SEQUENCE = f"{PREFIX}sequence"
_SPEAKER = f"{PREFIX}clusteruid", f"{PREFIX}epoch"


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
        on_dead: OnDead | None = None,
        router: Router | None = None,
    ) -> None:
        """`router` passes on the messages for other shards; None where there are none."""
        self._bus = bus
        self._on_dead = on_dead
        self._router = router
        self._listeners: list[Callable[[ClusterName], None]] = []
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._locks = locks
        self._requeue = requeue
        self._resyncer = resyncer
        self._resizes = ResizeMetrics(registry)
        for jobs in decide.state.jobs.values():
            self._resizes.follow(jobs)
            jobs.subscribe(self._forget_deleted)
        self.last_message_at: dict[ClusterName, float] = {}
        """The time of each cluster's last message, in the loop's time."""
        self._received = Counter(
            "slicebus_manager_messages", "Messages received from agents.", ["cluster", "type"], registry=registry
        )
        self._fenced = Counter(
            "slicebus_manager_fenced",
            "Messages refused because their agent's epoch has ended.",
            ["cluster", "type"],
            registry=registry,
        )

        self._foreign = Counter(
            "slicebus_manager_of_other_clusters",
            "Messages refused because another cluster has the name.",
            ["cluster", "type"],
            registry=registry,
        )

    def on_message(self, callback: Callable[[ClusterName], None]) -> None:
        """Call back with the cluster of every message, before it is answered."""
        self._listeners.append(callback)

    async def run(self, lane: Lane, *, prefetch: int, shard: int = 0) -> None:
        """Handle one lane of a shard until cancelled. Raises NotFoundError when its queue has gone: the manager makes
        it, and asks for what lay in it, when it begins anew. The queue of a shard that no longer exists may be
        missing."""
        try:
            async with self._bus.subscribe(manager_queue(lane, shard), prefetch=prefetch) as subscription:
                await consume(
                    subscription,
                    partial(self._handle, of=shard),
                    key=_order_key,
                    on_dead=self._on_dead,
                    superseded=_is_superseded,
                )
        except (NotFoundError, ForbiddenError) as error:
            if shard == self._store.shards.own.index:
                raise
            _log.warning("shard.queue.left", shard=shard, lane=lane, error=str(error))

    async def _handle(self, delivery: Delivery, *, of: int) -> None:
        """Handle a message to a shard: this one, or one whose place it has taken."""
        wire = as_sent(delivery.message, trusted=self._bus.user)
        is_final = was_passed_on(delivery.message, trusted=self._bus.user) and of == self._store.shards.own.index
        decoded = None
        if self._router is not None and not is_final:
            decoded = self._read(wire)
            if decoded is not None and await self._router.pass_on(wire, decoded.message):
                self._note_heard(decoded.envelope.cluster)
                return
        incoming = self._decide.receive(wire, decode_report, decoded)
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
        answer = self._resyncer.answer(envelope, message)
        await self._executor.run([*commands, *answer], caused_by=envelope)
        if isinstance(message, Hello):
            self._publish_again(envelope.cluster)
        if isinstance(message, Inventory):
            await self._resyncer.take(envelope, message)

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
            await self._executor.run(self._decide(message_router.refuse_cluster, incoming=incoming, now=now_text()))
            self._foreign.labels(envelope.cluster, envelope.type).inc()
            _log.warning("message.rejected", **fields)
        elif error.reason is DeadReason.FENCED_EPOCH:
            self._fenced.labels(envelope.cluster, envelope.type).inc()
            _log.warning("message.fenced", **fields)
        else:
            raise error

    def _forget_deleted(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            for table in (self._store.reported, self._store.notices, self._store.waits):
                table.pop(job_ref(change.old), None)

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


def _order_key(delivery: Delivery) -> str:
    """The key of a message. Messages with one key stay in order: those of one object of one cluster."""
    cluster = delivery.message.routing_key.partition(".")[0]
    return f"{cluster}/{delivery.message.headers.get(SUBJECT, '')}"


def _is_superseded(older: Delivery, newer: Delivery) -> bool:
    """Whether both are statuses of one job from one agent, and the second was published later."""
    first, second = older.message, newer.message
    if first.routing_key != second.routing_key or words(first.routing_key)[1] != Status.type:
        return False
    if first.user_id != second.user_id or any(first.headers.get(name) != second.headers.get(name) for name in _SPEAKER):
        return False
    numbers = [message.headers.get(_SEQUENCE, "") for message in (first, second)]
    return all(number.isdecimal() for number in numbers) and int(numbers[0]) < int(numbers[1])
