"""The manager's process: builds its parts, and runs them in one task group."""

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import structlog

from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.clock import now, random_bytes
from slicebus.decisions.commands import Command
from slicebus.decisions.decider import Decider
from slicebus.journal.recording import Source
from slicebus.journal.recording_shares import PARTS, RecordingShares
from slicebus.kube.cache import Cache
from slicebus.kube.events import EventRecorder
from slicebus.kube.informers import Informers
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, WORKLOADS, Resource
from slicebus.kube.times import now_text
from slicebus.kube.workqueue import WorkQueue
from slicebus.manager.act.admitter import Admitter
from slicebus.manager.act.budget_clock import BudgetClock
from slicebus.manager.act.cluster_lanes import ClusterLanes
from slicebus.manager.act.dead_letter_watch import DeadLetterWatch
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.act.dry_runs import DryRuns
from slicebus.manager.act.fleet_watch import FleetWatch
from slicebus.manager.act.inbox import ManagerInbox
from slicebus.manager.act.publisher import ManagerPublisher
from slicebus.manager.act.reconciler import ManagerReconciler
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.act.router import Router, take_addressed
from slicebus.manager.act.shard_keeper import ShardKeeper
from slicebus.manager.act.status_writer import StatusWriter
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.metrics.clusters import ClusterMetrics
from slicebus.manager.metrics.queues import QueueMetrics
from slicebus.manager.metrics.slices import SliceMetrics
from slicebus.manager.metrics.specs import SpecMetrics
from slicebus.manager.permissions import COMPONENT, lease_of
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.job_changes import on_fleet_change, on_job_change
from slicebus.manager.state.settings import Shard
from slicebus.manager.state.shards import shards_once
from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.proto.errors import ConflictError, DecisionError, PermanentError, TransientError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import JobRef, Lane, Manifest
from slicebus.proto.rights import manager_uses
from slicebus.proto.topology import Topology, journal_queues, manager_topology
from slicebus.runtime.broker import require
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.runtime.logs import configure_logging
from slicebus.runtime.open_changes import OpenChanges
from slicebus.runtime.role import Role, run_role
from slicebus.runtime.rounds import go_round
from slicebus.runtime.run import run_process
from slicebus.runtime.set_aside import show_set_aside
from slicebus.runtime.work_metrics import WorkMetrics
from slicebus.slices.api import api_names

_log = structlog.get_logger()
_COLLECT_S = 60.0
_SHOW_AGAIN_S = 30.0
_ADMITTED_WORKERS = 8
"""How many workers only handle jobs that were admitted, to send their orders: in a burst all others wait for the API
server."""


class _Base(NamedTuple):
    """What all parts of a manager that leads share."""

    store: ManagerStore
    decide: Decider[ManagerStore]
    informers: Informers
    queue: WorkQueue[JobRef]
    events: EventRecorder
    executor: Executor
    locks: Locks[JobRef]
    changes: OpenChanges


class _Parts(NamedTuple):
    """The parts of a manager that leads."""

    dead: DeadLetterWatch
    guard: DeleteGuard
    inbox: ManagerInbox
    resyncer: Resyncer
    fleet: FleetWatch
    reconciler: ManagerReconciler
    keeper: ShardKeeper


