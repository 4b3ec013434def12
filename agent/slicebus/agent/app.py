"""The agent's process: builds its parts, and runs them in one task group."""

import asyncio
import os
from functools import partial
from importlib.metadata import version

import structlog

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.fence import Fence
from slicebus.agent.act.heartbeat import Heartbeats
from slicebus.agent.act.identity import cluster_uid
from slicebus.agent.act.inbox import Inbox
from slicebus.agent.act.inventory import InventoryPublisher
from slicebus.agent.act.namespaces import Namespaces
from slicebus.agent.act.pod_refusals import PodRefusals
from slicebus.agent.act.policy import PolicySource
from slicebus.agent.act.publisher import Publisher
from slicebus.agent.act.reconciler import Reconciler
from slicebus.agent.act.schedulers import SchedulerBackends
from slicebus.agent.act.tombstones import Tombstones
from slicebus.agent.decide.capacity import slim
from slicebus.agent.metrics.jobs import JobMetrics
from slicebus.agent.permissions import COMPONENT
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import SELECTORS, Store
from slicebus.agent.state.views import JobKey
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.lanes import Backlog
from slicebus.decisions.commands import Publish
from slicebus.decisions.decider import Decider
from slicebus.journal.recording import Source
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import JOB_RESOURCES, PODS, Resource
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import Hello, Message, Terms
from slicebus.proto.rights import AGENT_EXCHANGES, agent_uses
from slicebus.proto.topology import Exchange, Topology
from slicebus.runtime.broker import require
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.runtime.logs import configure_logging
from slicebus.runtime.role import Role, retry_until_available, run_role
from slicebus.runtime.run import run_process
from slicebus.slices.api import kueue

_log = structlog.get_logger()


