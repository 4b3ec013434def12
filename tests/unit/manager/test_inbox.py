"""What agents publish, over a bus of this process onto an API server of this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slicebus.bus.dead import REASON_HEADER
from slicebus.bus.memory import MemoryBroker, MemoryBus
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.manager.inbox import Inbox
from slicebus.manager.records import Requested, job_ref
from slicebus.manager.store import Store
from slicebus.process.commands import Publish
from slicebus.process.executor import Executor
from slicebus.proto.codec import encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    Hello,
    JobPhase,
    JobRef,
    Lane,
    Message,
    Resync,
    ScaleRequest,
    Status,
)
from slicebus.proto.topology import DEAD, UP, Binding, Topology, manager_queue, manager_topology
from slicebus.slices import kueue
from unit.manager.objects import a_job, a_workload

Manifest = dict[str, Any]
HELLO = Hello(agent_version="0.1.0", kubernetes_version="v1.34.0", schema_version="1.0")


class Manager:
    """An inbox with its surroundings; the agents are whoever the test says."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.store = Store()
        self.broker = MemoryBroker()
        # A message that is not for managers is bound here only by mistake.
        mistake = Topology((), (), (Binding(UP, manager_queue(Lane.STATUS), "*.resync"),))
        self.broker.declare(manager_topology() + mistake)
        self.looked: list[JobRef] = []
        executor = Executor(
            client=client,
            caches=self.store.cache_of,
            publish=self._publish,
            look_again=lambda job, delay_s: self.looked.append(job),
            component="slicebus-manager",
        )
        self.inbox = Inbox(
            bus=MemoryBus(self.broker, user="manager"),
            store=self.store,
            executor=executor,
            look=self.looked.append,
            registry=CollectorRegistry(),
        )
        self._issuers: dict[tuple[str, int], Issuer] = {}

    async def receive(self, message: Message, *, cluster: str = "east", user: str | None = None, epoch: int = 3) -> Any:
        """A message from an agent, and whatever it leads to; the message as it went over the wire."""
        issuer = self._issuers.setdefault(
            (cluster, epoch),
            Issuer(
                epoch=epoch, user=user or cluster, now=lambda: datetime.now(UTC), random=lambda count: b"\0" * count
            ),
        )
        wire = encode(issuer.envelope(message, ClusterName(cluster)), message)
        return await self.again(msgspec.structs.replace(wire, user_id=user or cluster))

    async def again(self, wire: Any) -> Any:
        """A message that was received before, once more."""
        await MemoryBus(self.broker, user=wire.user_id).publish(UP, wire)
        while not self._settled():  # noqa: ASYNC110 a turn of the loop each, no time passes
            await asyncio.sleep(0)
        return wire

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
    def dead(self) -> list[str]:
        """Why messages are dead."""
        return [entry.message.headers[REASON_HEADER] for entry in self.broker.queues[DEAD].ready]

    def _settled(self) -> bool:
        queues = [self.broker.queues[manager_queue(lane)] for lane in Lane]
        return not any(queue.ready or any(c.unsettled for c in queue.consumers) for queue in queues)

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        raise AssertionError("an inbox publishes nothing")


@pytest.fixture
async def manager(api: KubeClient) -> AsyncIterator[Manager]:
    made = Manager(api)
    for name, accepted in (("east", True), ("west", True), ("north", False)):
        resource = WORKERCLUSTERS
        named = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await made.given(resource, named | {"spec": {"accepted": accepted}})
    tasks = [asyncio.create_task(made.inbox.run(lane, prefetch=10)) for lane in Lane]
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def request(job: JobRef, generation: int = 2, wanted: int = 5) -> ScaleRequest:
    return ScaleRequest(
        job=job,
        workload="w1",
        worker_uid="w",
        worker_generation=generation,
        granted={"main": 1},
        wanted={"main": wanted},
    )


def status(job: JobRef, active: int, phase: JobPhase = JobPhase.RUNNING) -> Status:
    return Status(job=job, workload="w0", spec_version=1, phase=phase, job_status={"active": active})


async def test_an_agent_that_says_hello_is_connected_and_told_everything_again(manager: Manager) -> None:
    ref = await manager.given_job()
    manager.store.published[ref] = 1
    await manager.receive(HELLO)
    east = await manager.client.get(WORKERCLUSTERS, "east")
    assert (east["status"]["epoch"], east["status"]["agentVersion"]) == (3, "0.1.0")
    assert manager.looked == [ref]
    assert manager.store.published == {}
    assert ClusterName("east") in manager.inbox.heard_at


