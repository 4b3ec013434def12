"""A broker of RabbitMQ 3.10 gives way to one of RabbitMQ 4 with its definitions: docs/upgrade.md has the steps."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import DEAD
from support.missing import skip_or_fail
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import Release, releases
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = pytest.mark.rabbitmq
EAST = ClusterName("east")
VHOST = "slicebus"
Node = Callable[..., RabbitBroker]


@pytest.fixture
def majors() -> tuple[Release, Release]:
    """The newest release, and one of the major version before."""
    found = releases()
    older = [release for release in found if release.version.split(".")[0] != found[0].version.split(".")[0]]
    if not older:
        skip_or_fail("RabbitMQ 3 and 4 are not both on this machine")
    return older[0], found[0]


@pytest.fixture
def node() -> Iterator[Node]:
    """Makes brokers, which end with the test."""
    made: list[RabbitBroker] = []

    def make(folder: Path, release: Release, *, port: int | None = None) -> RabbitBroker:
        folder.mkdir()
        made.append(RabbitBroker(folder, release, port=port))
        return made[-1]

    yield make
    for broker in made:
        broker.stop()


@pytest.mark.timeout(560)
async def test_a_fleet_moves_to_the_next_major_version_with_the_definitions(
    majors: tuple[Release, Release], node: Node, tmp_path: Path
) -> None:
    """Over 20 s: two brokers start, one after the other. No role is restarted, and the job runs all along. An order
    that waits in the old broker's queue goes with it, and is sent again."""
    old = node(tmp_path / "old", majors[0])
    old.start()
    old.import_all(VHOST, EAST)
    urls = {role: old.url(VHOST, role) for role in ("manager", EAST)}
    async with embedded_world([EAST]) as world, fleet(world, urls):
        await set_quota(world, 20)
        job, queued = Scenario(world, "Job", "train"), Scenario(world, "Job", "queued")
        await job.submit()
        await job.expect_pods(running=1)
        before = await job.running()

        exported = tmp_path / "definitions.json"
        await asyncio.to_thread(old.ctl, "export_definitions", str(exported))
        await asyncio.to_thread(cut_off, old, EAST)
        await queued.submit()
        await eventually(lambda: asyncio.to_thread(waits_for, old, EAST), "an order waits for the agent")
        await job.scale(3)
        await asyncio.to_thread(old.stop)

        new = node(tmp_path / "new", majors[1], port=old.port)
        new.configure()
        new.launch()
        await asyncio.to_thread(new.wait_ready)
        await asyncio.to_thread(new.ctl, "import_definitions", str(exported))

        await job.expect_pods(running=3)
        assert before < await job.running(), "the pods before run on"
        await queued.expect_pods(running=1)
        await job.scale(2)
        await job.expect_pods(running=2)
        other = Scenario(world, "Job", "other")
        await other.submit()
        await other.expect_pods(running=1)
    bus = await connect(new.url(VHOST, "manager"), name="test")
    try:
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()


def cut_off(broker: RabbitBroker, user: str) -> None:
    """Have a user lose its connection, and get no other."""
    broker.api("PUT", f"users/{user}", {"password": "another", "tags": ""})
    broker.close_connections()


def waits_for(broker: RabbitBroker, cluster: str) -> bool:
    """Whether something waits in the queues of an agent."""
    queues = broker.api("GET", f"queues/{VHOST}")
    return any(queue["name"].startswith(f"slicebus.agent.{cluster}.") and queue.get("messages") for queue in queues)
