"""One minor version beside another: a job lives its whole life, whichever role is newer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from slicebus.bus.contract import Bus
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo import world as demo
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.proto.envelope import SCHEMA_VERSION
from slicebus.proto.topology import DEAD
from slicebus.sandbox.bus import MemoryBroker
from support.scenario import NAMESPACE, Scenario, set_quota
from support.versions import NewerPeer


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
@pytest.mark.parametrize("newer", ["slicebus-agent", "slicebus-manager"])
async def test_versions_live_together(kind: str, newer: str, broker_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def connected(url: str, *, name: str) -> AsyncIterator[Bus]:
        async with bus_of(url, name=name) as bus:
            yield NewerPeer(bus) if name.startswith(newer) else bus

    monkeypatch.setattr(demo, "bus_of", connected)
    urls = {role: f"memory://{role}@{broker_name}" for role in ("manager", "east", "west")}
    async with embedded_world() as world, fleet(world, urls):
        await set_quota(world, 8)
        scenario = Scenario(world, kind, "mixed")
        await scenario.submit()
        await scenario.expect_pods(running=1)
        await scenario.scale(4)
        await scenario.expect_pods(running=4)
        await scenario.scale(12)
        await scenario.expect_event("Pending", on=await scenario.worker())
        await scenario.scale(2)
        await scenario.expect_pods(running=2)
        await scenario.expect_unfinished(2)
        await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
        await scenario.expect_nothing_left()
        broker = MemoryBroker.named(broker_name)
        assert not broker.queues[DEAD].ready
        spoken = {
            record.message.headers["cloudEvents_schemaversion"]
            for record in broker.journal
            if "cloudEvents_schemaversion" in record.message.headers
        }
        assert spoken == {SCHEMA_VERSION, "1.9"}
