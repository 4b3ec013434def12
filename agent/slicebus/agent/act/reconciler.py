"""Reconciles a job whenever one of its objects has changed."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from slicebus.agent.act.fence import Fence
from slicebus.agent.decide import catalog
from slicebus.agent.decide.catalog import Cause, Continuation, Work
from slicebus.agent.decide.cluster.reach import Unreached
from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.job.inventory import lacks_copy
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.ambient.backoff import Backoff
from slicebus.ambient.lasting_failures import OBJECT_PATIENCE, LastingFailures
from slicebus.decisions.decider import Decider
from slicebus.decisions.guard import guarded
from slicebus.decisions.table import FORGOTTEN
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.times import now_text
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    NotFoundError,
    NotServedError,
    PermanentError,
    SlicebusError,
    TransientError,
    UnavailableError,
    WebhookError,
)
from slicebus.proto.messages import Manifest
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_ASK_AGAIN_S = 20.0
"""After so long the manager is told again that a job lacks its Workload copy."""
_SHOW_AGAIN_S = 30.0
"""After so long the API server is asked again to take what a job shows."""
_CONFLICTS = Backoff(first_s=0.02, most_s=5.0)
_NO_RIGHT = 'cannot patch resource "pods"'
"""The API server's words for a right that is missing, which no single job is in need of."""
_MOST_STEPS = 100
"""Of one job in a row, each after the changes of the one before. What needs more goes round in a circle."""


