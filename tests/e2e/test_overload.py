"""Ten times more messages than can be handled: memory stays bounded, nothing is lost, and all is well afterwards.

What a role can handle is set by its API server, which a proxy makes slow; ten times that is counted, not timed: of the
messages that were published at most a tenth had been handled when the last one was.
"""

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from msgspec import structs

from slicebus.agent.act.identity import cluster_uid
from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import EVENTS, JOBS, PODS, WORKERCLUSTERS
from slicebus.manager.state.annotations import SizeRequest, job_ref
from slicebus.proto.codec import encode
from slicebus.proto.errors import DeadReason
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import (
    MESSAGES,
    ClusterName,
    ClusterUid,
    Heartbeat,
    Hello,
    JobPhase,
    JobRef,
    Lane,
    Message,
    Pending,
    ScaleRequest,
    Status,
)
from slicebus.proto.topology import DEAD, DEAD_LETTERS, UP, agent_queue, exchange_of, manager_queue, routing_key
from support.controlplane import ControlPlane
from support.epochs import later_epoch
from support.fleet import Fleet, Jobs, connected, kubeconfig_through, pod_of
from support.installation import Role
from support.proxy import Proxy
from support.rabbitmq import RabbitBroker
from support.scenario import NAMESPACE, set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

_log = structlog.get_logger()
EAST, WEST = ClusterName("east"), ClusterName("west")
FLOOD = 6000
AT_ONCE = 200
SLOW_S = 0.15
"""What a request to an API server takes in each direction while the flood lasts: so long that it, and not the machine,
says how much is handled meanwhile."""
TIMES = 10
MIB = 1024 * 1024
MOST_GROWTH = 64 * MIB
PADDING = "x" * 2000


@pytest.fixture
async def proxies(control_plane: ControlPlane) -> AsyncIterator[dict[str, Proxy]]:
    """Before the API server of each role, by its name."""
    async with AsyncExitStack() as stack:
        ports = {name: control_plane.clusters[name].port for name in ("manager", "east")}
        yield {name: await stack.enter_async_context(Proxy.before(port)) for name, port in ports.items()}


@pytest.fixture
async def fleet(
    clusters: World,
    control_plane: ControlPlane,
    rabbitmq: RabbitBroker,
    vhost: str,
    tmp_path: Path,
    proxies: dict[str, Proxy],
) -> AsyncIterator[Fleet]:
    """A manager, and an agent for east. West is whatever the test says."""
    made = Fleet(tmp_path)
    for name, command, own in (("manager", "manager", {}), ("east", "agent", {"SLICEBUS_CLUSTER": "east"})):
        kubeconfig = kubeconfig_through(control_plane.clusters[name], proxies[name].port, tmp_path / f"{name}.yaml")
        made.add(name, command, url=rabbitmq.url(vhost, name), kubeconfig=kubeconfig, **own)
    async with made.kept():
        await made.ready()
        # Then the manager leads, and its queues are there: a hello before that reaches nobody.
        await eventually(partial(connected, clusters, "east"), "east is connected")
        yield made


@asynccontextmanager
async def bus_of(rabbitmq: RabbitBroker, vhost: str, user: str) -> AsyncIterator[Bus]:
    bus = await connect(rabbitmq.url(vhost, user), name="test")
    try:
        yield bus
    finally:
        await bus.aclose()


class Voice:
    """Publishes as somebody."""

    def __init__(self, bus: Bus, cluster: str, uid: ClusterUid) -> None:
        self._bus = bus
        self._cluster, self._uid = ClusterName(cluster), uid
        self._issuer = Issuer(epoch=later_epoch(), user=bus.user, now=partial(datetime.now, UTC), random=os.urandom)

    async def say(self, message: Message) -> None:
        wire = encode(self._issuer.envelope(message, self._cluster, self._uid), message)
        await self._bus.publish(exchange_of(message.direction), wire)

    async def flood(self, message: Callable[[int], Message], *, least: int, until: asyncio.Event | None = None) -> int:
        """As fast as the broker confirms, at least so many, and on until the event; how many it were."""
        numbers = itertools.count()
        said = 0

        async def speak() -> None:
            nonlocal said
            while (number := next(numbers)) < least or (until is not None and not until.is_set()):
                await self.say(message(number))
                said += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(speak())
        return said


