"""Roles on RabbitMQ with the rights that slicebus defines: what they wait for, what they say meanwhile, and what the
manager does with a message that the broker lets through."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from integration.bus.contract import browse_all
from slicebus.agent.act.identity import cluster_uid
from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, running
from slicebus.cli.doctor.broker_checks import BrokerNeeds, broker_checks
from slicebus.kube.resources import LEASES, WORKERCLUSTERS
from slicebus.proto.codec import encode
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Hello
from slicebus.proto.rights import NOTHING, Member, agent_rights
from slicebus.proto.topology import DEAD, JOURNAL, UP, Topology, common_topology, journal_queues
from slicebus.runtime.leadership import NOT_READY_ANNOTATION
from support import roles
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = every_rabbitmq

EAST = ClusterName("east")
[OWN] = agent_rights(Member(EAST, "east")).permissions
RIGHTS = {"configure": OWN.configure, "write": OWN.write, "read": OWN.read}
UID = ClusterUid("uid")
HELLO = Hello(agent_version="1", kubernetes_version="v1.30.0", schema_version="1.0")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with embedded_world([EAST]) as made:
        yield made


@pytest.fixture
def urls(rabbitmq: RabbitBroker, vhost: str) -> dict[str, str]:
    return {user: rabbitmq.url(vhost, user) for user in ("manager", "east")}


@asynccontextmanager
async def agent(world: World, url: str) -> AsyncIterator[Agent]:
    """An agent that is started, and need not lead."""
    bus = await connect(url, name="east")
    settings: dict[str, Any] = {"cluster": EAST, "namespace": objects.SYSTEM_NAMESPACE, "identity": "east-1"}
    settings |= roles.LEASE | roles.AGENT | {"manager_user": "manager"}
    role = Agent(AgentSettings(amqp_url=url, **settings), world.workers[EAST], bus, CollectorRegistry())
    try:
        async with running(role.run()):
            yield role
    finally:
        await bus.aclose()


async def says(world: World, role: Agent, *words: str) -> None:
    """Wait until the role and its Lease say why it waits."""

    async def said() -> bool:
        reason = role.not_ready()
        if not all(word in reason for word in words):
            return False
        lease = await world.workers[EAST].get(LEASES, Agent.component, objects.SYSTEM_NAMESPACE)
        return bool((lease["metadata"].get("annotations") or {}).get(NOT_READY_ANNOTATION) == reason)

    await eventually(said, f"it says {words}, not {role.not_ready()!r}")


async def works(role: Agent) -> None:
    async def ready() -> bool:
        return role.leading.is_set() and role.not_ready() == ""

    await eventually(ready, f"it works, and not: {role.not_ready()}")


async def test_an_agent_that_starts_first_waits_for_the_manager_and_then_for_its_cluster_to_be_accepted(
    world: World, urls: dict[str, str]
) -> None:
    async with agent(world, urls["east"]) as role:
        await says(world, role, "exchange slicebus.up is missing", "the manager makes it")
        async with roles.manager(world, urls):
            await role.leading.wait()
            await says(world, role, "queue slicebus.agent.east.", "control is missing", "has accepted by this name")
            await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
            await works(role)
            await set_quota(world, 9)
            scenario = Scenario(world, "Job", "first")
            await scenario.submit()
            await scenario.expect_pods(running=1)
            await scenario.scale(4)
            await scenario.expect_pods(running=4)


async def test_an_agent_waits_for_the_bindings_that_a_manager_has_not_made_yet(
    world: World, urls: dict[str, str]
) -> None:
    manager = await connect(urls["manager"], name="manager")
    await manager.declare(Topology(common_topology().exchanges, (), ()))
    await manager.aclose()
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    async with agent(world, urls["east"]) as role:
        await says(world, role, "publish east.hello", "NO_ROUTE")
        async with roles.manager(world, urls):
            await works(role)


@pytest.mark.parametrize(
    ("lacks", "word"),
    [
        ({"write": r"^slicebus\.(up|agent-dead)$"}, "publish east.decisions to slicebus.agent-decisions"),
        ({"write": r"^slicebus\.(up|agent-decisions)$"}, "publish east.relabel to slicebus.agent-dead"),
        ({"write": NOTHING}, "publish east.hello to slicebus.up"),
        ({"read": NOTHING}, "read slicebus.agent.east."),
    ],
)
async def test_an_agent_without_a_right_waits_says_which_and_goes_on(
    lacks: dict[str, str], word: str, world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    rabbitmq.permit(vhost, "east", **RIGHTS | lacks)
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    async with roles.manager(world, urls), agent(world, urls["east"]) as role:
        await says(world, role, "the broker refuses its user east this: ", word)
        assert not role.leading.is_set()
        rabbitmq.permit(vhost, "east", **RIGHTS)
        await works(role)


async def test_an_agent_that_leads_waits_for_a_right_that_was_taken_away(
    world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    """RabbitMQ asks again on the next connection."""
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))

    def disconnect() -> None:
        for connection in rabbitmq.api("GET", f"vhosts/{vhost}/connections"):
            if connection["user"] == "east":
                rabbitmq.api("DELETE", f"connections/{quote(connection['name'], safe='')}")

    async with roles.manager(world, urls), agent(world, urls["east"]) as role:
        await works(role)
        rabbitmq.permit(vhost, "east", **RIGHTS | {"write": NOTHING})

        async def refused() -> bool:
            await asyncio.to_thread(disconnect)
            return "slicebus.up" in role.not_ready()

        await eventually(refused, "it says what the broker refuses")
        rabbitmq.permit(vhost, "east", **RIGHTS)
        await works(role)


async def test_an_agent_whose_keys_are_anothers_waits(
    world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    topic = {"exchange": UP, "write": r"^west\.", "read": NOTHING}
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    rabbitmq.api("PUT", f"topic-permissions/{vhost}/east", topic)
    async with roles.manager(world, urls), agent(world, urls["east"]) as role:
        await says(world, role, "publish east.hello to slicebus.up")
        rabbitmq.api("PUT", f"topic-permissions/{vhost}/east", topic | {"write": r"^east\."})
        await works(role)


async def test_an_agent_works_on_after_its_queues_were_deleted(
    world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    """By a restart: it says hello, and the manager makes its queues anew."""
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    await set_quota(world, 9)
    async with roles.manager(world, urls):
        async with agent(world, urls["east"]) as role:
            await works(role)
        for queue in await asyncio.to_thread(rabbitmq.api, "GET", f"queues/{vhost}"):
            if queue["name"].startswith("slicebus.agent."):
                await asyncio.to_thread(rabbitmq.api, "DELETE", f"queues/{vhost}/{queue['name']}")
        async with agent(world, urls["east"]) as role:
            await works(role)
            scenario = Scenario(world, "Job", "first")
            await scenario.submit()
            await scenario.expect_pods(running=1)


async def dead(bus: Bus) -> list[tuple[str, str]]:
    found = [DeadLetter.from_message(message) for message in await browse_all(bus, DEAD)]
    return [(letter.reason, letter.detail) for letter in found]


async def test_a_message_without_a_user_is_refused_by_the_manager(world: World, urls: dict[str, str]) -> None:
    """The broker lets it through: it checks the id of a message that has one."""
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    issuer = Issuer(epoch=9, user="east", now=now, random=random_bytes)
    wire = encode(issuer.envelope(HELLO, EAST, UID), HELLO)
    async with roles.manager(world, urls) as manager:
        east = await connect(urls["east"], name="attack")
        try:
            await east.publish(UP, msgspec.structs.replace(wire, user_id=None))
        finally:
            await east.aclose()

        async def refused() -> bool:
            return bool((await manager.bus.depth(DEAD)).ready)

        await eventually(refused, "it is a dead letter")
        assert await dead(manager.bus) == [
            ("wrong-user", "user None may not speak for cluster 'east', only 'east' may")
        ]
    status = (await world.manager.get(WORKERCLUSTERS, EAST)).get("status", {})
    assert "epoch" not in status


async def test_what_broad_rights_let_through_is_refused_by_the_manager(
    world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    """The second lock: a key of another cluster's, from a user that may use every key."""
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster("west"))
    rabbitmq.broaden(vhost, "east")
    issuer = Issuer(epoch=9, user="east", now=now, random=random_bytes)
    async with roles.manager(world, urls) as manager:
        east = await connect(urls["east"], name="attack")
        try:
            await east.publish(UP, encode(issuer.envelope(HELLO, ClusterName("west"), UID), HELLO))
        finally:
            await east.aclose()

        async def refused() -> bool:
            return bool(await dead(manager.bus))

        await eventually(refused, "it is a dead letter")
        assert await dead(manager.bus) == [
            ("wrong-user", "user 'east' may not speak for cluster 'west', only 'west' may")
        ]