class AgentReconciler:
    """The handler of the agent's work queue."""

    def __init__(
        self,
        *,
        client: KubeClient,
        informers: Informers,
        decide: Decider[AgentStore],
        executor: Executor,
        locks: Locks[JobKey],
        queue: WorkQueue[JobKey],
        fence: Fence,
        unreached: Callable[[JobKey], Unreached | None],
        ask_inventory: Callable[[], None],
        reconciled: Callable[[JobKey], None] = lambda _: None,
    ) -> None:
        """`unreached` gives what keeps the manager from answering about a job. `reconciled` is called after everything
        that one job needed."""
        self._client = client
        self._informers = informers
        self._ask_inventory = ask_inventory
        self._reconciled = reconciled
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._locks = locks
        self._queue = queue
        self._fence = fence
        self._unreached = unreached
        self._failures = LastingFailures[JobKey](OBJECT_PATIENCE)
        self._epoch = 0
        self._not_taken_over: set[JobKey] = set()
        """The jobs with pods that an earlier agent may still be about to ungate."""
        self._ask_at_s: dict[JobKey, float] = {}
        """When the manager is told again of each job that lacks its Workload copy, by the loop's clock."""
        self._store.confirmed_suspended.observe(_log_suspended)

    def mark_reported(self, key: JobKey) -> None:
        """Note the status of the job as reported: an inventory has it. Changes and resyncs lead to further reports."""
        status = guarded(lambda: reconcile.status(self._store.view(key)))
        if status is not None:
            self._store.reported.setdefault(key, (status, 0.0))

    async def take_over_pods(self, epoch: int) -> None:
        """Write to each pod that an earlier agent may still be about to ungate, so that its request conflicts. Call
        this before anything else.

        Where a policy or a webhook refuses that for pods of one job, these are taken over before anything else is done
        for that job, and all others go on. Raises ForbiddenError where the agent may patch no pods.
        """
        self._epoch = epoch
        try:
            await self._take_over_pods(epoch, job=None)
        except (DecisionError, PermanentError, WebhookError) as error:
            _log.error("pods.not_taken_over", error=str(error), exc_info=error)
            for key in dict.fromkeys(self._store.our_jobs()):
                with suppress(DecisionError):  # Nothing starts its pods while decisions about it raise.
                    await self._take_over_pods_of(key)

    async def _take_over_pods_of(self, key: JobKey) -> None:
        try:
            await self._take_over_pods(self._epoch, job=key)
        except (PermanentError, WebhookError) as error:
            if _NO_RIGHT in str(error):
                raise
            _log.error("pods.not_taken_over", job=str(key), error=str(error))
            self._not_taken_over.add(key)

    async def _take_over_pods(self, epoch: int, *, job: JobKey | None) -> None:
        failures = 0
        while commands := self._decide(catalog.take_over_pods, epoch=epoch, job=job):
            try:
                await self._executor.run(commands)
            except ConflictError:  # The executor has read the pod again.
                failures += 1
                await asyncio.sleep(_CONFLICTS.pause_s(failures))

    async def reconcile_job(self, key: JobKey) -> None:
        """Do everything that one job needs now. What the API server refuses, or fails at for long, is told, and raised.
        So is a DecisionError, which the job shows until a decision about it succeeds."""
        async with self._locks.of(key):
            try:
                if await self.reconcile_in_turn(key) is Continuation.FIND:
                    await self._reconcile_absent(key)
                guarded(self._ask_for_copy, key)
                guarded(self._reconciled, key)
            except (PermanentError, UnavailableError) as error:
                if self._failures.has_lasted(key, error, now_s=asyncio.get_running_loop().time()):
                    await self._tell_refused(key, error)
                raise
            except DecisionError as error:
                await self._show(key, error)
                raise
            self._failures.forget(key)
            if self._store.refused_writes.pop(key, None) is not None:
                self._queue.add(key)

    def _ask_for_copy(self, key: JobKey) -> None:
        """Have the manager hear at once that a job lacks its copy: until it is there no pod may start.

        It is told again after a while: an inventory says nothing of a job that was reported on since, and a manager
        that was away may read those reports first.
        """
        if not lacks_copy(self._store.view(key)):
            self._ask_at_s.pop(key, None)
            return
        now_s = asyncio.get_running_loop().time()
        due_s = self._ask_at_s.get(key, now_s)
        if now_s >= due_s:
            self._ask_at_s[key] = due_s = now_s + _ASK_AGAIN_S
            self._ask_inventory()
        self._queue.add_after(key, due_s - now_s)

    async def _tell_refused(self, key: JobKey, error: SlicebusError) -> None:
        """Say on a job, and tell the manager, that the API server refuses what it needs. The status goes out all the
        same: an end must not wait for that."""
        try:
            await self._executor.run(self._decide(catalog.note_refused, key=key, problem=str(error), now=now_text()))
            now_s = asyncio.get_running_loop().time()
            await self._executor.run(self._decide(catalog.report, key=key, now_s=now_s))
        except (ConflictError, DecisionError, PermanentError, TransientError) as untold:
            _log.warning("refusal.untold", job=str(key), error=str(untold))

    async def reconcile_in_turn(self, key: JobKey) -> Continuation:
        """Do what a job needs that is in the cache. The caller holds its lock. Raises DecisionError for a job whose
        steps have no end.

        What the API server refuses to show holds up nothing: it is left out, and tried again after a while.
        """
        shows = True
        if key in self._not_taken_over:
            await self._take_over_pods(self._epoch, job=key)
            self._not_taken_over.discard(key)
        for _ in range(_MOST_STEPS):
            continuation, commands = self._work(key, shows=shows)
            if not await self._executor.run(commands):
                shows = False
                self._queue.add_after(key, _SHOW_AGAIN_S)
            if continuation is not Continuation.AGAIN:
                return continuation
        raise DecisionError.of("reconcile_job", RecursionError())

    async def _show(self, key: JobKey, error: DecisionError) -> None:
        """Show on a job that it is set aside. What cannot be written now is written after the next try."""
        try:
            await self._executor.run(self._decide(catalog.show_set_aside, key=key, problem=str(error)))
        except (ConflictError, DecisionError, PermanentError, TransientError) as unwritten:
            _log.warning("job.unshown", job=str(key), error=str(unwritten))

    def _work(self, key: JobKey, *, shows: bool) -> Work:
        self._queue.seen(key)
        return self._decide(
            catalog.reconcile_job,
            key=key,
            fenced=self._fence.closed,
            unreached=self._unreached(key),
            now=now_text(),
            now_s=asyncio.get_running_loop().time(),
            shows=shows,
        )

    async def _reconcile_absent(self, key: JobKey) -> None:
        """Reconcile a job that is missing: the manager ordered its deletion, or somebody else deleted it."""
        stored = self._store.view(key).job or await self._find(key)
        cause, commands = self._decide(catalog.reconcile_absent, key=key, stored=stored, now=now_text())
        await self._executor.run(commands)
        if cause is not None:
            _log.info("job.gone", job=str(key), cause=cause)
        if cause is Cause.DEFINITION:
            self._ask_inventory()

    async def _find(self, key: JobKey) -> Manifest | None:
        """The job on the API server, or None: an empty cache is no evidence. Raises UnavailableError where the job may
        be missing because the definition of its kind is."""
        resource = JOB_RESOURCES[key.kind]
        try:
            return await self._client.get(resource, key.name, key.namespace)
        except NotServedError as error:
            if key.kind not in self._store.unserved:
                await self._informers.confirm(resource)
                raise UnavailableError(f"{resource.plural} are not served now: {error}") from error
            return None
        except NotFoundError:
            if key.kind not in self._store.unserved:
                await self._informers.confirm(resource)
            return None


def _log_suspended(key: JobKey, confirmed: object) -> None:
    if confirmed is not FORGOTTEN:
        _log.info("job.suspended", job=str(key))
