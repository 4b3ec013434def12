"""Two shards of the manager, and a process that stands by: one shard dies, a queue goes to the other, and both end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.journal.streams import read_journals
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, LOCALQUEUES
from slicebus.manager.permissions import lease_of
from slicebus.manager.state.shards import claim_of
from slicebus.proto.messages import Lane
from slicebus.proto.topology import manager_queue
from slicebus.slices.api import kueue
from support.controlplane import ControlPlane
from support.fleet import Fleet, holder, nothing_is_left, queues_of
from support.installation import run_cli
from support.rabbitmq import RabbitBroker
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

Manifest = dict[str, Any]
COHORTS = {"analysis": "all", "research": "team"}
"""Of two shards the first has the tree of the one, and the second that of the other."""
VHOST = "shards"


@pytest.fixture
def vhost(rabbitmq: RabbitBroker) -> Any:
    """With the rights of two shards."""
    rabbitmq.add_vhost(VHOST, "east", "west", shards=2)
    yield VHOST
    rabbitmq.remove_vhost(VHOST)


@pytest.fixture
async def fleet(
    clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    made, servers = Fleet(tmp_path), control_plane.clusters
    for number in (1, 2, 3):
        url, shards = rabbitmq.url(vhost, "manager"), {"SLICEBUS_SHARDS": "2"}
        made.add(f"manager-{number}", "manager", url=url, kubeconfig=servers["manager"].kubeconfig, **shards)
    for name in ("east", "west"):
        url, own = rabbitmq.url(vhost, name), {"SLICEBUS_CLUSTER": name}
        made.add(name, "agent", url=url, kubeconfig=servers[name].kubeconfig, **own)
    async with made.kept():
        await made.ready()
        yield made
    made.expect_no_tracebacks()


async def set_up(world: World) -> None:
    """Two queues, each in a cohort of its own."""
    await set_quota(world, 20)
    given = dict(objects.quota(20))
    for name, cohort in COHORTS.items():
        queue = given[CLUSTERQUEUES]
        made = queue | {"metadata": {"name": name}, "spec": queue["spec"] | {"cohortName": cohort}}
        await world.manager.create(CLUSTERQUEUES, made)
        local = objects.named(LOCALQUEUES, f"to-{name}", {"clusterQueue": name})
        local["metadata"]["namespace"] = NAMESPACE
        await world.manager.create(LOCALQUEUES, local)


async def submitted(world: World, name: str) -> Scenario:
    """A job in the queue of that name, which runs."""
    job = objects.job(name)
    job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = f"to-{name}"
    await world.manager.create(JOBS, job)
    scenario = Scenario(world, "Job", name)
    await scenario.expect_pods(running=1)
    return scenario


async def had_by(world: World, queue: str, shard: int) -> None:
    async def look() -> bool:
        return claim_of(await world.manager.get(CLUSTERQUEUES, queue)) == shard

    await eventually(look, f"shard {shard} has {queue}")


async def test_each_has_its_cohort_whoever_dies_and_whatever_moves(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """Over 20 s: the standby waits until the Lease of a dead shard has run out."""
    await set_up(clusters)
    await had_by(clusters, "research", 1)
    await had_by(clusters, "analysis", 0)
    analysis, research = await submitted(clusters, "analysis"), await submitted(clusters, "research")
    for scenario in (analysis, research):
        await scenario.scale(3)
        await scenario.expect_pods(running=3)

    leaders = [(await holder(clusters, lease_of(shard)))["holderIdentity"] for shard in range(2)]
    assert len(set(leaders)) == 2
    fleet.held.add(leaders[1])
    fleet.crash(leaders[1])
    await research.scale(5)
    await analysis.scale(4)
    await analysis.expect_pods(running=4)
    await research.expect_pods(running=5)
    assert (await holder(clusters, lease_of(1)))["holderIdentity"] not in leaders

    fleet.held.clear()
    await fleet.ready()
    joined = MergePatch({"spec": {"cohortName": COHORTS["analysis"]}})
    await clusters.manager.patch(CLUSTERQUEUES, "research", None, joined)
    await had_by(clusters, "research", 0)
    await research.scale(2)
    await research.expect_pods(running=2)
    await research.scale(6)
    await research.expect_pods(running=6)

    queues = [*await queues_of(clusters), *(manager_queue(lane, 1) for lane in Lane)]
    await nothing_is_left(rabbitmq.url(vhost, "manager"), queues)


async def recorded_keys(url: str) -> set[str]:
    """The routing keys in the journal."""
    bus = await connect(url, name="test")
    try:
        return {record.message.routing_key async for record in read_journals(bus, "first", follow=False)}
    finally:
        await bus.aclose()


async def test_one_manager_takes_what_agents_address_to_the_shards_of_before(
    fleet: Fleet, clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str
) -> None:
    await set_up(clusters)
    await had_by(clusters, "research", 1)
    research = await submitted(clusters, "research")

    managers = [name for name in fleet.roles if name.startswith("manager")]
    fleet.held.update(managers)
    for name in managers:
        fleet.crash(name)
    await research.scale(3)
    url = rabbitmq.url(vhost, "manager")
    fleet.add("alone", "manager", url=url, kubeconfig=control_plane.clusters["manager"].kubeconfig)
    await research.expect_pods(running=3)
    assert any(key.endswith(".scale-request.1") for key in await recorded_keys(url))
    await research.scale(5)
    await research.expect_pods(running=5)
    await nothing_is_left(url, [*await queues_of(clusters), *(manager_queue(lane, 1) for lane in Lane)])


async def test_the_doctor_says_who_leads_each(
    fleet: Fleet, clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str
) -> None:
    environment = {
        "AMQP_URL": rabbitmq.url(vhost, "manager"),
        "KUBECONFIG": str(control_plane.clusters["manager"].kubeconfig),
        "SLICEBUS_SHARDS": "2",
    }

    async def found() -> list[list[str]]:
        """What the doctor says once both work: a leader's Lease says so with its next renewal only."""
        done = await asyncio.to_thread(run_cli, "doctor", "--role", "manager", env=environment)
        lines = [line.split() for line in done.stdout.splitlines()]
        leaders = [line[:3] for line in lines if "leader" in line]
        return lines if leaders == [["✓", "leader", "0"], ["✓", "leader", "1"]] else []

    subjects = [line[:2] for line in await eventually(found, "the doctor names two leaders that work")]
    assert ["✓", "topology"] in subjects
    assert ["✓", "rights"] in subjects
