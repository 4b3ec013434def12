"""Tokens, authorities and clients' certificates that are replaced while a client works."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from slicebus.kube import certificates
from slicebus.kube.client import KubeClient, Timeouts
from slicebus.kube.resources import CONFIGMAPS
from slicebus.kube.server import ApiServer, Fixed, TokenFile
from slicebus.kube.transport import HttpTransport
from slicebus.proto.errors import ConfigurationError, UnauthorizedError, UnavailableError

IMPATIENT = Timeouts(retry_s=0.0)


class Server:
    """An API server on loopback that takes one token, with a certificate that may be replaced."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.context: ssl.SSLContext | None = None
        self.token = ""
        self.client_authority: trustme.CA | None = None
        self.asked = 0
        self.port = 0

    def rotate(self) -> None:
        """Serve with a certificate of another authority from now on."""
        self.authority = trustme.CA()
        self.serve_tls()

    def serve_tls(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1").configure_cert(context)
        if self.client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            self.client_authority.configure_trust(context)
        self.context = context

    @asynccontextmanager
    async def running(self, *, tls: bool) -> AsyncIterator[None]:
        if tls:
            self.serve_tls()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        async with server:
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.context is not None:
            try:
                await writer.start_tls(self.context)
            except OSError:
                writer.close()
                return
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked += 1
        known = not self.token or f"Bearer {self.token}\r\n" in head
        line, body = ("200 OK", b"{}") if known else ("401 Unauthorized", b'{"message":"Unauthorized"}')
        answer = f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{answer}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()


async def get(client: KubeClient) -> None:
    await client.get(CONFIGMAPS, "some", "team")


def client_of(server: ApiServer) -> KubeClient:
    return KubeClient(HttpTransport(server), timeouts=IMPATIENT)


async def test_a_token_that_the_server_no_longer_takes_is_read_again_at_once(tmp_path: Path) -> None:
    server, token = Server(), tmp_path / "token"
    token.write_text("one")
    server.token = "one"
    async with server.running(tls=False):
        found = ApiServer(host=f"http://127.0.0.1:{server.port}", credentials=TokenFile(token))
        async with client_of(found) as client:
            await get(client)
            token.write_text("two")
            server.token = "two"
            await get(client)
    assert server.asked == 3


@pytest.mark.parametrize("content", ["one", "", None], ids=["the same token", "an empty file", "no file"])
async def test_without_another_token_the_error_is_transient(tmp_path: Path, content: str | None) -> None:
    server, token = Server(), tmp_path / "token"
    token.write_text("one")
    async with server.running(tls=False):
        found = ApiServer(host=f"http://127.0.0.1:{server.port}", credentials=TokenFile(token))
        async with client_of(found) as client:
            server.token = "other"
            if content is None:
                token.unlink()
            else:
                token.write_text(content)
            with pytest.raises(UnauthorizedError, match="401: Unauthorized"):
                await get(client)
            assert server.asked == 1
            server.token = "one"
            await get(client)


async def test_a_token_of_a_kubeconfig_has_no_other() -> None:
    assert not Fixed("Bearer t").renew()


async def test_the_authority_is_read_again_when_the_certificate_is_not_trusted(tmp_path: Path) -> None:
    server, authority = Server(), tmp_path / "ca.crt"
    server.authority.cert_pem.write_to_path(authority)
    async with server.running(tls=True):
        found = ApiServer(host=f"https://127.0.0.1:{server.port}", authority=authority)
        async with client_of(found) as client:
            await get(client)
            server.rotate()
            with pytest.raises(UnavailableError, match="certificate"):
                await get(client)
            server.authority.cert_pem.write_to_path(authority)
            await get(client)


@pytest.mark.parametrize("content", ["", "no certificate", None], ids=["empty", "nonsense", "missing"])
async def test_an_authority_that_cannot_be_used_changes_nothing(tmp_path: Path, content: str | None) -> None:
    server, authority = Server(), tmp_path / "ca.crt"
    server.authority.cert_pem.write_to_path(authority)
    found = ApiServer(host="https://127.0.0.1:1", authority=authority)
    kept = certificates.Certificates(found)
    before = kept.context()
    if content is None:
        authority.unlink()
    else:
        authority.write_text(content)
    assert not kept.renew()
    assert kept.context() is before
    trustme.CA().cert_pem.write_to_path(authority)
    assert kept.renew()
    assert kept.context() is not before


async def test_an_authority_that_nothing_refuses_yet_is_read_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(authority)
    kept = certificates.Certificates(ApiServer(host="https://127.0.0.1:1", authority=authority))
    before = kept.context()
    trustme.CA().cert_pem.write_to_path(authority)
    assert kept.context() is before
    monkeypatch.setattr(certificates, "_READ_AGAIN_S", -1.0)
    assert kept.context() is not before


async def test_a_clients_certificate_is_read_again(tmp_path: Path) -> None:
    server, authority, own, key = Server(), tmp_path / "ca.crt", tmp_path / "client.crt", tmp_path / "client.key"
    server.authority.cert_pem.write_to_path(authority)

    def issue(by: trustme.CA) -> None:
        issued = by.issue_cert("me")
        issued.cert_chain_pems[0].write_to_path(own)
        issued.private_key_pem.write_to_path(key)

    server.client_authority = first = trustme.CA()
    issue(first)
    async with server.running(tls=True):
        found = ApiServer(host=f"https://127.0.0.1:{server.port}", authority=authority, certificate=own, key=key)
        async with client_of(found) as client:
            await get(client)
            server.client_authority = trustme.CA()
            server.serve_tls()
            issue(server.client_authority)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(certificates, "_READ_AGAIN_S", -1.0)
                await get(client)


async def test_certificates_that_never_could_be_used_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        certificates.Certificates(ApiServer(host="https://127.0.0.1:1", authority=tmp_path / "none"))


async def test_clients_without_certificates_share_a_context_that_trusts_the_systems_authorities() -> None:
    servers = (ApiServer(host=f"{scheme}://127.0.0.1:1") for scheme in ("http", "https"))
    first, second = (certificates.Certificates(server).context() for server in servers)
    assert first is second
    assert first.verify_mode is ssl.CERT_REQUIRED
    careless = certificates.Certificates(ApiServer(host="https://127.0.0.1:1", verify=False)).context()
    assert (careless.verify_mode, first.check_hostname) == (ssl.CERT_NONE, True)
