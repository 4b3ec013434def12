"""Probes and metrics. Liveness depends on the process alone."""

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from slicebus.proto.errors import ConfigurationError
from slicebus.runtime.health import health_server


async def fetch(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def never() -> str:
    raise AssertionError("liveness asked for readiness")


async def test_liveness_touches_no_dependency() -> None:
    async with health_server("127.0.0.1:0", not_ready=never, registry=CollectorRegistry()) as url:
        assert await fetch(f"{url}/healthz") == (200, "ok\n")


@pytest.mark.parametrize(("reason", "expected"), [("", (200, "ok\n")), ("waits", (503, "waits\n"))])
async def test_readiness_shows_the_roles_reason(reason: str, expected: tuple[int, str]) -> None:
    async with health_server("127.0.0.1:0", not_ready=lambda: reason, registry=CollectorRegistry()) as url:
        assert await fetch(f"{url}/readyz") == expected


async def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("slicebus_test", "A test.", registry=registry).inc(3)
    async with health_server("127.0.0.1:0", not_ready=lambda: "", registry=registry) as url:
        status, text = await fetch(f"{url}/metrics")
    assert status == 200
    assert "slicebus_test_total 3.0" in text


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:http", "localhost:65536", "8080"])
async def test_an_invalid_address_is_a_configuration_error(address: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        async with health_server(address, not_ready=lambda: "", registry=CollectorRegistry()):
            pass


async def test_a_taken_address_is_a_configuration_error() -> None:
    async with health_server("127.0.0.1:0", not_ready=lambda: "", registry=CollectorRegistry()) as url:
        taken = url.removeprefix("http://")
        with pytest.raises(ConfigurationError, match=f"cannot listen on {taken}"):
            async with health_server(taken, not_ready=lambda: "", registry=CollectorRegistry()):
                pass


async def test_an_ipv6_address_stands_in_brackets() -> None:
    try:
        async with health_server("[::1]:0", not_ready=lambda: "", registry=CollectorRegistry()) as url:
            port = url.rpartition(":")[2]
            assert await fetch(f"http://[::1]:{port}/healthz") == (200, "ok\n")
    except ConfigurationError as error:
        pytest.skip(f"no IPv6 here: {error}")
