"""Receives what the agents publish: decode, authorize, decide, carry out; then the delivery is acknowledged.

A dead letter that comes back was published by the manager's own user, and names its first sender.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead import as_sent
from slicebus.bus.lanes import OnDead, dispatch
from slicebus.kube.times import now_text
from slicebus.manager import fleet, intake
from slicebus.manager.resyncer import Resyncer
from slicebus.manager.store import Store
from slicebus.process.commands import Command
from slicebus.process.executor import Executor
from slicebus.proto.codec import Received, decode
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.headers import PREFIX
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    Hello,
    Inventory,
    JobRef,
    Lane,
    Message,
    Refused,
    ScaleRequest,
    Status,
)
from slicebus.proto.topology import manager_queue
from slicebus.slices.jobs import KINDS

_log = structlog.get_logger()
_SUBJECT, _EPOCH, _SEQUENCE = (f"{PREFIX}{name}" for name in ("subject", "epoch", "sequence"))


class Inbox:
    """The manager's two lanes."""

    def __init__(
        self,
        *,
        bus: Bus,
        store: Store,
        executor: Executor,
        look: Callable[[JobRef], None],
        resyncer: Resyncer,
        registry: CollectorRegistry,
        on_dead: OnDead | None = None,
    ) -> None:
        self._bus = bus
        self._on_dead = on_dead
        self._store = store
        self._executor = executor
        self._look = look
        self._resyncer = resyncer
        self.heard_at: dict[ClusterName, float] = {}
        """When each cluster last spoke, in the loop's time."""
        self._newest: dict[tuple[ClusterName, JobRef], tuple[int, int]] = {}
        """Epoch and sequence of the last status of each job."""
        self._received = Counter(
            "slicebus_manager_messages", "Messages received from agents.", ["cluster", "type"], registry=registry
        )

    async def run(self, lane: Lane, *, prefetch: int) -> None:
        """Handle one lane until cancelled."""
        async with self._bus.subscribe(manager_queue(lane), prefetch=prefetch) as subscription:
            await dispatch(subscription, self._handle, key=_line, on_dead=self._on_dead, superseded=_is_superseded)

    async def _handle(self, delivery: Delivery) -> None:
        received = decode(as_sent(delivery.message, trusted=self._bus.user))
        envelope, message = received.envelope, received.message
        try:
            intake.authorize(envelope, fleet.senders(self._store.clusters.all()))
        except ProtocolError as error:
            if isinstance(message, Heartbeat) and error.reason is DeadReason.UNKNOWN_CLUSTER:
                _log.info("heartbeat.ignored", cluster=envelope.cluster, detail=error.detail)
                return
            raise
        self._received.labels(envelope.cluster, envelope.type).inc()
        self.heard_at[envelope.cluster] = asyncio.get_running_loop().time()
        await self._executor.run(
            [*self._decide(received), *self._resyncer.answer(envelope, message)], caused_by=envelope
        )
        if isinstance(message, Hello):
            self._deliver_again(envelope.cluster)
        if isinstance(message, Inventory):
            await self._resyncer.take(envelope, message)

    def _decide(self, received: Received) -> Sequence[Command]:
        envelope, message, now = received.envelope, received.message, now_text()
        match message:
            case Hello() | Heartbeat():
                return self._decide_cluster(envelope, message, now)
            case ScaleRequest():
                return intake.scale_request(self._store.view(_known(message.job)), message, envelope)
            case Applied():
                return intake.applied(self._store.view(_known(message.job)), message, envelope)
            case Refused():
                return intake.refused(self._store.view(_known(message.job)), message, envelope, now=now)
            case Status():
                return self._decide_status(envelope, message, now)
            case Inventory():
                return []
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{message.type} is not for a manager")

    def _decide_cluster(self, envelope: Envelope, message: Message, now: str) -> Sequence[Command]:
        cluster = self._store.clusters.get(None, envelope.cluster)
        if cluster is None:
            return []
        if isinstance(message, Hello):
            return fleet.hello(cluster, message, envelope, now=now)
        assert isinstance(message, Heartbeat)
        return fleet.heartbeat(cluster, message, envelope, now=now)

    def _decide_status(self, envelope: Envelope, message: Status, now: str) -> Sequence[Command]:
        """A status that was put back may come after a newer one of its job, and is then no longer true."""
        view, key = self._store.view(_known(message.job)), (envelope.cluster, message.job)
        if view.job is None:
            self._newest.pop(key, None)
            return []
        at = envelope.epoch, envelope.sequence
        if at < self._newest.get(key, at):
            return []
        self._newest[key] = at
        return intake.status(view, message, envelope, now=now)

    def _deliver_again(self, cluster: ClusterName) -> None:
        """An agent that has just started may not have what was published to the one before it."""
        for ref in set(self._store.refs()):
            if self._store.view(ref).cluster == cluster:
                self._store.published.pop(ref, None)
                self._look(ref)


def _line(delivery: Delivery) -> str:
    """Messages of one object of one cluster stay in order."""
    cluster = delivery.message.routing_key.partition(".")[0]
    return f"{cluster}/{delivery.message.headers.get(_SUBJECT, '')}"


def _is_superseded(older: Delivery, newer: Delivery) -> bool:
    """Whether both are statuses of one job from one agent, and the second was said later."""
    first, second = older.message, newer.message
    if first.routing_key != second.routing_key or not first.routing_key.endswith(f".{Status.type}"):
        return False
    if first.user_id != second.user_id or first.headers.get(_EPOCH) != second.headers.get(_EPOCH):
        return False
    numbers = [message.headers.get(_SEQUENCE, "") for message in (first, second)]
    return all(number.isdecimal() for number in numbers) and int(numbers[0]) < int(numbers[1])


def _known(ref: JobRef) -> JobRef:
    if ref.kind not in KINDS:
        raise ProtocolError(DeadReason.REFUSED, f"no job kind {ref.kind!r}")
    return ref
