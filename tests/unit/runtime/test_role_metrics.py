"""What a process shows of itself, from its first moment on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import aiohttp
import pytest
import trustme
import yaml
from prometheus_client.parser import text_string_to_metric_families

from slicebus.bus.contract import Bus
from slicebus.bus.factory import register
from slicebus.kube.client import KubeClient
from slicebus.runtime import role as roles
from slicebus.runtime.health import health_server
from slicebus.runtime.role import run_role
from slicebus.runtime.settings import RoleSettings
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from support.waiting import eventually
from unit.kube.servers import SYSTEM
from unit.runtime.test_role import Leader


class Process:
    """A role as its process runs it, whose broker is away at first."""

    def __init__(self) -> None:
        self.broker_is_there = asyncio.Event()
        self.bus = MemoryBus(MemoryBroker(), user="u")
        self.url = ""

    async def connect(self, *_: object) -> Bus:
        await self.broker_is_there.wait()
        return self.bus

    async def scrape(self) -> dict[str, float]:
        """What it shows, by name and the values of the labels."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            text = await response.text()
        return {
            f"{sample.name}{list(sample.labels.values())}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@asynccontextmanager
async def a_process(
    api: KubeClient, folder: Path, monkeypatch: pytest.MonkeyPatch, identity: str = "a"
) -> AsyncIterator[Process]:
    process = Process()
    register(f"away-{identity}", process.connect)
    monkeypatch.setattr("slicebus.runtime.broker_settings._IN_PROCESS", "away-")

    @asynccontextmanager
    async def noted(address: str, **how: object) -> AsyncIterator[str]:
        async with health_server(address, **how) as url:  # type: ignore[arg-type]
            process.url = url
            yield url

    monkeypatch.setattr(roles, "health_server", noted)
    config = {
        "clusters": [{"name": "c", "cluster": {"server": api.host}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    trustme.CA().cert_pem.write_to_path(folder / "ca")
    settings = RoleSettings(
        amqp_url=f"away-{identity}://u@b",
        amqp_ca_file=str(folder / "ca"),
        kubeconfig=str(folder / "kubeconfig"),
        namespace=SYSTEM,
        identity=identity,
        health_address="127.0.0.1:0",
        lease_s=0.9,
        lease_renew_s=0.1,
    )
    task = asyncio.create_task(run_role(Leader, settings, name="test"))
    try:

        async def serves() -> bool:
            return bool(process.url)

        await eventually(serves, "the metrics are served")
        yield process
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_process_shows_itself_while_it_waits_for_the_broker_and_then_that_it_leads(
    api: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_process(api, tmp_path, monkeypatch) as process:
        shown = await process.scrape()
        (build,) = (name for name in shown if name.startswith("slicebus_build_info"))
        assert version("slicebus") in build
        assert "slicebus-test" in build
        assert shown["slicebus_broker_connected[]"] == 0
        assert not any(name.startswith("slicebus_leader") for name in shown)
        assert shown["slicebus_certificate_expiry_timestamp_seconds['authority']"] > 1e9
        assert shown["process_resident_memory_bytes[]"] > 1e6
        process.broker_is_there.set()

        async def leads() -> bool:
            return (await process.scrape()).get("slicebus_leader['slicebus-test']") == 1

        await eventually(leads, "it leads")
        shown = await process.scrape()
        assert shown["slicebus_broker_connected[]"] == 1
        assert not any("_created" in name for name in shown)
        await process.bus.aclose()
        shown = await process.scrape()
        assert shown["slicebus_broker_connected[]"] == 0
        assert shown["slicebus_leader['slicebus-test']"] == 0, "it holds the Lease, and does not work"


async def test_a_standby_leads_nothing(api: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_process(api, tmp_path, monkeypatch, "a") as first:
        first.broker_is_there.set()

        async def leads() -> bool:
            return (await first.scrape()).get("slicebus_leader['slicebus-test']") == 1

        await eventually(leads, "it leads")
        async with a_process(api, tmp_path, monkeypatch, "b") as standby:
            standby.broker_is_there.set()

            async def is_connected() -> bool:
                return (await standby.scrape())["slicebus_broker_connected[]"] == 1

            await eventually(is_connected, "the other is connected")
            assert (await standby.scrape())["slicebus_leader['slicebus-test']"] == 0