async def test_the_doctor_says_whether_rights_are_too_narrow_or_too_broad(
    world: World, urls: dict[str, str], rabbitmq: RabbitBroker, vhost: str
) -> None:
    uid = await cluster_uid(world.workers[EAST])

    async def rights(role: str) -> str:
        cluster = None if role == "manager" else EAST
        found = broker_checks(urls[role], cluster=cluster, uid=uid, needs=BrokerNeeds(journal_queues()))
        [check] = [check async for check in found if check.subject == "rights"]
        assert check.ok == check.found.endswith("may do what it needs, and nothing else that was tried")
        return check.found

    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    async with roles.manager(world, urls), agent(world, urls["east"]) as role:
        await works(role)
        for name in ("manager", "east"):
            assert await rights(name) == f"user {name} may do what it needs, and nothing else that was tried"
        rabbitmq.permit(vhost, "east", **RIGHTS | {"read": r"^slicebus\."})
        found = await rights("east")
        assert found.startswith("too broad, user east may: read slicebus.probe, read slicebus.up")
        assert f"read {JOURNAL}" in found
        rabbitmq.permit(vhost, "east", **RIGHTS | {"write": r"^slicebus\.(up|agent-decisions)$"})
        assert await rights("east") == "too narrow, user east may not: publish east.relabel to slicebus.agent-dead"
        rabbitmq.permit(vhost, "manager", configure=".*", write=".*", read=".*")
        assert (await rights("manager")).startswith("too broad, user manager may: configure slicebus-probe")
