"""A manager's inbox with its surroundings, over a bus of this process onto an API server of this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.decisions.commands import Publish
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOB_RESOURCES, JOBS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.kube.times import now_text
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.act.inbox import ManagerInbox
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.act.router import Router
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.settings import LeaderSettings, Shard
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope, WireMessage
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobRef, Lane, Message, Terms
from slicebus.proto.topology import DEAD, UP, Binding, Topology, addressed, manager_queue, manager_topology
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import SPOT, a_job, a_workload, uid_of

Manifest = dict[str, Any]


class Manager:
    """An inbox with its surroundings; the agents are whoever the test says."""

    def __init__(self, client: KubeClient, shard: Shard) -> None:
        self.client = client
        self.store = ManagerStore()
        self.store.configure(LeaderSettings(shard=shard))
        self.store.flavors.put(SPOT)
        self.shard = self.store.shards.own
        self.broker = MemoryBroker()
        # A message that is not for managers is bound here only by mistake.
        mistake = Topology((), (), (Binding(UP, manager_queue(Lane.STATUS), "*.resync.*"),))
        self.broker.declare(manager_topology(self.shard.count) + mistake)
        for shard in range(1, self.shard.count):
            self.broker.declare(Topology((), (), addressed(shard, taken_by=shard)))
        self.requeued: list[JobRef] = []
        executor = Executor(
            client=client,
            caches=self.store.cache_of,
            tables=self.store.tables(),
            publish=self._publish,
            requeue=lambda job, delay_s: self.requeued.append(job),
            component="slicebus-manager",
            record=lambda regarding, **event: self.events.append((event["reason"], event["note"])),
        )
        self.events: list[tuple[str, str]] = []
        self.published: list[Message] = []
        self.before_publish: Callable[[Message], None] = lambda _: None
        """May raise."""
        self.registry = CollectorRegistry()
        limits = DeleteLimits(share=0.2, count=2, window_s=60.0)
        decide = Decider(self.store)
        locks = Locks[JobRef]()
        self.guard = DeleteGuard(
            limits,
            client=client,
            decide=decide,
            executor=executor,
            requeue=self.requeued.append,
            registry=self.registry,
        )
        self.resyncer = Resyncer(
            client=client,
            informers=Informers(
                client,
                optional=JOB_RESOURCES.values(),
                unserved=self.store.unserved,
                definitions=self.store.definitions,
            ),
            decide=decide,
            executor=executor,
            locks=locks,
            guard=self.guard,
            registry=self.registry,
        )
        bus = MemoryBus(self.broker, user="manager")
        self.inbox = ManagerInbox(
            bus=bus,
            router=Router(bus, self.store) if self.shard.count > 1 else None,
            decide=decide,
            executor=executor,
            locks=locks,
            requeue=self.requeued.append,
            resyncer=self.resyncer,
            registry=self.registry,
        )
        self._decide, self._executor = decide, executor
        self._issuers: dict[tuple[str, int], Issuer] = {}

    async def receive(self, message: Message, **by: Any) -> Any:
        """Publish a message of an agent and handle all that follows; return the message as it was published."""
        return await self.again(self.wire(message, **by))

    def wire(
        self,
        message: Message,
        *,
        cluster: str = "east",
        uid: ClusterUid | None = None,
        user: str | None = None,
        epoch: int = 3,
        to_shard: int = 0,
    ) -> WireMessage:
        """A message as an agent publishes it."""
        issuer = self._issuers.setdefault(
            (cluster, epoch),
            Issuer(
                epoch=epoch, user=user or cluster, now=lambda: datetime.now(UTC), random=lambda count: b"\0" * count
            ),
        )
        envelope = issuer.envelope(message, ClusterName(cluster), uid or uid_of(cluster), to_shard=to_shard)
        wire = encode(envelope, message)
        return msgspec.structs.replace(wire, user_id=user or cluster)

    async def again(self, wire: Any, *, exchange: str = UP) -> Any:
        """A message that was received before, once more."""
        await MemoryBus(self.broker, user=wire.user_id).publish(exchange, wire)
        while not self._settled():  # noqa: ASYNC110 a turn of the loop each, no time passes
            await asyncio.sleep(0)
        return wire

    async def reconcile_job(self, ref: JobRef) -> bool:
        """Reconcile a job; return whether its delete is held."""
        held = await self.guard.holds(ref)
        await self._executor.run(self._decide(catalog.reconcile_job, job=ref, deletes_held=held, now=now_text()))
        return held

    async def release(self, cluster: str) -> None:
        """Somebody releases what is held for a cluster."""
        manifest = self.store.clusters.get(None, cluster)
        assert manifest is not None
        await self.guard._show(manifest)
        hold = (await self.client.get(WORKERCLUSTERS, cluster))["status"]["heldDeletes"]["id"]
        body = {"metadata": {"annotations": {api_names.RELEASE_ANNOTATION: hold}}}
        self.store.clusters.put(await self.client.patch(WORKERCLUSTERS, cluster, None, MergePatch(body)))

    async def given(self, resource: Resource, manifest: Manifest) -> Manifest:
        """An object with its status, in the cache."""
        dropped = ("uid", "resourceVersion", "generation", "creationTimestamp")
        metadata = {name: value for name, value in manifest["metadata"].items() if name not in dropped}
        made = await self.client.create(resource, manifest | {"metadata": metadata})
        if manifest.get("status"):
            body = made | {"status": manifest["status"]}
            made = await self.client.replace(resource, body, subresource="status")
        cache = self.store.cache_of(resource)
        assert cache is not None
        cache.put(made)
        return made

    async def given_job(self) -> JobRef:
        """A job whose slice runs on east."""
        ref = job_ref(await self.given(JOBS, a_job()))
        workload = a_workload(admitted=1, dispatched=1)
        workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = ref.uid
        workload["metadata"]["ownerReferences"][0]["uid"] = ref.uid
        for condition in workload["status"]["conditions"]:
            condition["message"] = condition["message"] or "so it is"
        await self.given(WORKLOADS, workload)
        return ref

    async def job_status(self) -> Manifest:
        """The status of the manager's job."""
        status: Manifest = (await self.client.get(JOBS, "train", "team")).get("status", {})
        return status

    @property
    def answers(self) -> list[Message]:
        """What was published, without the terms that every agent gets."""
        return [message for message in self.published if not isinstance(message, Terms)]

    @property
    def dead(self) -> list[str]:
        """The reasons of the dead letters."""
        return [entry.message.headers[REASON_HEADER] for entry in self.broker.queues[DEAD].ready]

    def _settled(self) -> bool:
        queues = [self.broker.queues[manager_queue(lane, self.shard.index)] for lane in Lane]
        return not any(queue.ready or any(c.unsettled for c in queue.consumers) for queue in queues)

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        await asyncio.sleep(0)
        self.before_publish(command.message)
        self.published.append(command.message)


def of_shard(shard: str) -> pytest.MarkDecorator:
    """A test of one shard of several: `INDEX/COUNT`."""
    return pytest.mark.parametrize("manager", [Shard(*map(int, shard.split("/")))], ids=[shard], indirect=True)


@pytest.fixture
async def manager(api: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[Manager]:
    """The only one, or the shard that the test names by `of_shard`."""
    made = Manager(api, getattr(request, "param", Shard()))
    for name, accepted in (("east", True), ("west", True), ("north", False)):
        resource = WORKERCLUSTERS
        named = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await made.given(resource, named | {"spec": {"accepted": accepted}})
    tasks = [asyncio.create_task(made.inbox.run(lane, prefetch=10, shard=made.shard.index)) for lane in Lane]
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
