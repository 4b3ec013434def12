"""Connections to an API server: through a proxy, as many as needed, and with what a kubeconfig says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import ConfigurationError, ExpiredError, TransientError
from support.waiting import PATIENCE_S

HOST = "http://api.example"
AT_ONCE = 150
"""More than aiohttp lets through by default."""


@asynccontextmanager
async def listening(asked: list[str], *, until: int = 1) -> AsyncIterator[int]:
    """The port of a server that notes each request line, and answers when so many have come."""
    enough = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        if len(asked) >= until:
            enough.set()
        await enough.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=AT_ONCE)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


@asynccontextmanager
async def watched(line: bytes, *, head: bytes = b"200 OK") -> AsyncIterator[KubeClient]:
    """A client of a server whose watches bring this line, and end. `head`: the status, and headers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + head + b"\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")
        writer.write(line)
        # A client that reads no further closes the connection.
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, KubeClient.from_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        yield client


def of_bytes(count: int) -> bytes:
    """An event with an object of so many bytes, as an API server writes `<`."""
    return b'{"type":"MODIFIED","object":{"data":{"a":"%s"}}}\n' % (rb"\u003c" * (count // 6))


def kubeconfig(folder: Path, **cluster: str) -> Path:
    manifest = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": HOST} | cluster}],
        "users": [{"name": "it", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(manifest))
    return path


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_a_kubeconfigs_proxy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    async with listening(asked) as port:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        path = kubeconfig(tmp_path, **{"proxy-url": f"http://127.0.0.1:{port}"})
        async with await KubeClient.from_kubeconfig(path) as client:
            assert await client.get(CONFIGMAPS, "some", "team") == {}
    assert asked == [f"GET {HOST}/api/v1/namespaces/team/configmaps/some HTTP/1.1"]


async def test_the_proxy_of_the_environment_is_used_where_it_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, past = list[str](), list[str]()
    async with listening(through) as proxy, listening(past) as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        async with await KubeClient.from_kubeconfig(kubeconfig(tmp_path)) as client:
            await client.get(CONFIGMAPS, "some", "team")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with await KubeClient.from_kubeconfig(kubeconfig(tmp_path, server=f"http://127.0.0.1:{port}")) as client:
            await client.get(CONFIGMAPS, "some", "team")
    assert through == [f"GET {HOST}/api/v1/namespaces/team/configmaps/some HTTP/1.1"]
    assert past == ["GET /api/v1/namespaces/team/configmaps/some HTTP/1.1"]


async def test_a_proxy_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, **{"proxy-url": "socks5://127.0.0.1:1080"})
    with pytest.raises(ConfigurationError, match=r"proxy socks5://127.0.0.1:1080 of .*: only http and https"):
        await KubeClient.from_kubeconfig(path)


async def test_certificates_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("no certificate")
    path = kubeconfig(tmp_path, **{"server": "https://api.example", "certificate-authority": str(authority)})
    with pytest.raises(ConfigurationError, match=r"certificates of https://api\.example"):
        await KubeClient.from_kubeconfig(path)


async def test_no_request_waits_for_another() -> None:
    """As the renewal of the Lease behind a burst of writes."""
    asked = list[str]()
    async with listening(asked, until=AT_ONCE) as port, KubeClient.from_url(f"http://127.0.0.1:{port}") as client:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(client.get(CONFIGMAPS, f"c{number}", "team") for number in range(AT_ONCE)))
    assert len(asked) == AT_ONCE


@pytest.mark.parametrize("head", [b"429 Too Many Requests", b"503 Service Unavailable"], ids=["429", "503"])
async def test_a_server_may_ask_for_a_longer_pause(head: bytes) -> None:
    async with watched(b"{}", head=head + b"\r\nRetry-After: 7") as client:
        with pytest.raises(TransientError) as of_a_write:
            await client.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "team"}})
        with pytest.raises(TransientError) as of_a_watch:
            async for _ in client.watch(CONFIGMAPS, resource_version="1"):
                pass
    assert (of_a_write.value.retry_after_s, of_a_watch.value.retry_after_s) == (7.0, 7.0)


async def test_a_watch_brings_the_longest_object_that_a_server_keeps() -> None:
    """A Job of 1.5 MiB, all of it signs that JSON of an API server escapes."""
    async with watched(of_bytes(9 * 2**20)) as client:
        [event] = [event async for event in client.watch(CONFIGMAPS, resource_version="1")]
    assert event.object["data"]["a"] == "<" * (9 * 2**20 // 6)


async def test_a_line_that_is_too_long_ends_a_watch_and_has_a_list_made() -> None:
    async with watched(of_bytes(17 * 2**20)) as client:
        with pytest.raises(ExpiredError, match="more than 16777216 bytes"):
            async for _ in client.watch(CONFIGMAPS, resource_version="1"):
                pass
