"""Looks at a job whenever something of it has changed, and does what that asks for."""

import asyncio
from collections.abc import Iterable

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.agent import marks, watching
from slicebus.agent.settings import AgentSettings
from slicebus.agent.store import Store
from slicebus.agent.tombstones import Tombstones
from slicebus.agent.views import JobKey, WorkerView
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.kube.workqueue import WorkQueue
from slicebus.process.commands import Command, Publish
from slicebus.process.executor import Executor
from slicebus.proto.errors import ConflictError, NotFoundError, SlicebusError
from slicebus.proto.messages import Applied, JobPhase, Manifest, Status

_log = structlog.get_logger()
_CONCURRENT_UNGATES = 16


class Watcher:
    """The handler of the agent's work queue."""

    def __init__(
        self,
        settings: AgentSettings,
        *,
        client: KubeClient,
        store: Store,
        executor: Executor,
        tombstones: Tombstones,
        queue: WorkQueue[JobKey],
        registry: CollectorRegistry,
    ) -> None:
        self._settings = settings
        self._client = client
        self._store = store
        self._executor = executor
        self._tombstones = tombstones
        self._queue = queue
        self._reported: dict[JobKey, tuple[Status, float]] = {}
        self._requests = Counter("slicebus_agent_scale_requests", "Scale requests published.", registry=registry)
        self._ungated = Counter("slicebus_agent_ungated_pods", "Pods whose gate was removed.", registry=registry)

    def report_again(self, keys: Iterable[JobKey]) -> None:
        """Report on these jobs, whatever was reported before."""
        for key in keys:
            if key.kind not in JOB_RESOURCES:
                continue
            self._reported.pop(key, None)
            self._queue.add(key)

    def take_as_reported(self, key: JobKey) -> None:
        """The job's status is in an inventory: it is reported when it changes, or when the manager asks for it."""
        status = watching.status(self._store.view(key))
        if status is not None:
            self._reported.setdefault(key, (status, 0.0))

    async def look(self, key: JobKey) -> None:
        """Everything that one job needs now."""
        view = self._store.view(key)
        if view.job is None or not marks.is_ours(view.job):
            await self._look_at_nothing(view)
            return
        await self._tell_ends(key, present=view.job)
        await self._executor.run(watching.link(view))
        while steps := watching.request(self._store.view(key), self._settings.cluster):
            self._requests.inc(sum(isinstance(command, Publish) for command in steps))
            await self._executor.run(steps)
        await self._ungate(self._store.view(key))
        await self._report(self._store.view(key))

    async def _ungate(self, view: WorkerView) -> None:
        """Let pods start beside each other. What fails is tried again with the next look; the first error is raised."""
        free = asyncio.Semaphore(_CONCURRENT_UNGATES)
        errors: list[SlicebusError] = []

        async def one(command: Command) -> None:
            async with free:
                try:
                    await self._executor.run([command])
                except ConflictError as error:
                    # The pod changed or went; its own event brings the job back here.
                    _log.info("ungate.conflict", job=str(view.key), error=str(error))
                except SlicebusError as error:
                    errors.append(error)
                else:
                    self._ungated.inc()

        async with asyncio.TaskGroup() as group:
            for command in watching.ungate(view):
                group.create_task(one(command), name=f"ungate:{view.key}")
        if errors:
            raise errors[0]

    async def _report(self, view: WorkerView) -> None:
        """Publish the status when it has changed: an end at once, the rest not too often."""
        status = watching.status(view)
        if status is None:
            return
        now = asyncio.get_running_loop().time()
        last, reported_at = self._reported.get(view.key, (None, 0.0))
        if status == last:
            return
        due_s = reported_at + self._settings.status_interval_s - now if last is not None else 0.0
        if due_s > 0 and status.phase is JobPhase.RUNNING:
            self._queue.add_after(view.key, due_s)
            return
        await self._executor.run([Publish(cluster=self._settings.cluster, message=status)])
        self._reported[view.key] = status, now

    async def _look_at_nothing(self, view: WorkerView) -> None:
        """A job that is not there: was it deleted on the manager's order, or by somebody else?"""
        key = view.key
        self._reported.pop(key, None)
        found = view.job or await self._find(key)
        if found is not None and (marks.is_ours(found) or found["metadata"]["uid"] in watching.linked(view)):
            raise ConflictError(f"{key} is there, the watch has not brought it yet")
        await self._tell_ends(key, present=None)
        gone = watching.gone(view)
        ended = {tombstone.job.uid: tombstone.version for tombstone in self._tombstones.named(key)}
        if gone is not None and ended.get(gone.job.uid, -1) < gone.spec_version:
            _log.info("job.gone", job=str(key))
            await self._executor.run([Publish(cluster=self._settings.cluster, message=gone)])

    async def _tell_ends(self, key: JobKey, *, present: Manifest | None) -> None:
        """Answer the deletes of jobs that had the name and are really gone: `present` is what has the name now."""
        for tombstone in self._tombstones.named(key):
            if self._tombstones.is_owed(tombstone) and not (present and marks.is_of(present, tombstone.job)):
                applied = Applied(job=tombstone.job, workload="", spec_version=tombstone.version, deleted=True)
                await self._executor.run([Publish(cluster=self._settings.cluster, message=applied)])
                self._tombstones.told(tombstone)

    async def _find(self, key: JobKey) -> Manifest | None:
        """What the API server has under the name: an empty cache is no evidence."""
        try:
            return await self._client.get(JOB_RESOURCES[key.kind], key.name, key.namespace)
        except NotFoundError:
            return None
