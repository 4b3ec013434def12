"""Receives what the manager publishes: decode, check the sender, take the steps; then the delivery is acknowledged."""

from collections.abc import Callable

import structlog

from slicebus.agent import marks, orders
from slicebus.agent.orders import Step
from slicebus.agent.settings import AgentSettings
from slicebus.agent.store import Store
from slicebus.agent.tombstones import Tombstones
from slicebus.agent.views import JobKey
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.lanes import dispatch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.process.executor import Executor
from slicebus.proto.codec import decode
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, PermanentError, ProtocolError
from slicebus.proto.messages import (
    Delete,
    JobRef,
    Lane,
    Message,
    Pending,
    Relabel,
    Resync,
    Suspend,
    WorkloadSpec,
)
from slicebus.proto.topology import agent_queue

_log = structlog.get_logger()
_SUBJECT = "cloudEvents_subject"


class Inbox:
    """The agent's two lanes."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        bus: Bus,
        store: Store,
        executor: Executor,
        tombstones: Tombstones,
        look: Callable[[JobKey], None],
        resync: Callable[[Resync], None],
    ) -> None:
        self._settings = settings
        self._bus = bus
        self._store = store
        self._executor = executor
        self._tombstones = tombstones
        self._look = look
        self._resync = resync

    async def run(self, lane: Lane) -> None:
        """Handle one lane until cancelled."""
        queue = agent_queue(self._settings.cluster, lane)
        async with self._bus.subscribe(queue, prefetch=self._settings.prefetch) as subscription:
            await dispatch(subscription, self._handle, key=_line)

    async def _handle(self, delivery: Delivery) -> None:
        received = decode(delivery.message)
        self._authorize(received.envelope)
        message = received.message
        if isinstance(message, Resync):
            self._resync(message)
            return
        job = getattr(message, "job", None)
        if not isinstance(job, JobRef):
            raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{message.type} is not for an agent")
        if job.kind not in JOB_RESOURCES:
            raise ProtocolError(DeadReason.REFUSED, f"no job kind {job.kind!r}")
        await self._carry_out(message, job, received.envelope)

    def _authorize(self, envelope: Envelope) -> None:
        if envelope.cluster != self._settings.cluster:
            detail = f"for cluster {envelope.cluster!r}, this is {self._settings.cluster!r}"
            raise ProtocolError(DeadReason.UNKNOWN_CLUSTER, detail)
        expected = self._settings.manager_user
        if expected is not None and envelope.user_id != expected:
            detail = f"user {envelope.user_id!r} gives no orders here, only {expected!r} does"
            raise ProtocolError(DeadReason.WRONG_USER, detail)

    async def _carry_out(self, message: Message, job: JobRef, envelope: Envelope) -> None:
        key = JobKey(job.kind, job.namespace, job.name)
        self._note(message, key, job)
        if isinstance(message, Delete):
            await self._tombstones.bury(job, message.spec_version)
        elif self._has_ended(message, job):
            self._tombstones.owe(job)
            self._look(key)
            return
        await self._refresh_foreign(key)
        try:
            for step in self._steps(message):
                await self._executor.run(step(self._store.view(key)), caused_by=envelope)
        except PermanentError as error:
            if not isinstance(message, WorkloadSpec):
                raise
            _log.warning("spec.refused", job=job.key, error=str(error))
            refusal = orders.refusal(message, error, self._settings.cluster)
            await self._executor.run(refusal, caused_by=envelope)
        self._look(key)

    def _note(self, message: Message, key: JobKey, job: JobRef) -> None:
        """What is to be held of the job from now on."""
        version: int | None = getattr(message, "spec_version", None)
        ended = isinstance(message, Delete) or self._has_ended(message, job)
        if ended:
            if self._store.ordered.get(key, (job.uid, 0))[0] == job.uid:
                self._store.ordered.pop(key, None)
        elif version is not None:
            uid, known = self._store.ordered.get(key, (job.uid, 0))
            self._store.ordered[key] = (job.uid, max(version, known) if uid == job.uid else version)

    def _has_ended(self, message: Message, job: JobRef) -> bool:
        """Whether the job has a tombstone that is newer than the message. The answer comes when it is really gone."""
        tombstone = self._tombstones.of(job)
        version = getattr(message, "spec_version", None)
        return tombstone is not None and version is not None and tombstone.version >= version

    async def _refresh_foreign(self, key: JobKey) -> None:
        """Only our jobs are watched: one that is not ours is known from a create that it stood in the way of."""
        job = self._store.view(key).job
        if job is not None and not marks.is_ours(job):
            await self._executor.refresh(JOB_RESOURCES[key.kind], job)

    def _steps(self, message: Message) -> list[Step]:
        cluster = self._settings.cluster
        match message:
            case WorkloadSpec():
                return orders.workload_spec(message, cluster)
            case Relabel():
                return orders.relabel(message, cluster)
            case Suspend():
                return orders.suspend(message, cluster)
            case Delete():
                return orders.delete(message)
            case Pending():
                return orders.pending(message)
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{message.type} is not for an agent")


def _line(delivery: Delivery) -> str:
    """Messages of one object stay in order."""
    return delivery.message.headers.get(_SUBJECT, "")
