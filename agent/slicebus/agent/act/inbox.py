"""Receives orders: decodes each, checks its sender, carries out its steps, then acknowledges the delivery."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from slicebus.agent.act import fence
from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.policy import PolicySource
from slicebus.agent.act.tombstones import Tombstones
from slicebus.agent.decide import catalog
from slicebus.agent.decide.order import triage
from slicebus.agent.decide.order.refusals import reason_of, refusal
from slicebus.agent.decide.order.triage import Triage, Triaged
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.ambient.backoff import Backoff
from slicebus.ambient.lasting_failures import MESSAGE_PATIENCE, LastingFailures
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.lanes import Backlog, consume
from slicebus.bus.metering import OnSettled
from slicebus.decisions.decider import Decider, Incoming
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.times import now_text
from slicebus.proto.codec import decode_order
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    PermanentError,
    TransientError,
    WebhookError,
)
from slicebus.proto.headers import SUBJECT
from slicebus.proto.messages import (
    ClusterUid,
    Delete,
    JobOrder,
    Lane,
    Order,
    Pending,
    Relabel,
    Resync,
    Suspend,
    Terms,
    WorkloadSpec,
    version_of,
)
from slicebus.proto.topology import agent_queue
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_FENCE = f"ConfigMap {fence.NAME}"
_AWAITING = Backoff(first_s=0.2, most_s=5.0)


class AgentInbox:
    """Consumes the queues of this cluster, one for each lane."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        bus: Bus,
        cluster_uid: ClusterUid,
        decide: Decider[AgentStore],
        executor: Executor,
        tombstones: Tombstones,
        locks: Locks[JobKey],
        policy: PolicySource,
        reconcile: Callable[[JobKey], Awaitable[object]],
        requeue: Callable[[JobKey], None],
        ask_inventory: Callable[[], None],
        terms: Callable[[Terms], Awaitable[None]],
        addressees: Addressees,
        backlog: Backlog,
        on_settled: OnSettled,
        note: Callable[[Envelope, Order], None] = lambda *_: None,
    ) -> None:
        """`reconcile` does what a job needs; the caller holds the job's lock. `note` gets every order that is taken."""
        self._settings = settings
        self._bus = bus
        self._cluster_uid = cluster_uid
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._tombstones = tombstones
        self._locks = locks
        self._policy = policy
        self._reconcile = reconcile
        self._requeue = requeue
        self._ask_inventory = ask_inventory
        self._terms = terms
        self._addressees = addressees
        self._backlog = backlog
        self._on_settled = on_settled
        self._note_taken = note
        self.unkept: dict[str, str] = {}
        """Of the agent's own objects what could not be written for the last terms, with the error."""
        self._open: set[str] = set()
        self._failures = LastingFailures[JobKey](MESSAGE_PATIENCE)

    def queues(self) -> list[str]:
        """The names of its queues."""
        return [agent_queue(self._settings.cluster, lane, self._cluster_uid) for lane in Lane]

    @property
    def not_ready(self) -> str:
        """Why orders do not reach it, for people; empty while it has its queues."""
        missing = next((name for name in self.queues() if name not in self._open), None)
        if missing is None:
            return ""
        return f"waits: queue {missing} is missing; the manager makes it for the cluster it has accepted by this name"

    async def run(self, queue: str) -> None:
        """Handle one queue until cancelled. The manager makes it when it first answers, so it is waited for. Raises
        NotFoundError when the queue has gone: what lay in it is asked for when the agent begins anew. So it does, and
        says what it waits for, after a ForbiddenError when the queue may not be read any more."""
        prefetch = self._settings.prefetch_of(len(self.queues()))
        for failures in itertools.count(1):
            try:
                async with self._bus.subscribe(queue, prefetch=prefetch) as subscription:
                    self._open.add(queue)
                    await consume(
                        subscription,
                        self._handle,
                        key=_subject,
                        backlog=self._backlog,
                        on_settled=self._on_settled,
                    )
                return
            except (NotFoundError, ForbiddenError, TransientError) as error:
                if queue in self._open and not isinstance(error, TransientError):
                    raise
                _log.info("queue.awaited", queue=queue, error=str(error))
                await asyncio.sleep(_AWAITING.pause_s(failures))

    async def _handle(self, delivery: Delivery) -> None:
        incoming = self._decide.receive(delivery.message, decode_order)
        match incoming.message:
            case Resync(jobs=jobs):
                await self._executor.run(self._triage(incoming, delivery).commands)
                if not jobs:
                    self._ask_inventory()
            case Terms() as terms:
                await self._executor.run(self._triage(incoming, delivery).commands)
                await self._accept(terms)
            case order:
                async with self._locks.of(JobKey.of(order.job)):
                    await self._take(incoming, order, delivery)

    def _triage(self, incoming: Incoming[Order], delivery: Delivery) -> Triaged:
        return self._decide(triage.triage, incoming=incoming, redelivered=delivery.redelivered > 0)

    async def _take(self, incoming: Incoming[Order], order: JobOrder, delivery: Delivery) -> None:
        """Carry out an order, and requeue its job."""
        job, key = order.job, JobKey.of(order.job)
        outcome, commands = self._triage(incoming, delivery)
        if outcome is Triage.NOT_SERVED:
            await self._answer_unserved(incoming, order)
            return
        if outcome is Triage.OVERTAKEN:
            return
        self._addressees.note(job, incoming.envelope.shard)
        self._note_taken(incoming.envelope, order)
        if outcome is Triage.DOUBTFUL:
            _log.info("order.doubtful", job=job.key, type=order.type)
            self._ask_inventory()
            return
        self._note(order, ended=outcome is not Triage.TAKEN or isinstance(order, Delete))
        await self._executor.run(commands)
        try:
            if isinstance(order, Delete) or (isinstance(order, Suspend) and outcome is Triage.UNKNOWN):
                await self._tombstones.add(job, order.spec_version)
            if outcome is Triage.TAKEN:
                await self._refresh_foreign(key)
                await self._carry_out(incoming, order)
        except PermanentError as error:
            await self._answer_refused(incoming, order, error)
        except (ConflictError, TransientError) as error:
            if not self._is_stuck(order, error):
                raise
            await self._answer_refused(incoming, order, error)
        self._failures.forget(key)
        self._requeue(key)

    async def _carry_out(self, incoming: Incoming[Order], order: JobOrder) -> None:
        if isinstance(order, WorkloadSpec):
            await self._policy.refresh(order.job)
        number: int | None = 0
        while number is not None:
            is_first = number == 0
            number, commands = self._decide(catalog.proceed, incoming=incoming, number=number, now=now_text())
            await self._executor.run(commands, caused_by=incoming.envelope)
            if is_first and isinstance(order, Relabel):
                await self._let_start(JobKey.of(order.job))

    def _is_stuck(self, order: JobOrder, error: ConflictError | TransientError) -> bool:
        """Whether an order has waited for so long that the manager is to hear of it: for a webhook that has to agree,
        for an object before it that does not go, or for an API server that fails at this write alone. One that is away
        says nothing of an order, which goes on as soon as it is back. A notice waits: nobody repeats it."""
        if isinstance(order, Pending) and not isinstance(error, WebhookError):
            return False
        return self._failures.has_lasted(JobKey.of(order.job), error, now_s=asyncio.get_running_loop().time())

    async def _answer_refused(
        self, incoming: Incoming[Order], order: JobOrder, error: PermanentError | ConflictError | TransientError
    ) -> None:
        """Tell the manager that this cluster refuses an order: it shows why, and sends it again in a while. A notice
        that cannot be shown is let go."""
        _log.warning("order.refused", job=order.job.key, type=order.type, reason=reason_of(error), error=str(error))
        if not isinstance(order, Pending):
            refused = refusal(order, error, self._settings.cluster)
            await self._executor.run(refused, caused_by=incoming.envelope)

    async def _accept(self, terms: Terms) -> None:
        """Accept terms. Those that cannot be kept, as the fence cannot be written, come again with the next answer."""
        try:
            await self._terms(terms)
        except (PermanentError, ConflictError, TransientError) as error:
            _log.warning("terms.refused", version=terms.version, error=str(error))
            self.unkept = {_FENCE: str(error)}
        else:
            self.unkept = {}

    async def _let_start(self, key: JobKey) -> None:
        """Let the pods start that an order has just granted, before the rest of the order. What fails here is tried
        again with the job's next reconcile."""
        with suppress(ConflictError, TransientError, PermanentError):
            await self._reconcile(key)

    async def _answer_unserved(self, incoming: Incoming[Order], order: JobOrder) -> None:
        answer = self._decide(triage.answer_unserved, incoming=incoming)
        _log.warning("order.kind_not_served", job=order.job.key, type=order.type)
        if isinstance(order, Suspend | Delete):
            try:
                # An agent that has the package later creates nothing by an older order.
                await self._tombstones.add(order.job, order.spec_version)
            except PermanentError as error:
                await self._answer_refused(incoming, order, error)
                return
        await self._executor.run(answer, caused_by=incoming.envelope)

    def _note(self, order: JobOrder, *, ended: bool) -> None:
        """Keep the newest ordered version of the job; drop it where the job has ended."""
        job, key, version = order.job, JobKey.of(order.job), version_of(order)
        if ended:
            if self._store.ordered.get(key, (job.uid, 0))[0] == job.uid:
                self._store.ordered.pop(key, None)
        elif version is not None:
            uid, known = self._store.ordered.get(key, (job.uid, 0))
            self._store.ordered[key] = (job.uid, max(version, known) if uid == job.uid else version)

    async def _refresh_foreign(self, key: JobKey) -> None:
        """Read a foreign job again: the cache has it since a create failed, and the watch brings only our jobs."""
        job = self._store.view(key).job
        if job is not None and not annotations.is_ours(job):
            await self._executor.refresh(JOB_RESOURCES[key.kind], job)


def _subject(delivery: Delivery) -> str:
    """The key of a delivery's queue: messages about one object stay in order."""
    return delivery.message.headers.get(SUBJECT, "")
