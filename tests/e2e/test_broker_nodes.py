"""A broker of three nodes: whichever is killed, resizes come through, and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
import structlog

from slicebus.bus.access.address import Access
from slicebus.cli.demo.world import World
from slicebus.proto.messages import Lane
from slicebus.proto.topology import DEAD, JOURNAL, manager_queue
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs, QuotaWatch, connected, nothing_is_left, queues_of
from support.missing import skip_or_fail
from support.rabbitmq_cluster import NODES, RabbitCluster
from support.rabbitmq_releases import releases
from support.scenario import set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.rabbitmq, pytest.mark.controlplane]

_log = structlog.get_logger()
JOBS, RESIZES, QUOTA, MOST, PACE_S = 8, 50, 20, 5, 0.25
"""Together the jobs may want twice the quota."""
SEED = 11
VHOST = "nodes"
CONTROL = manager_queue(Lane.CONTROL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitCluster]:
    """Three nodes that are one broker."""
    if not releases():
        skip_or_fail("no RabbitMQ: Debian's package rabbitmq-server is not installed")
    with RabbitCluster.started(tmp_path_factory.mktemp("nodes"), releases()[0]) as cluster:
        yield cluster


@pytest.fixture
def vhost(broker: RabbitCluster) -> str:
    """The vhost of this broker, for the roles and their world."""
    broker.alive.add_vhost(VHOST, "east", "west")
    return VHOST


@pytest.fixture
async def fleet(
    clusters: World, control_plane: ControlPlane, broker: RabbitCluster, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """A manager and two agents, who know every node."""
    made = Fleet(tmp_path)
    hosts = {"SLICEBUS_AMQP_HOSTS": broker.hosts}
    made.add_all(control_plane, lambda name: broker.alive.url(vhost, name), lambda _: hosts)
    async with made.kept():
        await made.ready()
        yield made


class Nodes:
    """The nodes that hold the queues of the fleet."""

    def __init__(self, broker: RabbitCluster, vhost: str) -> None:
        self._broker = broker
        self._vhost = vhost

    async def leader(self, queue: str) -> str:
        """The node that leads a queue."""

        async def look() -> str:
            found = await asyncio.to_thread(self._broker.queues, self._vhost)
            return str(found.get(queue, {}).get("node", ""))

        return await eventually(look, f"{queue} has a leader")

    async def whole(self, queues: list[str]) -> None:
        """Wait until every one of these queues has a member on every node, and all of them run."""

        async def look() -> bool:
            found = await asyncio.to_thread(self._broker.queues, self._vhost)
            return all(set(found.get(name, {}).get("online", ())) == set(self._broker.nodes) for name in queues)

        await eventually(look, f"every queue has {NODES} members")

    async def kill(self, queue: str) -> str:
        """Kill the leader of a queue; its name."""
        name = await self.leader(queue)
        await asyncio.to_thread(self._broker.kill, name)
        _log.info("node.killed", node=name, queue=queue)
        return name

    async def restart(self, name: str) -> None:
        """Start a node again."""
        self._broker.launch(name)
        await asyncio.to_thread(self._broker.wait_ready, name)


async def test_50_resizes_come_through_though_nodes_that_lead_queues_are_killed(
    fleet: Fleet, clusters: World, broker: RabbitCluster, vhost: str
) -> None:
    random, world, nodes = Random(SEED), clusters, Nodes(broker, vhost)
    queues = [*await queues_of(world), DEAD, JOURNAL]
    await nodes.whole(queues)
    await set_quota(world, QUOTA)
    jobs, quota = Jobs(world, [f"job-{number}" for number in range(JOBS)]), QuotaWatch(world, QUOTA)
    await jobs.submit()

    async def resize(count: int, *, most: int) -> None:
        for _ in range(count):
            await jobs.resize(random.choice(sorted(jobs.wanted)), random.randint(1, most))
            await asyncio.sleep(PACE_S)

    async with quota.watching():
        await resize(10, most=MOST)
        first = await nodes.kill(CONTROL)
        await resize(15, most=MOST)
        await nodes.restart(first)
        await nodes.whole(queues)
        await resize(5, most=MOST)
        second = await nodes.kill(JOURNAL)
        await resize(RESIZES - 30, most=QUOTA // JOBS)
        for name in sorted(name for name, size in jobs.wanted.items() if size > QUOTA // JOBS):
            await jobs.resize(name, 1)
        # Two nodes of three are enough.
        await jobs.agreed()
    assert not quota.violations
    assert quota.looks > 20
    fleet.expect_no_tracebacks()
    lost = [name for name, role in fleet.roles.items() if "bus.reconnected" in role.process.log_text()]
    assert lost, "somebody was connected to a node that was killed"
    assert not [name for name, role in fleet.roles.items() if "process.failed" in role.process.log_text()]
    access = Access(hosts=broker.hosts)
    await nothing_is_left(broker.alive.url(vhost, "manager"), await queues_of(world), access=access)
    for name in world.workers:
        assert await connected(world, name)
    await nodes.restart(second)
    await nodes.whole(queues)
