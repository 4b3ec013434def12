"""What lies between the parts: connections that are cut, stand still or are slow, and a broker that takes nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
import structlog

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.proto.topology import DEAD
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs, kubeconfig_through
from support.installation import Role
from support.proxy import Proxy
from support.rabbitmq import RabbitBroker
from support.scenario import set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

_log = structlog.get_logger()
NAMES = ["one", "two", "three"]
MIB = 1024 * 1024


@pytest.fixture
async def broker_proxy(rabbitmq: RabbitBroker) -> AsyncIterator[Proxy]:
    async with Proxy.before(rabbitmq.port) as proxy:
        yield proxy


@pytest.fixture
async def api_proxy(control_plane: ControlPlane) -> AsyncIterator[Proxy]:
    async with Proxy.before(control_plane.clusters["east"].port) as proxy:
        yield proxy


@pytest.fixture
async def fleet(
    clusters: World,
    control_plane: ControlPlane,
    rabbitmq: RabbitBroker,
    vhost: str,
    tmp_path: Path,
    broker_proxy: Proxy,
    api_proxy: Proxy,
) -> AsyncIterator[Fleet]:
    """A manager, and an agent behind proxies."""
    made = Fleet(tmp_path)
    url, servers = rabbitmq.url(vhost, "manager"), control_plane.clusters
    made.add("manager", "manager", url=url, kubeconfig=servers["manager"].kubeconfig)
    # Three times as long without a word, and a second each, is taken for a loss.
    url = rabbitmq.url(vhost, "east").replace(f":{rabbitmq.port}/", f":{broker_proxy.port}/") + "?heartbeat=2"
    kubeconfig = kubeconfig_through(servers["east"], api_proxy.port, tmp_path / "kubeconfig")
    made.add("east", "agent", url=url, kubeconfig=kubeconfig, SLICEBUS_CLUSTER="east")
    async with made.kept():
        await made.ready()
        yield made


async def logged(role: Role, text: str) -> None:
    """Wait until a role has logged something."""

    async def look() -> bool:
        return text in role.process.log_text()

    await eventually(look, f"it logs {text!r}")


async def test_an_agent_outlasts_bad_connections(
    fleet: Fleet, clusters: World, broker_proxy: Proxy, api_proxy: Proxy
) -> None:
    """Over half a minute: a silent broker is given up after three heartbeats, a silent API server with the Lease."""
    await set_quota(clusters, 20)
    agent, jobs, loop = fleet.roles["east"], Jobs(clusters, NAMES), asyncio.get_running_loop()
    await jobs.submit()

    for size in (4, 2, 5):
        for proxy in (broker_proxy, api_proxy):
            assert proxy.connections
            proxy.cut()
        await jobs.resize("one", size)
        await jobs.resize("two", size)
        await asyncio.sleep(0.5)
    await jobs.agreed()
    assert "process.failed" not in agent.process.log_text(), "cut connections end nothing"

    broker_proxy.delay_s = api_proxy.delay_s = 0.1
    await jobs.resize("one", 1)
    await jobs.agreed()
    broker_proxy.delay_s = api_proxy.delay_s = 0.0

    broker_proxy.stall()
    await jobs.resize("one", 6)
    await logged(agent, "bus.unreachable")
    assert await asyncio.to_thread(agent.probe, "/healthz") == "ok\n"
    assert "process.failed" not in agent.process.log_text(), "a silent broker ends nothing"
    assert await jobs.disagreements()
    broker_proxy.resume()
    at = loop.time()
    await jobs.agreed()
    _log.info("broker.recovered", seconds=round(loop.time() - at, 1))

    api_proxy.stall()
    await jobs.resize("one", 2)
    await logged(agent, "process.failed")
    api_proxy.resume()
    at = loop.time()
    await jobs.agreed()
    _log.info("api.recovered", seconds=round(loop.time() - at, 1))
    fleet.expect_no_tracebacks()


async def test_a_broker_that_takes_nothing_is_waited_for(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str
) -> None:
    """Its disk is full, or so it believes. Over half a minute: a role waits so long for confirms before it says so."""
    await set_quota(clusters, 20)
    jobs, loop = Jobs(clusters, NAMES), asyncio.get_running_loop()
    await jobs.submit()
    before = {name: role.process.memory_bytes() for name, role in fleet.roles.items()}
    try:
        await asyncio.to_thread(rabbitmq.ctl, "set_disk_free_limit", "1000000GB")
        for number in range(30):
            await jobs.resize(NAMES[number % 3], 1 + number % 4)
            await asyncio.sleep(0.1)
        for role in fleet.roles.values():
            await logged(role, "bus.blocked")
        await logged(fleet.roles["east"], "the broker confirms nothing")
        for name, role in fleet.roles.items():
            assert await asyncio.to_thread(role.probe, "/healthz") == "ok\n"
            with pytest.raises(HTTPError) as refused:
                await asyncio.to_thread(role.probe, "/readyz")
            assert "the broker takes nothing from publishers" in refused.value.read().decode()
            grown = role.process.memory_bytes() - before[name]
            _log.info("blocked", role=name, mib=before[name] // MIB, grown_mib=round(grown / MIB, 1))
            assert grown < 64 * MIB
            assert "process.failed" not in role.process.log_text()
        assert await jobs.disagreements()
    finally:
        await asyncio.to_thread(rabbitmq.ctl, "set_disk_free_limit", "50MB")
    at = loop.time()
    await jobs.agreed()
    _log.info("alarm.recovered", seconds=round(loop.time() - at, 1))
    bus = await connect(rabbitmq.url(vhost, "manager"), name="test")
    try:
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()
    fleet.expect_no_tracebacks()
