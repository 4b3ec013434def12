"""An agent's parts on an in-process API server and bus, without its loops: the test calls each part."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.fence import Fence
from slicebus.agent.act.inbox import AgentInbox
from slicebus.agent.act.policy import PolicySource
from slicebus.agent.act.reconciler import AgentReconciler
from slicebus.agent.act.tombstones import Tombstones
from slicebus.agent.decide.cluster.reach import Unreached
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.agent.state.watched import SCHEDULING_SELECTORS, SELECTORS
from slicebus.bus.lanes import Backlog
from slicebus.decisions.commands import Publish
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.informers import Informers
from slicebus.kube.resources import CRDS, JOB_RESOURCES, JOBS, WORKLOADS, Resource
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import JobRef, Manifest, Message, Terms
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.sandbox import schedulers as scheduler_crds
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.slices.schedulers import Profile, init
from unit.agent.objects import EAST, EAST_UID, KEY
from unit.kube.servers import NAMESPACE, SYSTEM

SETTINGS = AgentSettings(cluster=EAST, amqp_url="memory://east@test", namespace=SYSTEM, manager_user="manager")


class Worker:
    """What an agent is made of."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.store = AgentStore()
        self.store.configure(SETTINGS.leading(EAST_UID))
        self.decide = Decider(self.store)
        self.tombstones = Tombstones(client, SYSTEM, self.store)
        self.fence = Fence(client, SYSTEM, epoch=3)
        self.queue: WorkQueue[JobKey] = WorkQueue("jobs")
        self.informers = Informers(
            client,
            optional=JOB_RESOURCES.values(),
            unserved=self.store.unserved,
            definitions=self.store.definitions,
        )
        self.locks = Locks[JobKey]()
        self.inventory_requests = 0
        self.published: list[Message] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        """The name of the object, and the Event."""
        self.refuses: SlicebusError | None = None
        self.executor = Executor(
            client=client,
            caches=self.store.cache_of,
            tables=self.store.tables(),
            publish=self._publish,
            requeue=self._requeue,
            component="slicebus-agent",
            record=lambda regarding, **event: self.events.append((regarding["metadata"]["name"], event)),
            is_fenced=lambda: self.fence.closed,
            is_watched=annotations.is_ours,
        )
        self.unreached: Unreached | None = None
        """What keeps the manager from answering."""
        self.reconciler = AgentReconciler(
            client=client,
            informers=self.informers,
            decide=self.decide,
            executor=self.executor,
            locks=self.locks,
            queue=self.queue,
            fence=self.fence,
            unreached=lambda _: self.unreached,
            ask_inventory=self._ask_inventory,
        )
        self.addressees = Addressees()
        self.broker = MemoryBroker()
        self.requeued: list[JobKey] = []
        self.terms: list[Terms] = []
        self.scheduling: dict[Resource, str | None] = {}
        self.policy = PolicySource(None, own_namespace=SYSTEM, client=client, store=self.store)
        self.policy.load()
        self.inbox = AgentInbox(
            SETTINGS,
            bus=MemoryBus(self.broker, user="east"),
            cluster_uid=EAST_UID,
            decide=self.decide,
            executor=self.executor,
            tombstones=self.tombstones,
            locks=self.locks,
            policy=self.policy,
            reconcile=self.reconciler.reconcile_in_turn,
            requeue=self.requeued.append,
            ask_inventory=self._ask_inventory,
            terms=self._take,
            addressees=self.addressees,
            backlog=Backlog(),
            on_settled=lambda *_: None,
        )

    def _ask_inventory(self) -> None:
        self.inventory_requests += 1

    async def _take(self, terms: Terms) -> None:
        self.terms.append(terms)

    async def sync(self) -> None:
        """Bring every cache up to date, as the watches do."""
        for resource, labels in (SELECTORS | self.scheduling).items():
            page = await self.client.list(resource, labels=labels)
            cache = self.store.cache_of(resource)
            assert cache is not None
            await cache.replace(page.items, page.resource_version)

    async def enable(self, profile: Profile) -> None:
        """Let jobs choose a scheduler backend, of which the API server gets the definitions."""
        self.store.configure(structs.replace(self.store.settings, profiles=(Profile("default"), profile)))
        backend = init(profile)
        needed = (*backend.makes, *backend.reads)
        for definition in custom_resource_definitions(scheduler_crds.__name__):
            if definition["metadata"]["name"] in {resource.definition for resource in needed}:
                await self.client.create(CRDS, definition)
        self.scheduling = {resource: SCHEDULING_SELECTORS[resource] for resource in needed}
        await self.sync()

    async def reconcile_job(self) -> list[Message]:
        """The messages that one reconcile of the job publishes."""
        before = len(self.published)
        await self.reconciler.reconcile_job(KEY)
        return self.published[before:]

    async def job(self) -> Manifest | None:
        """The job on the server."""
        return next(iter((await self.client.list(JOBS, namespace=NAMESPACE)).items), None)

    async def copies(self) -> list[str]:
        """The names of the Workload copies on the server."""
        found = (await self.client.list(WORKLOADS, namespace=NAMESPACE)).items
        return [copy["metadata"]["name"] for copy in found]

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Make an object with its status, and let the caches know."""
        made = await self.client.create(resource, manifest)
        if manifest.get("status"):
            version = {"resourceVersion": made["metadata"]["resourceVersion"]}
            body = manifest | {"metadata": made["metadata"] | version}
            made = await self.client.replace(resource, body, subresource="status")
        await self.sync()
        return made

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        await asyncio.sleep(0)
        if self.refuses:
            raise self.refuses
        self.published.append(command.message)

    def _requeue(self, job: JobRef, delay_s: float) -> None:
        self.queue.add_after(JobKey.of(job), delay_s)


@pytest.fixture
async def worker(api: KubeClient) -> Worker:
    """An agent that has read its tombstones."""
    made = Worker(api)
    await made.tombstones.load()
    await made.sync()
    return made


def types(messages: Any) -> list[str]:
    """The types of messages."""
    return [message.type for message in messages]