async def test_the_hello_of_one_cluster_is_no_matter_of_the_others_jobs(manager: Manager) -> None:
    await manager.given_job()
    await manager.receive(HELLO, cluster="west")
    assert manager.looked == []


async def test_an_older_epoch_is_fenced_from_the_hello_on(manager: Manager) -> None:
    await manager.receive(Heartbeat(), epoch=2)
    assert manager.dead == []
    await manager.receive(HELLO, epoch=3)
    await manager.receive(Heartbeat(), epoch=2)
    assert manager.dead == ["fenced-epoch"]


@pytest.mark.parametrize("cluster", ["north", "nowhere"], ids=["not accepted", "unknown"])
async def test_who_is_not_accepted_fills_no_queue_with_heartbeats(manager: Manager, cluster: str) -> None:
    await manager.receive(Heartbeat(), cluster=cluster)
    assert manager.dead == []
    assert manager.inbox.heard_at == {}
    await manager.receive(HELLO, cluster=cluster)
    assert manager.dead == ["unknown-cluster"]


Say = Callable[[JobRef], Message]
SAYINGS: dict[str, Say] = {
    "scale-request": request,
    "status": lambda job: status(job, 7),
    "applied": lambda job: Applied(job=job, workload="w1", spec_version=1),
}


@pytest.mark.parametrize("say", SAYINGS.values(), ids=SAYINGS.keys())
@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [("east", "west", "wrong-user"), ("west", "west", "refused"), ("nowhere", "nowhere", "unknown-cluster")],
    ids=["another's name", "another's job", "a cluster that is not there"],
)
async def test_nobody_speaks_for_another(manager: Manager, say: Say, cluster: str, user: str, reason: str) -> None:
    ref = await manager.given_job()
    before = await manager.client.get(JOBS, "train", "team"), await manager.client.get(WORKLOADS, "w1", "team")
    await manager.receive(say(ref), cluster=cluster, user=user)
    assert manager.dead == [reason]
    assert before == (
        await manager.client.get(JOBS, "train", "team"),
        await manager.client.get(WORKLOADS, "w1", "team"),
    )


async def test_a_request_is_on_the_job_before_it_is_acknowledged_and_only_once(manager: Manager) -> None:
    ref = await manager.given_job()
    wire = await manager.receive(request(ref))
    job = await manager.client.get(JOBS, "train", "team")
    written = Requested.from_job(job)
    assert written is not None
    assert written.counts == {"main": 5}
    await manager.again(wire)
    assert await manager.client.get(JOBS, "train", "team") == job


async def test_a_late_status_does_not_take_back_a_newer_one(manager: Manager) -> None:
    ref = await manager.given_job()
    first = await manager.receive(status(ref, 1))
    second = await manager.receive(status(ref, 2))
    await manager.again(first)
    assert await manager.job_status() == {"active": 2}
    await manager.again(second)
    await manager.receive(status(ref, 1), epoch=4)
    assert await manager.job_status() == {"active": 1}
    assert manager.dead == []


async def test_a_late_word_that_the_job_is_gone_removes_nothing(manager: Manager) -> None:
    ref = await manager.given_job()
    wire = await manager.receive(status(ref, 1))
    late = msgspec.structs.replace(wire, body=wire.body.replace(b'"Running"', b'"Gone"'))
    await manager.receive(status(ref, 2))
    await manager.again(late)
    assert await manager.job_status() == {"active": 2}


async def test_what_was_deleted_on_the_worker_is_deleted_here(manager: Manager) -> None:
    ref = await manager.given_job()
    await manager.receive(status(ref, 0, JobPhase.GONE))
    assert (await manager.client.list(JOBS)).items == []


async def test_a_message_about_an_unknown_kind_is_dead(manager: Manager) -> None:
    await manager.receive(request(JobRef("v1", "Pod", "team", "train", "u")))
    assert manager.dead == ["refused"]


async def test_a_message_that_is_for_agents_is_dead(manager: Manager) -> None:
    await manager.receive(Resync())
    assert manager.dead == ["unknown-type"]


async def test_a_job_that_is_gone_is_nobodys_concern(manager: Manager) -> None:
    ref = JobRef("batch/v1", "Job", "team", "gone", "u")
    for message in (request(ref), status(ref, 1), Applied(job=ref, workload="w1", spec_version=1)):
        await manager.receive(message)
    assert manager.dead == []
