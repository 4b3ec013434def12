"""Two managers, and two agents of one cluster: when the leader is killed or hangs, the other one goes on, and stays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.journal.entry import Entry
from slicebus.journal.streams import read_journals
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import LEASES
from slicebus.proto.messages import ClusterName, Direction
from slicebus.proto.topology import DEAD
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs
from support.rabbitmq import RabbitBroker
from support.scenario import set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

_log = structlog.get_logger()
Manifest = dict[str, Any]
COMMANDS = {"manager": Direction.DOWN, "agent": Direction.UP}
"""The roles, and which way their messages go."""


@pytest.fixture
async def fleet(
    clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """Two of each."""
    made = Fleet(tmp_path)
    servers = control_plane.clusters
    for number in (1, 2):
        url = rabbitmq.url(vhost, "manager")
        made.add(f"manager-{number}", "manager", url=url, kubeconfig=servers["manager"].kubeconfig)
        url, own = rabbitmq.url(vhost, "east"), {"SLICEBUS_CLUSTER": "east"}
        made.add(f"agent-{number}", "agent", url=url, kubeconfig=servers["east"].kubeconfig, **own)
    async with made.kept():
        await made.ready()
        yield made


class Seat:
    """The Lease of one role."""

    def __init__(self, world: World, command: str) -> None:
        self._client: KubeClient = world.manager if command == "manager" else world.workers[ClusterName("east")]
        self._name = f"slicebus-{command}"

    async def spec(self) -> Manifest:
        spec: Manifest = (await self._client.get(LEASES, self._name, "slicebus-system"))["spec"]
        return spec

    async def taken_from(self, before: Manifest) -> Manifest:
        """Wait until somebody else has it."""

        async def look() -> Manifest | None:
            spec = await self.spec()
            return spec if spec["holderIdentity"] not in ("", before["holderIdentity"]) else None

        return await eventually(look, "the standby leads") or {}


def seconds_between(before: Manifest, after: Manifest) -> float:
    """From the last renewal of the one to the acquisition by the other, by the clock of this machine."""
    renewed, acquired = (datetime.fromisoformat(text) for text in (before["renewTime"], after["acquireTime"]))
    return (acquired - renewed).total_seconds()


async def said_by(url: str, direction: Direction, epoch: int) -> int:
    """How many messages of an epoch have gone that way."""
    bus = await connect(url, name="test")
    try:
        count = 0
        async with aclosing(read_journals(bus, "first", follow=False)) as records:
            async for record in records:
                received = Entry.from_record(record).received
                if received and received.message.direction is direction and received.envelope.epoch == epoch:
                    count += 1
        return count
    finally:
        await bus.aclose()


@pytest.mark.parametrize("command", COMMANDS)
async def test_the_standby_takes_over_and_the_old_leader_that_wakes_up_is_fenced(
    command: str, fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """Over half a minute: twice the standby waits until the Lease of 12 s has run out."""
    await set_quota(clusters, 20)
    jobs, seat, loop = Jobs(clusters, ["one", "two"]), Seat(clusters, command), asyncio.get_running_loop()
    await jobs.submit()

    first = await seat.spec()
    killed, at = first["holderIdentity"], loop.time()
    fleet.held.add(killed)
    fleet.crash(killed)
    await jobs.resize("one", 4)
    second = await seat.taken_from(first)
    lease_s = loop.time() - at
    await jobs.agreed()
    _log.info("killed", role=command, lease_s=round(lease_s, 1), through_s=round(loop.time() - at, 1))
    assert second["leaseTransitions"] > first["leaseTransitions"]
    assert seconds_between(first, second) < 2 * first["leaseDurationSeconds"]

    fleet.held.clear()
    await fleet.ready()
    hung, at = second["holderIdentity"], loop.time()
    fleet.held.add(hung)
    fleet.roles[hung].process.pause()
    await jobs.resize("two", 5)
    third = await seat.taken_from(second)
    lease_s = loop.time() - at
    await jobs.agreed()
    _log.info("hung", role=command, lease_s=round(lease_s, 1), through_s=round(loop.time() - at, 1))
    said = await said_by(rabbitmq.url(vhost, "manager"), COMMANDS[command], second["leaseTransitions"])
    assert said > 0
    await jobs.resize("one", 2)
    fleet.roles[hung].process.resume()

    async def ended() -> bool:
        return not fleet.roles[hung].process.is_running

    await eventually(ended, "the old leader ends")
    await jobs.agreed()
    assert "process.failed" in [line["event"] for line in fleet.roles[hung].log()]
    assert await said_by(rabbitmq.url(vhost, "manager"), COMMANDS[command], second["leaseTransitions"]) == said
    now = await seat.spec()
    assert (now["holderIdentity"], now["leaseTransitions"]) == (third["holderIdentity"], third["leaseTransitions"])
    bus = await connect(rabbitmq.url(vhost, "manager"), name="test")
    try:
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()
    fleet.expect_no_tracebacks()
