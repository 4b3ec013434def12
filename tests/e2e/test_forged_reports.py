"""Whoever has one agent's credentials reports what he likes: he neither fences the agent nor passes for its cluster."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from integration.bus.contract import browse_all
from slicebus.agent.act.identity import cluster_uid
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide.cluster.clocks import CLOCK_SKEW
from slicebus.proto.codec import encode
from slicebus.proto.epochs import epoch_at
from slicebus.proto.headers import PREFIX
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Heartbeat, Hello, Message
from slicebus.proto.topology import DEAD, UP
from slicebus.slices.api.conditions import conditions_of
from support import roles
from support.scenario import Scenario, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
HELLO = Hello(agent_version="9", kubernetes_version="v1.30.0", schema_version="1.0")
LAST_EPOCH = 2**31 - 1
"""`leaseTransitions` has 32 bits."""


@pytest.fixture
async def world(bare_east: World, urls: dict[str, str]) -> AsyncIterator[World]:
    async with roles.manager(bare_east, urls), roles.agent(bare_east, urls, EAST):
        yield bare_east


async def test_a_thief_neither_fences_the_agent_nor_passes_for_its_cluster(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "honest")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    uid = await cluster_uid(world.workers[EAST])
    thief, manager = await connect(urls[EAST], name="thief"), await connect(urls["manager"], name="test")

    async def publish(message: Message, *, epoch: int, uid: ClusterUid) -> None:
        issuer = Issuer(epoch=epoch, user=thief.user, now=now, random=random_bytes)
        await thief.publish(UP, encode(issuer.envelope(message, EAST, uid), message))

    async def publish_without_uid(message: Message) -> None:
        """A message that names no cluster UID would pass for any cluster of the name."""
        issuer = Issuer(epoch=epoch_at(now()), user=thief.user, now=now, random=random_bytes)
        wire = encode(issuer.envelope(message, EAST, uid), message)
        headers = {name: value for name, value in wire.headers.items() if name != f"{PREFIX}clusteruid"}
        await thief.publish(UP, structs.replace(wire, headers=headers))

    async def refused() -> bool:
        letters = await browse_all(manager, DEAD)
        is_told = any(
            entry["type"] == CLOCK_SKEW for entry in conditions_of(await world.manager.get(WORKERCLUSTERS, EAST))
        )
        return is_told and [letter.headers[REASON_HEADER] for letter in letters] == ["malformed", "malformed"]

    try:
        await publish(HELLO, epoch=LAST_EPOCH, uid=uid)
        await publish(HELLO, epoch=epoch_at(now()) + 3600, uid=uid)
        await publish_without_uid(HELLO)
        await publish_without_uid(Heartbeat(capacity={"": {"cpu": "1M"}}))
        await eventually(refused, "the forged messages are refused, and said on the cluster or dead letters")
        await scenario.scale(3)
        await scenario.expect_pods(running=3)
        status = (await world.manager.get(WORKERCLUSTERS, EAST))["status"]
        assert status["agentVersion"] != HELLO.agent_version
        assert status["epoch"] <= epoch_at(now())
        assert status["clusterUID"] == uid
    finally:
        for each in (thief, manager):
            await each.aclose()