class Agent(Role[AgentSettings]):
    """One agent."""

    component = COMPONENT
    _inbox: Inbox | None = None

    async def prepare(self) -> None:
        """Wait for what the manager makes, and for the rights of this agent's user. An agent makes nothing."""
        exchanges = Topology(tuple(map(Exchange, AGENT_EXCHANGES)), (), ())
        await require(self._bus, agent_uses(self._settings.cluster, await cluster_uid(self._client)), exchanges)

    def not_ready(self) -> str:
        """The same as every role, and the missing queues."""
        return super().not_ready() or (self._inbox.not_ready if self._inbox else "")

    async def lead(self, epoch: int) -> None:
        """Report on the cluster and carry out orders until cancelled."""
        uid = await retry_until_available("cluster uid", lambda: cluster_uid(self._client))
        store = Store()
        informers = self.informers(
            JOB_RESOURCES.values(),
            unserved=store.unserved,
            definitions=store.definitions,
            namespaces=self._settings.watched_namespaces,
        )
        decide = Decider(store, self.recorder(Source("agent", self._settings.cluster, epoch, uid)))
        tombstones = Tombstones(self._client, self._settings.namespace, store)
        policy = PolicySource(
            self._settings.policy_file, own_namespace=self._settings.namespace, client=self._client, store=store
        )
        policy.load()
        fence = Fence(self._client, self._settings.namespace, epoch=epoch)
        queue: WorkQueue[JobKey] = WorkQueue("jobs")
        backends = SchedulerBackends(
            self._settings.profiles,
            store,
            self._client,
            own_namespace=self._settings.namespace,
            namespaces=self._settings.watched_namespaces,
            requeue=queue.add,
            changed=lambda: heartbeats.beat_now(),
        )
        locks = Locks[JobKey]()
        backlog = Backlog()
        issuer = Issuer(epoch=epoch, user=self._bus.user, now=now, random=random_bytes)
        addressees = Addressees()
        publisher = Publisher(self._bus, issuer, cluster_uid=uid, addressees=addressees)
        JobMetrics(self._registry).follow(store)
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
        publish = partial(self._publish, publisher)
        refusals = PodRefusals(store, self._client, changed=queue.add)
        reconciler = Reconciler(
            self._settings,
            client=self._client,
            informers=informers,
            decide=decide,
            executor=executor,
            locks=locks,
            queue=queue,
            fence=fence,
            ask_inventory=lambda: inventories.ask(),
            reconciled=refusals.note,
        )
        inventories = InventoryPublisher(self._settings, store=store, publish=publish, listed=reconciler.mark_reported)
        namespaces = Namespaces(
            store,
            self._client,
            watched=self._settings.watched_namespaces,
            changed=lambda: heartbeats.beat_now(),
        )
        heartbeats = Heartbeats(
            store,
            fence,
            publish=publish,
            requeue=queue.add,
            waiting_since=lambda: (queue.due_since_s, backlog.since_s),
            lacking=namespaces.lacking,
            interval_s=self._settings.heartbeat_s,
        )

        async def accept(terms: Terms) -> None:
            await heartbeats.accept(terms)
            namespaces.accept(terms)

        def served(resource: Resource) -> None:
            """Reconcile the jobs of the kind. By the inventory the manager sends anew what was refused meanwhile."""
            for key in filter(lambda key: key.kind == resource.kind, store.keys()):
                queue.add(key)
            inventories.ask()

        inbox = self._inbox = Inbox(
            self._settings,
            bus=self._bus,
            cluster_uid=uid,
            decide=decide,
            executor=executor,
            tombstones=tombstones,
            locks=locks,
            policy=policy,
            reconcile=reconciler.reconcile_in_turn,
            requeue=queue.add,
            ask_inventory=inventories.ask,
            terms=accept,
            addressees=addressees,
            backlog=backlog,
        )
        await retry_until_available("tombstones", tombstones.load)
        await retry_until_available("fence", fence.load)
        await backends.look()
        async with decide.recording(), asyncio.TaskGroup() as group:
            backends.start(group)
            for resource, cache in store.caches():
                kept = informers.run(resource, cache, labels=SELECTORS[resource])
                group.create_task(kept, name=f"watch:{resource.plural}")
            others = informers.run(PODS, store.foreign_pods, labels=f"!{kueue.POD_SET_LABEL}", shape=slim)
            group.create_task(others, name="watch:other pods")
            for cache in (*(cache for _, cache in store.caches()), *backends.caches(), store.foreign_pods):
                await cache.synced.wait()
            decide.begin()
            await retry_until_available("pods", lambda: reconciler.take_over_pods(epoch))
            hello = await retry_until_available("version", partial(self._hello, store))
            # The manager may have made the exchanges and not yet the bindings.
            await self.until_allowed("hello", lambda: publish(hello))
            await self.until_allowed("inventory", inventories.publish)
            store.on_change(queue.add)
            informers.on_served(served)
            self._bus.on_reconnect(inventories.ask_twice)
            _log.info("agent.leading", cluster=self._settings.cluster, cluster_uid=uid, epoch=epoch)
            self.leading.set()
            group.create_task(queue.run(reconciler.reconcile_job, workers=self._settings.workers), name="jobs")
            group.create_task(events.run(), name="events")
            group.create_task(heartbeats.run(), name="heartbeat")
            group.create_task(namespaces.run(), name="namespaces")
            group.create_task(refusals.run(), name="pod refusals")
            group.create_task(backends.run(), name="scheduler backends")
            group.create_task(inventories.run(), name="inventory")
            for queue_name in inbox.queues():
                group.create_task(inbox.run(queue_name), name=f"inbox:{queue_name}")

    async def _hello(self, store: Store) -> Hello:
        return Hello(
            agent_version=version("slicebus"),
            kubernetes_version=await self._client.version(),
            schema_version=SCHEMA_VERSION,
            scheduler_backends=store.schedulers.usable,
        )

    async def _publish(self, publisher: Publisher, message: Message) -> None:
        self._lease.check()
        await publisher.publish(Publish(cluster=self._settings.cluster, message=message))


def run() -> None:
    """The `slicebus agent` command."""

    async def main() -> None:
        settings = AgentSettings.from_env(os.environ)
        configure_logging(format=settings.log_format, level=settings.log_level)
        await run_role(Agent, settings, name=f"slicebus-agent {settings.cluster} {settings.identity}")

    run_process(main)
