"""The agent's process: builds its parts, and runs them in one task group."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

import structlog

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.fence import Fence
from slicebus.agent.act.heartbeat import Heartbeats
from slicebus.agent.act.identity import cluster_uid
from slicebus.agent.act.inbox import AgentInbox
from slicebus.agent.act.inventory import InventoryPublisher
from slicebus.agent.act.namespaces import Namespaces
from slicebus.agent.act.pod_additions import PodAdditionsWatch
from slicebus.agent.act.pod_refusals import PodRefusals
from slicebus.agent.act.policy import PolicySource
from slicebus.agent.act.publisher import AgentPublisher
from slicebus.agent.act.reach import Reach
from slicebus.agent.act.reconciler import AgentReconciler
from slicebus.agent.act.schedulers import SchedulerBackends
from slicebus.agent.act.tombstones import Tombstones
from slicebus.agent.decide.cluster.capacity import slim
from slicebus.agent.metrics.jobs import JobMetrics
from slicebus.agent.permissions import COMPONENT
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.agent.state.watched import SELECTORS
from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.lanes import Backlog
from slicebus.bus.metering import DeliveryMetrics
from slicebus.decisions.commands import Publish
from slicebus.decisions.decider import Decider
from slicebus.journal.recording import Source
from slicebus.kube.events import EventRecorder
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOB_RESOURCES, PODS, Resource
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterUid, Hello, Message, Terms
from slicebus.proto.rights import AGENT_EXCHANGES, agent_uses
from slicebus.proto.topology import Exchange, Topology
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
from slicebus.slices.api import api_names, kueue

_log = structlog.get_logger()


class _Base(NamedTuple):
    """What all parts of an agent that leads share."""

    uid: ClusterUid
    store: AgentStore
    decide: Decider[AgentStore]
    informers: Informers
    fence: Fence
    queue: WorkQueue[JobKey]
    locks: Locks[JobKey]
    events: EventRecorder
    executor: Executor
    addressees: Addressees
    publish: Callable[[Message], Awaitable[None]]
    backlog: Backlog
    changes: OpenChanges


class _Parts(NamedTuple):
    """The parts of an agent that leads."""

    tombstones: Tombstones
    policy: PolicySource
    backends: SchedulerBackends
    refusals: PodRefusals
    reconciler: AgentReconciler
    inventories: InventoryPublisher
    namespaces: Namespaces
    additions: PodAdditionsWatch
    heartbeats: Heartbeats
    reach: Reach


class Agent(Role[AgentSettings]):
    """One agent."""

    component = COMPONENT
    _inbox: AgentInbox | None = None
    _reach: Reach | None = None
    _publisher: AgentPublisher | None = None

    async def prepare(self) -> None:
        """Wait for what the manager makes, and for the rights of this agent's user. An agent makes nothing."""
        exchanges = Topology(tuple(map(Exchange, AGENT_EXCHANGES)), (), ())
        await require(self._bus, agent_uses(self._settings.cluster, await cluster_uid(self._client)), exchanges)

    def not_ready(self) -> str:
        """What keeps every role from being ready, the rights that the broker has taken away, the missing queues, and a
        manager that is not reached."""
        of_inbox, of_reach = self._inbox.not_ready if self._inbox else "", self._reach.problem if self._reach else ""
        refused = self._publisher.refused if self._publisher else ""
        return super().not_ready() or (f"waits: {refused}" if refused else "") or of_inbox or of_reach

    def notes(self) -> dict[str, str | None]:
        """The annotations of its Lease, with the name of the cluster: commands tell people where they are."""
        return super().notes() | {api_names.CLUSTER_ANNOTATION: self._settings.cluster}

    async def lead(self, epoch: int) -> None:
        """Report on the cluster and carry out orders until cancelled."""
        uid = await self.until_allowed("cluster uid", lambda: cluster_uid(self._client))
        base = self._base(uid, epoch)
        JobMetrics(self._registry).follow(base.store)
        show_set_aside(self._registry, {"jobs": lambda: base.queue.set_aside})
        self._registry.register(WorkMetrics(base.queue, base.backlog))
        parts = self._parts(base)
        self.refused = lambda: base.queue.refused
        inbox = self._inbox = self._order_inbox(base, parts)
        self._reach, self.unkept = parts.reach, lambda: inbox.unkept
        parts.policy.load()
        await self.until_allowed("tombstones", parts.tombstones.load)
        await self.until_allowed("fence", base.fence.load)
        await parts.backends.look()
        async with base.decide.recording(), TaskGroup() as group:
            await self._watch(base, parts, group)
            base.decide.begin()
            await self.until_allowed("pods", lambda: parts.reconciler.take_over_pods(epoch))
            await self._introduce(base, parts)
            self._react(base, parts)
            _log.info("agent.leading", cluster=self._settings.cluster, cluster_uid=uid, epoch=epoch)
            self.leading.set()
            self._work(base, parts, inbox, group)

    def _base(self, uid: ClusterUid, epoch: int) -> _Base:
        store = AgentStore()
        store.configure(self._settings.leading(uid))
        informers = self.informers(
            JOB_RESOURCES.values(),
            unserved=store.unserved,
            definitions=store.definitions,
            namespaces=self._settings.watched_namespaces,
        )
        fence = Fence(self._client, self._settings.namespace, epoch=epoch)
        changes = OpenChanges()
        queue: WorkQueue[JobKey] = WorkQueue("jobs", logged=lambda key: changes.logged(str(key)))
        issuer = Issuer(epoch=epoch, user=self._bus.user, now=now, random=random_bytes)
        addressees = Addressees()
        publisher = AgentPublisher(self._bus, issuer, cluster_uid=uid, addressees=addressees, note=changes.note)
        self._publisher = publisher
        events = EventRecorder(self._client, component=self.component)
        executor = Executor(
            client=self._client,
            caches=store.cache_of,
            tables=store.tables(),
            publish=publisher.publish,
            requeue=lambda ref, delay_s: queue.add_after(JobKey.of(ref), delay_s),
            component=self.component,
            record=events.record,
            check=self._lease.check,
            is_fenced=lambda: fence.closed,
            is_watched=annotations.is_ours,
            confirm=informers.confirm,
        )
        return _Base(
            uid=uid,
            store=store,
            decide=Decider(store, self.recorder(Source("agent", self._settings.cluster, epoch, uid))),
            informers=informers,
            fence=fence,
            queue=queue,
            locks=Locks[JobKey](),
            events=events,
            executor=executor,
            addressees=addressees,
            publish=partial(self._publish, publisher),
            backlog=Backlog(),
            changes=changes,
        )

    def _parts(self, base: _Base) -> _Parts:
        settings, client, store, queue = self._settings, self._client, base.store, base.queue
        backends = SchedulerBackends(
            store,
            client,
            own_namespace=settings.namespace,
            namespaces=settings.watched_namespaces,
            requeue=queue.add,
            changed=lambda: heartbeats.beat_now(),
        )
        refusals = PodRefusals(store, client, changed=queue.add)
        reconciler = AgentReconciler(
            client=client,
            informers=base.informers,
            decide=base.decide,
            executor=base.executor,
            locks=base.locks,
            queue=queue,
            fence=base.fence,
            unreached=lambda key: reach.of(key),
            ask_inventory=lambda: inventories.ask(),
            reconciled=refusals.note,
        )
        inventories = InventoryPublisher(settings, store=store, publish=base.publish, listed=reconciler.mark_reported)
        namespaces = Namespaces(
            store, client, watched=settings.watched_namespaces, changed=lambda: heartbeats.beat_now()
        )
        additions = PodAdditionsWatch(
            client, namespaces=settings.watched_namespaces, changed=lambda: heartbeats.beat_now()
        )
        heartbeats = Heartbeats(
            store,
            base.fence,
            publish=base.publish,
            requeue=queue.add,
            waiting_since=lambda: (queue.due_since_s, base.backlog.since_s),
            lacking=namespaces.lacking,
            additions=additions.known,
            interval_s=settings.heartbeat_s,
        )
        reach = Reach(
            self._bus,
            settings.cluster,
            decide=base.decide,
            executor=base.executor,
            addressees=base.addressees,
            requeue=queue.add,
        )
        return _Parts(
            tombstones=Tombstones(client, settings.namespace, store),
            policy=PolicySource(settings.policy_file, own_namespace=settings.namespace, client=client, store=store),
            backends=backends,
            refusals=refusals,
            reconciler=reconciler,
            inventories=inventories,
            namespaces=namespaces,
            additions=additions,
            heartbeats=heartbeats,
            reach=reach,
        )

    def _order_inbox(self, base: _Base, parts: _Parts) -> AgentInbox:
        async def accept(terms: Terms) -> None:
            parts.additions.accept(terms)
            parts.namespaces.accept(terms)
            await parts.heartbeats.accept(terms)

        return AgentInbox(
            self._settings,
            bus=self._bus,
            cluster_uid=base.uid,
            decide=base.decide,
            executor=base.executor,
            tombstones=parts.tombstones,
            locks=base.locks,
            policy=parts.policy,
            reconcile=parts.reconciler.reconcile_in_turn,
            requeue=base.queue.add,
            ask_inventory=parts.inventories.ask,
            terms=accept,
            addressees=base.addressees,
            backlog=base.backlog,
            on_settled=DeliveryMetrics(self._registry).settled,
            note=base.changes.note,
        )

    async def _watch(self, base: _Base, parts: _Parts, group: asyncio.TaskGroup) -> None:
        """Watch the caches. Returns when everything is read that decisions depend on."""
        store = base.store
        parts.backends.start(group)
        parts.additions.start(group)
        for resource, cache in store.caches():
            kept = base.informers.run(resource, cache, labels=SELECTORS[resource])
            group.create_task(kept, name=f"watch:{resource.plural}")
        others = base.informers.run(PODS, store.foreign_pods, labels=f"!{kueue.POD_SET_LABEL}", shape=slim)
        group.create_task(others, name="watch:other pods")
        for cache in (*(cache for _, cache in store.caches()), *parts.backends.caches(), store.foreign_pods):
            await cache.synced.wait()

    async def _introduce(self, base: _Base, parts: _Parts) -> None:
        """Say hello to the manager, and send it the inventory."""
        hello = await self.until_allowed("version", partial(self._hello, base.store))
        # The manager may have made the exchanges and not yet the bindings.
        await self.until_allowed("hello", lambda: base.publish(hello))
        await self.until_allowed("inventory", parts.inventories.publish)

    def _react(self, base: _Base, parts: _Parts) -> None:
        """Have every change from now on reconciled or reported."""

        def served(resource: Resource) -> None:
            """Reconcile the jobs of the kind. After the inventory the manager sends again what was refused
            meanwhile."""
            for key in filter(lambda key: key.kind == resource.kind, base.store.keys()):
                base.queue.add(key)
            parts.inventories.ask()

        base.store.on_change(base.queue.add)
        base.informers.on_served(served)
        self._bus.on_reconnect(parts.inventories.ask_twice)

    def _work(self, base: _Base, parts: _Parts, inbox: AgentInbox, group: asyncio.TaskGroup) -> None:
        """Reconcile jobs, report, and carry out orders."""
        jobs = base.queue.run(parts.reconciler.reconcile_job, workers=self._settings.workers)
        group.create_task(jobs, name="jobs")
        rounds = go_round(base.store.keys, base.queue.add, round_s=self._settings.reconcile_s)
        group.create_task(rounds, name="rounds")
        group.create_task(base.events.run(), name="events")
        group.create_task(parts.heartbeats.run(), name="heartbeat")
        group.create_task(parts.reach.run(), name="reach")
        group.create_task(parts.namespaces.run(), name="namespaces")
        group.create_task(parts.refusals.run(), name="pod refusals")
        group.create_task(parts.backends.run(), name="scheduler backends")
        group.create_task(parts.inventories.run(), name="inventory")
        for queue in inbox.queues():
            group.create_task(inbox.run(queue), name=f"inbox:{queue}")

    async def _hello(self, store: AgentStore) -> Hello:
        return Hello(
            agent_version=version("slicebus"),
            kubernetes_version=await self._client.version(),
            schema_version=SCHEMA_VERSION,
            scheduler_backends=store.schedulers.usable,
        )

    async def _publish(self, publisher: AgentPublisher, message: Message) -> None:
        self._lease.check()
        await publisher.publish(Publish(cluster=self._settings.cluster, message=message))


def run() -> None:
    """The `slicebus agent` command."""

    async def main() -> None:
        settings = AgentSettings.from_env(os.environ)
        configure_logging(format=settings.log_format, level=settings.log_level)
        await run_role(Agent, settings, name=f"slicebus-agent {settings.cluster} {settings.identity}")

    run_process(main)
