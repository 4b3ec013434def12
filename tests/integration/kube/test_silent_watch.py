"""A watch on a dead connection: packets are acknowledged, and nothing comes."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from slicebus.kube.cache import Cache
from slicebus.kube.client import KubeClient, Timeouts
from slicebus.kube.kubeconfig import of_url
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import CONFIGMAPS, NAMESPACES
from slicebus.kube.transport import HttpTransport
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.proxy import Proxy
from support.waiting import eventually

SHORT = Timeouts(watch_s=1.0, silence_s=2.0)
NAMESPACE = "team"


class Watched:
    """A cache that is fed through a proxy, and a client that goes past it."""

    def __init__(self, direct: KubeClient, proxy: Proxy, cache: Cache) -> None:
        self.direct = direct
        self.proxy = proxy
        self.cache = cache
        self.made: list[str] = []

    async def make(self, name: str) -> None:
        await self.direct.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": NAMESPACE}})
        self.made.append(name)

    async def sees_all(self) -> bool:
        return all(self.cache.get(NAMESPACE, name) for name in self.made)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as direct:
        await direct.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        async with Proxy.before(urlsplit(server.url).port or 0) as proxy:
            transport = HttpTransport(of_url(f"http://127.0.0.1:{proxy.port}"))
            async with KubeClient(transport, timeouts=SHORT) as client:
                cache = Cache()
                running = asyncio.create_task(Reflector(client, CONFIGMAPS, cache, namespace=NAMESPACE).run())
                await cache.synced.wait()
                yield Watched(direct, proxy, cache)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def test_a_silent_connection_is_given_up_and_nothing_is_missed(watched: Watched) -> None:
    await watched.make("before")
    await eventually(watched.sees_all, "the watch brings what comes")
    with capture_logs() as logs:
        watched.proxy.stall()
        watched.proxy.resume()
        await watched.make("meanwhile")
        await eventually(watched.sees_all, "another connection brings what came meanwhile")
    assert [entry["resource"] for entry in logs if entry["event"] == "reflector.interrupted"] == ["configmaps"]


async def test_a_resource_in_which_nothing_happens_is_not_taken_for_silent(watched: Watched) -> None:
    with capture_logs() as logs:
        await asyncio.sleep(2 * SHORT.silence_s)
        await watched.make("last")
        await eventually(watched.sees_all, "the watch brings what comes")
    assert not [entry for entry in logs if entry["event"].startswith("reflector.")]
