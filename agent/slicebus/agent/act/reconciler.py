"""Reconciles a job whenever one of its objects has changed."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.agent.act.fence import Fence
from slicebus.agent.act.job_locks import JobLocks
from slicebus.agent.act.tombstones import Tombstones
from slicebus.agent.decide import catalog, reconcile
from slicebus.agent.decide.catalog import NextStage, Stage
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import Store
from slicebus.agent.state.views import JobKey
from slicebus.decisions.commands import Command, Patch, Publish
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import ConflictError, NotFoundError, SlicebusError, TransientError
from slicebus.proto.messages import Applied, Manifest, Status
from slicebus.runtime.executor import Executor

_log = structlog.get_logger()
_CONCURRENT_WRITES = 16


class Reconciler:
    """The handler of the agent's work queue."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        client: KubeClient,
        informers: Informers,
        decide: Decider[Store],
        executor: Executor,
        tombstones: Tombstones,
        locks: JobLocks,
        queue: WorkQueue[JobKey],
        fence: Fence,
        ask_inventory: Callable[[], None],
        registry: CollectorRegistry,
    ) -> None:
        self._settings = settings
        self._client = client
        self._informers = informers
        self._ask_inventory = ask_inventory
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._tombstones = tombstones
        self._locks = locks
        self._queue = queue
        self._fence = fence
        self._reported = decide.state.reported
        self._requests = Counter("slicebus_agent_scale_requests", "Scale requests published.", registry=registry)
        self._ungated = Counter("slicebus_agent_ungated_pods", "Pods whose gate was removed.", registry=registry)

    def report_again(self, keys: Iterable[JobKey]) -> None:
        """Report the status of these jobs again, and publish again every request that no order has answered."""
        for key in keys:
            if key.kind not in JOB_RESOURCES:
                continue
            self._reported.pop(key, None)
            self._store.published.pop(key, None)
            self._queue.add(key)

    def mark_reported(self, key: JobKey) -> None:
        """Take the status of the job as reported: an inventory has it. Changes and resyncs lead to further reports."""
        status = reconcile.status(self._store.view(key))
        if status is not None:
            self._reported.setdefault(key, (status, 0.0))

    async def take_over_pods(self, epoch: int) -> None:
        """Write to each pod that an earlier agent may still be about to ungate: its request then conflicts. Call this
        before anything else."""
        while commands := self._decide(catalog.take_over_pods, epoch=epoch):
            await self._write(commands)

    async def reconcile_job(self, key: JobKey) -> None:
        """Do everything that one job needs now."""
        async with self._locks.of(key):
            await self._reconcile(key)

    async def _reconcile(self, key: JobKey) -> None:
        while (found := self._next_stage(key)) is not None:
            if not await self._carry_out(key, found):
                return
        job = self._store.view(key).job
        if job is None or not annotations.is_ours(job):
            await self._reconcile_absent(key, job)

    def _next_stage(self, key: JobKey) -> NextStage | None:
        self._queue.seen(key)
        return self._decide(
            catalog.reconcile_job,
            key=key,
            cluster=self._settings.cluster,
            fenced=self._fence.closed,
            now_s=asyncio.get_running_loop().time(),
            interval_s=self._settings.status_interval_s,
        )

    async def _carry_out(self, key: JobKey, found: NextStage) -> bool:
        """Carry out a stage; return whether another may follow."""
        match found:
            case Stage.REMOVE_TOMBSTONED, commands:
                await self._executor.run(commands)
                return False
            case Stage.REPORT_DELETED, commands:
                await self._publish_reports(commands)
            case Stage.TAKE_OFF_TTL | Stage.LINK_COPIES, commands:
                await self._executor.run(commands)
            case Stage.CONFIRM_SUSPENDED, commands:
                await self._confirm_suspended(key, commands)
            case Stage.REQUEST, commands:
                self._requests.inc(sum(isinstance(command, Publish) for command in commands))
                await self._executor.run(commands)
            case Stage.UNGATE, commands:
                return await self._ungate(commands)
            case Stage.REPORT, commands:
                await self._report(key, commands)
                return False
        return True

    async def _confirm_suspended(self, key: JobKey, commands: Sequence[Command]) -> None:
        await self._executor.run(commands)
        for command in commands:
            match command:
                case Publish(message=Applied(job=job, spec_version=version)):
                    self._store.confirmed_suspended[key] = job.uid, version
                    _log.info("job.suspended", job=str(key))

    async def _ungate(self, commands: Sequence[Command]) -> bool:
        return await self._write(
            commands,
            unless=lambda: self._fence.closed,
            done=self._ungated.inc,
            unanswered=self._may_have_started,
        )

    def _may_have_started(self, command: Command) -> None:
        assert isinstance(command, Patch)
        metadata = command.target["metadata"]
        self._store.unanswered[metadata["uid"]] = metadata["resourceVersion"]

    async def _write(
        self,
        commands: Sequence[Command],
        *,
        unless: Callable[[], bool] = lambda: False,
        done: Callable[[], None] = lambda: None,
        unanswered: Callable[[Command], None] = lambda _: None,
    ) -> bool:
        """Write to pods concurrently; return whether no write conflicted. After a conflict the pod's event requeues the
        job. Raises the first error; the requeued job is then decided again.

        `unless` stops writes that have not begun. `unanswered` gets each command whose effect is unknown.
        """
        free = asyncio.Semaphore(_CONCURRENT_WRITES)
        errors: list[SlicebusError] = []
        conflicts: list[ConflictError] = []

        async def one(command: Command) -> None:
            async with free:
                if unless():
                    return
                try:
                    await self._executor.run([command])
                except ConflictError as error:
                    _log.info("pod.conflict", error=str(error))
                    conflicts.append(error)
                except TransientError as error:
                    unanswered(command)
                    errors.append(error)
                except SlicebusError as error:
                    errors.append(error)
                else:
                    done()

        async with asyncio.TaskGroup() as group:
            for command in commands:
                group.create_task(one(command), name="write:pod")
        if errors:
            raise errors[0]
        return not conflicts

    async def _report(self, key: JobKey, commands: Sequence[Command]) -> None:
        now_s = asyncio.get_running_loop().time()
        reports = [c.message for c in commands if isinstance(c, Publish) and isinstance(c.message, Status)]
        # Noted before publishing: the manager may ask for it again before the broker has confirmed it.
        for report in reports:
            self._reported[key] = report, now_s
        try:
            await self._executor.run(commands)
        except BaseException:
            if reports:
                self._reported.pop(key, None)
            raise

    async def _reconcile_absent(self, key: JobKey, known: Manifest | None) -> None:
        """Reconcile a job that is missing: the manager ordered its deletion, or somebody else deleted it."""
        self._reported.pop(key, None)
        found = known or await self._find(key)
        await self._publish_reports(
            self._decide(catalog.reconcile_absent, key=key, found=found, cluster=self._settings.cluster)
        )

    async def _publish_reports(self, reports: Sequence[Command]) -> None:
        """Publish reports one by one, and note each as reported."""
        for command in reports:
            await self._executor.run([command])
            match command:
                case Publish(message=Applied(job=job, spec_version=version, deleted=True)):
                    self._tombstones.mark_reported(job, version)
                case Publish(message=Status(job=job, phase=phase, seen=seen)):
                    _log.info("job.gone", job=job.key, phase=phase, seen=seen is True)
                case Patch(target=copy):
                    _log.warning("job.gone.with_definition", workload=copy["metadata"]["name"])
                    self._ask_inventory()

    async def _find(self, key: JobKey) -> Manifest | None:
        """The job on the API server, or None: an empty cache is no evidence. Raises UnavailableError where the job may
        be missing because the definition of its kind is."""
        resource = JOB_RESOURCES[key.kind]
        try:
            return await self._client.get(resource, key.name, key.namespace)
        except NotFoundError:
            if key.kind not in self._store.unserved:
                await self._informers.confirm(resource)
            return None