class Manager(Role[ManagerSettings]):
    """One manager."""

    component = COMPONENT
    _keeper: ShardKeeper | None = None
    """The keeper of its shard, once it leads."""
    _trees_aside: Collection[str] = ()
    """The trees of quota where nothing is admitted, as the decision about them raises."""

    def leases(self) -> Sequence[str]:
        """The Leases that it may hold, one for each shard."""
        return [lease_of(shard) for shard in range(self._settings.shards)]

    @property
    def _shard(self) -> Shard:
        """The shard that this process is, once it has the Lease."""
        return Shard(self._candidates.index(self._lease), self._settings.shards)

    def notes(self) -> dict[str, str | None]:
        """The notes on its Lease; on that of the first shard also how its decisions are set, and how many shards there
        are, or were."""
        if self._keeper is None or self._shard.index > 0:
            return super().notes()
        notes = super().notes() | {api_names.SETTINGS_ANNOTATION: self._settings.decisions.to_annotation()}
        most = max({self._shard.count - 1, *self._keeper.left}) + 1
        if most == 1 and api_names.SHARDS_ANNOTATION not in self._lease.annotations:
            return notes
        return notes | {api_names.SHARDS_ANNOTATION: str(most) if most > 1 else None}

    async def prepare(self) -> None:
        """Make the exchanges, the dead-letter queues, the journals and the shards' queues. Nobody else makes them."""
        age, size = self._settings.journal_max_age, self._settings.journal_max_bytes
        journals = Topology((), journal_queues(max_age=age, max_bytes=size), ())
        await self._bus.declare(manager_topology(self._settings.shards) + journals)
        await require(self._bus, manager_uses(self._settings.shards))
        if shard := self._shard.index:
            await take_addressed(self._bus, shard, by=shard)

    async def lead(self, epoch: int) -> None:
        """Manage until cancelled."""
        base = self._base(epoch)
        self._show(base.store)
        parts = self._parts(base)
        self.refused, self.refused_clusters = lambda: base.queue.refused, lambda: parts.fleet.refused
        self._keeper = parts.keeper
        show_set_aside(self._registry, {"jobs": lambda: base.queue.set_aside, "quota trees": lambda: self._trees_aside})
        self._registry.register(WorkMetrics(base.queue, parts.inbox.backlog))
        async with base.decide.recording(), TaskGroup() as group:
            await self._watch(base, parts, group)
            _log.info("manager.leading", epoch=epoch, jobs=len(set(base.store.refs())))
            self.leading.set()
            self._admit(base, parts, group)
            self._work(base, parts, group)

    def _base(self, epoch: int) -> _Base:
        store, shard = ManagerStore(), self._shard
        store.configure(self._settings.leading(shard, since=now_text()))
        shares = RecordingShares(self._settings.journal_max_bytes // PARTS, registry=self._registry)
        decide = Decider(store, self.recorder(Source("manager", "", epoch, shard=shard.index)), shares)
        informers = self.informers(JOB_RESOURCES.values(), unserved=store.unserved, definitions=store.definitions)
        changes = OpenChanges()
        queue: WorkQueue[JobRef] = WorkQueue("jobs", logged=lambda ref: changes.logged(ref.key))
        issuer = Issuer(epoch=epoch, user=self._bus.user, now=now, random=random_bytes, shard=shard.index)
        events = EventRecorder(self._client, component=self.component)
        executor = Executor(
            client=self._client,
            caches=store.cache_of,
            tables=store.tables(),
            publish=ManagerPublisher(self._bus, issuer, store, note=changes.note).publish,
            requeue=queue.add_after,
            component=self.component,
            record=events.record,
            check=self._lease.check,
            confirm=informers.confirm,
            unshown=partial(_show_again, queue),
        )
        return _Base(store, decide, informers, queue, events, executor, Locks[JobRef](), changes)

    def _show(self, store: ManagerStore) -> None:
        """Show the fleet as metrics, and the queues where no Kueue does."""
        SpecMetrics(self._registry).follow(store.workloads)
        self._registry.register(ClusterMetrics(store))
        if not store.beside_kueue:
            SliceMetrics(self._registry).follow(store.workloads, when=store.has_workload)
            self._registry.register(QueueMetrics(store, now=now))

    def _parts(self, base: _Base) -> _Parts:
        settings, decide, executor = self._settings, base.decide, base.executor
        dead = DeadLetterWatch(
            bus=self._bus,
            store=base.store,
            executor=executor,
            registry=self._registry,
            now=now,
            alert_s=settings.dead_letter_alert_s,
        )
        guard = DeleteGuard(
            DeleteLimits(
                share=settings.breaker_share, count=settings.breaker_count, window_s=settings.breaker_window_s
            ),
            client=self._client,
            decide=decide,
            executor=executor,
            requeue=base.queue.add,
            registry=self._registry,
        )
        resyncer = Resyncer(
            client=self._client,
            informers=base.informers,
            decide=decide,
            executor=executor,
            locks=base.locks,
            guard=guard,
            registry=self._registry,
        )
        inbox = ManagerInbox(
            bus=self._bus,
            decide=decide,
            executor=executor,
            locks=base.locks,
            requeue=base.queue.add,
            resyncer=resyncer,
            registry=self._registry,
            message_bytes=settings.message_bytes,
            on_dead=dead.count,
            keeps_dead=dead.keeps,
            router=None if base.store.shards.is_alone else Router(self._bus, base.store),
            note=base.changes.note,
        )
        fleet = FleetWatch(
            cluster_lost_s=settings.cluster_lost_s,
            decide=decide,
            executor=executor,
            inbox=inbox,
            resyncer=resyncer,
            requeue=base.queue.add,
        )
        reconciler = ManagerReconciler(
            decide, executor, locks=base.locks, guard=guard, resyncer=resyncer, retry=inbox.retry
        )
        return _Parts(dead, guard, inbox, resyncer, fleet, reconciler, self._shard_keeper(base, resyncer, inbox))

    def _shard_keeper(self, base: _Base, resyncer: Resyncer, inbox: ManagerInbox) -> ShardKeeper:
        return ShardKeeper(
            client=self._client,
            namespace=self._settings.namespace,
            election=self.election,
            decide=base.decide,
            executor=base.executor,
            resyncer=resyncer,
            bus=self._bus,
            once=shards_once(self._lease.annotations),
            adopted=partial(self._consume, inbox),
            waits=self.waits_for,
        )

    async def _watch(self, base: _Base, parts: _Parts, group: asyncio.TaskGroup) -> None:
        """Watch the caches. Returns when everything is read that decisions depend on, and decisions are recorded."""
        store = base.store
        if not store.shards.is_alone:
            await self._read(base.informers, [(CLUSTERQUEUES, store.cluster_queues)], group)
            parts.keeper.prepare()
        await self._read(base.informers, store.caches(), group)
        base.decide.begin()
        await parts.keeper.begin(group)
        parts.guard.watch()
        base.informers.on_served(lambda resource: parts.guard.hold_missing(resource.kind))
        on_job_change(store, base.queue.add, when=mode_of(store).needs_reconcile)

    def _admit(self, base: _Base, parts: _Parts, group: asyncio.TaskGroup) -> None:
        """Admit workloads, or report to the Kueue that does what it has to know."""
        if base.store.beside_kueue:
            if base.store.settings.idle_growth_s:
                _log.info("idle_quota.off", reason="a Kueue admits")
            on_fleet_change(base.store, base.queue.add)
            group.create_task(self._checks_reporter(base.decide, base.executor).run(), name="admission-checks")
            return
        shares = not base.store.shards.is_alone
        admitter = Admitter(
            base.decide,
            base.executor,
            locks=base.locks,
            registry=self._registry,
            writers=self._settings.admission_writers,
            admitted=partial(base.queue.add, first=True),
            keeper=parts.keeper if shares else None,
            logged=base.changes.logged,
        )
        self._trees_aside = admitter.set_aside
        if shares:
            group.create_task(parts.keeper.run(admitter.decide_anew, group), name="shards")
        queues = self._queues_reporter(base.decide, base.executor)
        clock = BudgetClock(base.store, queues.look_again, admitter.decide_anew)
        group.create_task(admitter.run(), name="admission")
        group.create_task(queues.run(), name="queue-status")
        group.create_task(clock.run(), name="budgets")
        group.create_task(self._collect(base.decide, base.executor), name="history")
        group.create_task(DryRuns(base.decide, base.executor).run(), name="dry-runs")

    def _work(self, base: _Base, parts: _Parts, group: asyncio.TaskGroup) -> None:
        """Reconcile jobs and clusters, and handle what the agents send."""
        jobs = base.queue.run(
            parts.reconciler.reconcile_job, workers=self._settings.workers, first_workers=_ADMITTED_WORKERS
        )
        group.create_task(jobs, name="jobs")
        rounds = go_round(base.store.refs, base.queue.add, round_s=self._settings.reconcile_s)
        group.create_task(rounds, name="rounds")
        group.create_task(base.events.run(), name="events")
        group.create_task(parts.guard.run(), name="deletes")
        group.create_task(parts.fleet.run(), name="fleet")
        if self._shard.index == 0:
            group.create_task(parts.dead.run(), name="dead-letters")
        self._consume(parts.inbox, self._shard.index, group)
        if self._shard.index == 0:
            group.create_task(self._serve_clusters(base.store, parts, group), name="clusters")

    def _consume(self, inbox: ManagerInbox, shard: int, group: asyncio.TaskGroup) -> None:
        """Consume what comes to a shard: this one, or one whose place it has taken."""
        for lane in Lane:
            group.create_task(self._consume_lane(inbox, lane, shard), name=f"inbox:{shard}:{lane}")

    async def _consume_lane(self, inbox: ManagerInbox, lane: Lane, shard: int) -> None:
        await self.leading.wait()
        await inbox.run(lane, prefetch=self._settings.prefetch_of(len(Lane)), shard=shard)

    async def _serve_clusters(self, store: ManagerStore, parts: _Parts, group: asyncio.TaskGroup) -> None:
        """Consume what comes from each cluster. What agents address to no other shard comes to the first one."""
        await self.leading.wait()
        most, held_bytes = self._settings.prefetch, self._settings.held_bytes
        lanes = ClusterLanes(self._bus, store, parts.inbox, parts.resyncer, most_prefetch=most, held_bytes=held_bytes)
        await lanes.run(group)

    async def _read(
        self, informers: Informers, caches: Iterable[tuple[Resource, Cache]], group: asyncio.TaskGroup
    ) -> None:
        """Keep these caches in sync. Returns when they are; caches that are in sync already stay as they are."""
        unread = [(resource, cache) for resource, cache in caches if not cache.synced.is_set()]
        for resource, cache in unread:
            owners = JOB_RESOURCES.values() if resource == WORKLOADS else ()
            group.create_task(informers.run(resource, cache, owners=owners), name=f"watch:{resource.plural}")
        for _, cache in unread:
            await cache.synced.wait()

    def _checks_reporter(self, decide: Decider[ManagerStore], executor: Executor) -> StatusWriter:
        def report(now: str) -> list[Command]:
            return decide(catalog.report_checks, now=now)

        of = (decide.state.admission_checks, decide.state.clusters)
        return StatusWriter(report, executor, of=of, interval_s=self._settings.queue_status_s)

    def _queues_reporter(self, decide: Decider[ManagerStore], executor: Executor) -> StatusWriter:
        def report(now: str) -> list[Command]:
            return decide(catalog.report_queues, now=now)

        store = decide.state
        of = (store.workloads, store.cluster_queues, store.cohorts, store.local_queues, store.flavors)
        return StatusWriter(report, executor, of=of, interval_s=self._settings.queue_status_s)

    async def _collect(self, decide: Decider[ManagerStore], executor: Executor) -> None:
        """Delete finished slices beyond the history. A delete that fails is tried again in the next round."""
        while True:
            await asyncio.sleep(_COLLECT_S)
            try:
                commands = decide(catalog.collect, now=now_text())
            except DecisionError as error:
                _log.error("slices.uncollected", error=str(error), exc_info=error)
                continue
            for command in commands:
                try:
                    await executor.run([command])
                except (ConflictError, TransientError, PermanentError) as error:
                    _log.warning("slice.uncollected", error=str(error))


def _show_again(queue: WorkQueue[JobRef], target: Manifest) -> None:
    """Have a job show later what the API server refuses to take now, on the job or on a Workload of it."""
    ref = job_ref(target) if target["kind"] in JOB_RESOURCES else owner_ref(target)
    if ref is not None:
        queue.add_after(ref, _SHOW_AGAIN_S)


def run() -> None:
    """The `slicebus manager` command."""

    async def main() -> None:
        settings = ManagerSettings.from_env(os.environ)
        configure_logging(format=settings.log_format, level=settings.log_level)
        await run_role(Manager, settings, name=f"slicebus-manager {settings.identity}")

    run_process(main)
