"""Agents without API servers, many in one process: they speak and answer as agents do, and keep nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime

from broker import issuer_of, subject_of, uid_of
from msgspec import UNSET, UnsetType

from slicebus.agent.act.addressees import Addressees
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.factory import connect
from slicebus.bus.lanes import consume
from slicebus.cli.demo.world import running
from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    JobRef,
    Lane,
    Message,
    Relabel,
    ScaleRequest,
    Terms,
    WorkloadSpec,
    job_of,
)
from slicebus.proto.topology import UP, agent_queue

_ROOM = {"cpu": "1000000", "memory": "4000000Gi"}
_FLAVORS = ("", "default")
_PREFETCH = 20
_LOOKS_S = 0.2
_AT_ONCE = 20
"""Agents that connect at once."""


class LightJob:
    """A job as its agent knows it."""

    def __init__(self, ref: JobRef, *, slice: str, worker_uid: str) -> None:
        self.ref = ref
        self.slice = slice
        self.size = 1
        self._worker_uid = worker_uid
        self._generation = 1

    def request(self) -> ScaleRequest:
        """A request for another size: 2 pods instead of 1, or 1 instead of 2."""
        self._generation += 1
        granted, self.size = self.size, 3 - self.size
        return ScaleRequest(
            job=self.ref,
            workload=self.slice,
            worker_uid=self._worker_uid,
            worker_generation=self._generation,
            granted={"main": granted},
            wanted={"main": self.size},
            why="parallelism changed",
        )


class _Asked:
    """A request that is not answered yet."""

    def __init__(self) -> None:
        self.since = time.perf_counter()
        self.spec_s: float | None = None
        """From the request until its spec was received."""
        self.done = asyncio.Event()


class LightAgent:
    """The agent of one cluster, on a bus that the caller closes."""

    def __init__(self, cluster: ClusterName, bus: Bus, jobs: Iterable[LightJob], *, heartbeat_s: float) -> None:
        self._cluster = cluster
        self._bus = bus
        self._heartbeat_s = heartbeat_s
        self.jobs = {job.ref: job for job in jobs}
        self.addressees = Addressees()
        self._issuer = issuer_of(cluster, epoch=epoch_at(datetime.now(UTC)))
        self._terms: str | UnsetType = UNSET
        self._asked: dict[MessageId, _Asked] = {}
        self.known = asyncio.Event()
        """Set by the manager's first answer."""

    async def resize(self, job: LightJob) -> float:
        """Ask for another size of a job, and return when its order is carried out: the seconds from the publish of the
        request until the spec was received."""
        message, asked = job.request(), _Asked()
        envelope = self._envelope(message)
        self._asked[envelope.correlation_id] = asked
        await self._bus.publish(UP, encode(envelope, message))
        await asked.done.wait()
        assert asked.spec_s is not None
        return asked.spec_s

    async def run(self, *, begin_s: float) -> None:
        """Heartbeats from `begin_s` seconds on, and answers to orders, until cancelled."""
        queue = agent_queue(self._cluster, Lane.CONTROL, uid_of(self._cluster))
        await asyncio.sleep(begin_s)
        await self._beat()
        while not await self._exists(queue):  # noqa: ASYNC110 the manager makes it
            await asyncio.sleep(_LOOKS_S)
        async with self._bus.subscribe(queue, prefetch=_PREFETCH) as orders, asyncio.TaskGroup() as group:
            group.create_task(consume(orders, self._handle, key=subject_of))
            while True:
                await asyncio.sleep(self._heartbeat_s)
                await self._beat()

    async def _exists(self, queue: str) -> bool:
        """Whether the manager has made it."""
        try:
            await self._bus.depth(queue)
        except NotFoundError:
            return False
        return True

    async def _beat(self) -> None:
        room, now_s = dict.fromkeys(_FLAVORS, _ROOM), asyncio.get_running_loop().time()
        await self.publish(Heartbeat(capacity=room, ours={}, terms=self._terms, said_s=now_s, jobs=len(self.jobs)))

    async def _handle(self, delivery: Delivery) -> None:
        received, found = time.perf_counter(), decode(delivery.message)
        if (about := job_of(found.message)) is not None:
            self.addressees.note(about, found.envelope.shard)
        match found.message:
            case Terms(version=version):
                self._terms = version
                self.known.set()
            case WorkloadSpec(job=ref, workload=workload, spec_version=version) if job := self.jobs.get(ref):
                asked = self._asked.get(found.envelope.correlation_id)
                if asked is not None:
                    asked.spec_s = received - asked.since
                # A spec of another slice is followed by a relabel.
                if workload["metadata"]["name"] == job.slice:
                    await self._applied(job, version, found.envelope)
            case Relabel(job=ref, to_workload=slice, spec_version=version) if job := self.jobs.get(ref):
                job.slice = slice
                await self._applied(job, version, found.envelope)

    async def _applied(self, job: LightJob, version: int, order: Envelope) -> None:
        applied = Applied(job=job.ref, workload=job.slice, spec_version=version)
        await self.publish(applied, caused_by=order)
        if asked := self._asked.pop(order.correlation_id, None):
            asked.done.set()

    async def publish(self, message: Message, *, caused_by: Envelope | None = None) -> None:
        """Publish a message as this agent's."""
        await self._bus.publish(UP, encode(self._envelope(message, caused_by=caused_by), message))

    def _envelope(self, message: Message, *, caused_by: Envelope | None = None) -> Envelope:
        to_shard = self.addressees.of(message)
        return self._issuer.envelope(
            message, self._cluster, uid_of(self._cluster), caused_by=caused_by, to_shard=to_shard
        )


@asynccontextmanager
async def light_agents(
    url: Callable[[str], str], jobs: Mapping[ClusterName, Sequence[LightJob]], *, heartbeat_s: float
) -> AsyncIterator[list[LightAgent]]:
    """An agent for each cluster, connected and answered by the manager, until the context is left."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def connected(cluster: ClusterName) -> Bus:
        async with room:
            return await connect(url(cluster), name=f"bench {cluster}")

    async with AsyncExitStack() as stack:
        agents = []
        for cluster, bus in zip(jobs, await asyncio.gather(*map(connected, jobs)), strict=True):
            stack.push_async_callback(bus.aclose)
            agents.append(LightAgent(cluster, bus, jobs[cluster], heartbeat_s=heartbeat_s))
        begins = (heartbeat_s * number / len(agents) for number in range(len(agents)))
        known = [agent.known for agent in agents]
        runs = (agent.run(begin_s=begin_s) for agent, begin_s in zip(agents, begins, strict=True))
        await stack.enter_async_context(running(*runs, started=known))
        yield agents