class Memory:
    """The most that a role has had."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self.before = self.most = role.process.memory_bytes()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                self.most = max(self.most, self._role.process.memory_bytes())
                await asyncio.sleep(0.1)

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    @property
    def grown(self) -> int:
        return self.most - self.before


async def drained(bus: Bus, queue: str) -> None:
    async def empty() -> bool:
        return (await bus.depth(queue)).ready == 0

    await eventually(empty, f"{queue} is empty")


@pytest.mark.soak
async def test_a_manager_outlasts_a_storm_of_statuses_and_requests(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str, proxies: dict[str, Proxy]
) -> None:
    manager, loop = fleet.roles["manager"], asyncio.get_running_loop()
    await set_quota(clusters, 200)
    real = Jobs(clusters, ["real"])
    await real.submit()
    assert await real.place("real") == EAST
    async with bus_of(rabbitmq, vhost, "west") as bus:
        west = Voice(bus, "west", ClusterUid("uid"))
        await west.say(Hello(agent_version="9", kubernetes_version="v1.30.0", schema_version="1.0"))
        await eventually(partial(connected, clusters, "west"), "west is connected")
        await clusters.manager.patch(WORKERCLUSTERS, "west", None, MergePatch({"spec": {"capacity": "Unlimited"}}))
        jobs = Jobs(clusters, [f"job-{number}" for number in range(10)])
        refs = [job_ref(await clusters.manager.create(JOBS, objects.job(name))) for name in jobs.wanted]
        placed = [ref for ref in refs if await jobs.place(ref.name) == WEST]

        def message(number: int) -> Message:
            ref = placed[number % len(placed)]
            return status(ref, number) if number % 20 else request(ref, number)

        proxies["manager"].delay_s = SLOW_S
        memory, at, enough = Memory(manager), loop.time(), asyncio.Event()
        before = await handled(manager)
        async with memory.watched():
            flooding = asyncio.create_task(west.flood(message, least=FLOOD, until=enough))
            await real.resize("real", 4)
            await eventually(partial(runs, clusters, "real", 4), "a resize comes through in the flood")
            assert not flooding.done()
            enough.set()
            said = await flooding
            done, flooded_s = await handled(manager) - before, loop.time() - at
            proxies["manager"].delay_s = 0.0
            for ref in placed:
                await west.say(status(ref, said))
                await west.say(request(ref, said))
            for lane in Lane:
                await drained(bus, manager_queue(lane))

            async def newest() -> bool:
                found = [await clusters.manager.get(JOBS, ref.name, NAMESPACE) for ref in placed]
                wishes = [SizeRequest.from_manifest(job) for job in found]
                return all(job["status"].get("ready") == said for job in found) and all(
                    wish is not None and wish.worker_generation == said for wish in wishes
                )

            await eventually(newest, "the newest status and the newest wish of each job are there")
        say_measured("manager", memory, flooded_s, loop.time() - at, said=said, handled=done)
        assert said >= TIMES * done
        assert memory.grown < MOST_GROWTH
        assert (await bus.depth(DEAD)).ready == 0
        assert "process.failed" not in manager.process.log_text()
    assert await connected(clusters, "east"), "others were heard all the time"
    fleet.expect_no_tracebacks()


@pytest.mark.soak
async def test_an_agent_outlasts_a_storm_of_notices(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str, proxies: dict[str, Proxy]
) -> None:
    agent, loop = fleet.roles["east"], asyncio.get_running_loop()
    await set_quota(clusters, 20)
    jobs = Jobs(clusters, ["one", "two"])
    await jobs.submit()
    ref = job_ref(await clusters.manager.get(JOBS, "one", NAMESPACE))
    uid = await cluster_uid(clusters.workers[EAST])
    queue = agent_queue(EAST, Lane.STATUS, uid)

    async def noticed() -> int:
        """Each notice is an Event of its own."""
        found = (await clusters.workers[EAST].list(EVENTS, namespace=NAMESPACE)).items
        return sum(event["message"].endswith(PADDING[:900]) for event in found)

    async with bus_of(rabbitmq, vhost, "manager") as bus:
        manager = Voice(bus, "east", uid)
        proxies["east"].delay_s = SLOW_S
        memory, at = Memory(agent), loop.time()
        async with memory.watched():
            said = await manager.flood(partial(notice, ref), least=FLOOD // 4)
            done, flooded_s = await noticed(), loop.time() - at
            await jobs.resize("one", 3)
            await jobs.resize("two", 4)
            await jobs.agreed()
            left = (await bus.depth(queue)).ready
            proxies["east"].delay_s = 0.0
            await drained(bus, queue)

            async def all_noticed() -> bool:
                return await noticed() == said

            await eventually(all_noticed, "every notice is an Event")
        say_measured("agent", memory, flooded_s, loop.time() - at, said=said, handled=done, left_when_resized=left)
        assert said >= TIMES * done
        assert left, "the resizes did not wait for the notices"
        assert memory.grown < MOST_GROWTH
        assert (await bus.depth(DEAD)).ready == 0
    assert "process.failed" not in agent.process.log_text()
    fleet.expect_no_tracebacks()


async def test_poison_in_every_queue_stops_nothing(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """One for each type of message, in its own queue; what it says is not JSON."""
    await set_quota(clusters, 20)
    jobs = Jobs(clusters, ["one"])
    await jobs.submit()
    issuers = {
        user: Issuer(epoch=later_epoch(), user=user, now=partial(datetime.now, UTC), random=os.urandom)
        for user in ("manager", "east")
    }
    uid, published = await cluster_uid(clusters.workers[EAST]), dict[str, str]()
    async with bus_of(rabbitmq, vhost, "manager") as down, bus_of(rabbitmq, vhost, "east") as up:
        for message in MESSAGES.values():
            exchange = exchange_of(message.direction)
            bus, user = (up, "east") if exchange == UP else (down, "manager")
            envelope = issuers[user].envelope(Heartbeat(), EAST, uid)
            wire = encode(structs.replace(envelope, type=message.type), Heartbeat())
            key = routing_key(EAST, message.type, None if exchange == UP else uid)
            await bus.publish(exchange, structs.replace(wire, routing_key=key, body=b"{not json"))
            published[key] = DeadReason.MALFORMED
        await jobs.resize("one", 4)
        await jobs.agreed()

        async def all_dead() -> bool:
            return sum([(await down.depth(queue)).ready for queue in DEAD_LETTERS]) == len(MESSAGES)

        await eventually(all_dead, "each is a dead letter")
        found = {}
        async with down.subscribe(*DEAD_LETTERS, prefetch=50) as dead:
            async for delivery in dead:
                found[delivery.message.routing_key] = delivery.message.headers[REASON_HEADER]
                await delivery.ack()
                if len(found) == len(MESSAGES):
                    break
    assert found == published
    fleet.expect_no_tracebacks()


def status(ref: JobRef, number: int) -> Status:
    told: dict[str, Any] = {"active": number, "ready": number}
    return Status(job=ref, workload="w", spec_version=1, phase=JobPhase.RUNNING, message=PADDING, job_status=told)


def request(ref: JobRef, number: int) -> ScaleRequest:
    return ScaleRequest(
        job=ref,
        workload="w",
        worker_uid="u",
        worker_generation=number,
        granted={"main": 1},
        wanted={"main": 1 + number % 4},
        why=PADDING,
    )


def notice(ref: JobRef, number: int) -> Pending:
    return Pending(
        job=ref,
        workload="w",
        worker_uid="u",
        worker_generation=1,
        wanted={"main": 9},
        reason="Pending",
        message=f"{number} {PADDING[:900]}",
        since="2026-01-01T00:00:00Z",
    )


async def handled(manager: Role) -> int:
    """Messages of west that the manager has taken up; those that a newer one has superseded are not."""
    text = await asyncio.to_thread(manager.probe, "/metrics")
    found = re.findall(
        r'^slicebus_manager_messages_total\{cluster="west",type="(?:status|scale-request)"\} (\S+)$', text, re.M
    )
    return round(sum(map(float, found)))


async def runs(clusters: World, name: str, count: int) -> bool:
    """Whether a job of east has so many running pods."""
    pods = (await clusters.workers[EAST].list(PODS, namespace=NAMESPACE)).items
    return sum(pod_of(pod) == name and pod["status"].get("phase") == "Running" for pod in pods) == count


def say_measured(role: str, memory: Memory, flooded_s: float, handled_s: float, **more: int) -> None:
    mib = {"mib": memory.before // MIB, "grown_mib": round(memory.grown / MIB, 1)}
    _log.info("overload", role=role, **mib, flooded_s=round(flooded_s, 1), handled_s=round(handled_s, 1), **more)
