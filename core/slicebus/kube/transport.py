"""Transports requests to an API server: the interface, and its implementation over HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong

from slicebus.kube.certificates import Certificates
from slicebus.kube.failures import error_of, translated
from slicebus.kube.server import ApiServer
from slicebus.proto.errors import ConfigurationError, ExpiredError

JSON = "application/json"
_AGENT = "slicebus"
"""The user agent: the field manager of a write that names none."""
_BUFFER_BYTES = 2**21
"""How much of an answer is read ahead, about."""
_LINE_BYTES = 2**24
"""The longest line of a watch. etcd keeps objects of up to 1.5 MiB, and each `<` in one is six bytes of JSON."""
_UNAUTHORIZED = 401
_KEPT_S = 60.0
"""How long an idle connection is kept; API servers close theirs after 90 s."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `read_s` is the longest time without a byte from the server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    headers: Mapping[str, str] = {}
    """Headers beside those of the fields above."""
    connect_s: float = 5.0
    read_s: float = 30.0


class Answer(msgspec.Struct, frozen=True):
    """An answer of any status."""

    status: int
    body: bytes
    content_type: str = JSON
    retry_after: str = ""
    """The header Retry-After; empty without one."""


class Transport(Protocol):
    """A way to one API server."""

    @property
    def host(self) -> str:
        """The server, for people."""

    async def request(self, request: Request) -> Answer:
        """Make a request. Raises UnavailableError without an answer: it may have had its effect all the same."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream the lines of an answer. Raises the error of an answer other than 200, UnavailableError, and at a line
        that is too long ExpiredError: only a list brings what it has."""

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""


class HttpTransport:
    """Sends requests over its own connections, as many as there are requests at a time: neither a watch nor the renewal
    of the Lease waits behind another."""

    def __init__(self, server: ApiServer) -> None:
        """Call it in a running loop. Raises ConfigurationError for certificates and a proxy that cannot be used."""
        self._server = server
        self._proxy = _proxy_of(server)
        self._certificates = Certificates(server)
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT_S)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_BUFFER_BYTES
        )

    @property
    def host(self) -> str:
        """The server's URL."""
        return self._server.host

    async def request(self, request: Request) -> Answer:
        """Make one round trip."""
        with translated(f"{request.method} {request.path}"):
            response = await self._send(request)
            async with response:
                return Answer(response.status, await response.read(), retry_after=_retry_after(response))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the lines of one endless answer."""
        with translated(f"{request.method} {request.path}"):
            response = await self._send(request)
            async with response:
                if response.status != 200:
                    raise error_of(response.status, await response.read(), retry_after=_retry_after(response))
                try:
                    yield _Lines(response.content)
                finally:
                    # The rest is not needed, and TLS would wait for the server's close beyond the end of the loop.
                    if response.connection is not None and response.connection.transport is not None:
                        response.connection.transport.abort()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        """Send a request, once more where the credentials or certificates have changed since they were read."""
        try:
            response = await self._send_once(request)
        except aiohttp.ClientSSLError:
            if not self._certificates.renew():
                raise
        else:
            if response.status != _UNAUTHORIZED:
                return response
            has_other_token = self._server.credentials.renew()
            if not (self._certificates.renew() or has_other_token):
                return response
            response.release()
        return await self._send_once(request)

    async def _send_once(self, request: Request) -> aiohttp.ClientResponse:
        headers = {**request.headers, "Accept": request.accept, "User-Agent": _AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if authorization := await self._server.credentials.authorization():
            headers["Authorization"] = authorization
        return await self._session.request(
            request.method,
            f"{self.host}{request.path}",
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(sock_connect=request.connect_s, sock_read=request.read_s),
            ssl=self._certificates.context(),
            server_hostname=self._server.name,
            proxy=self._proxy,
        )


def _retry_after(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Retry-After", "")


class _Lines:
    """The lines of an answer."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            line = await self._content.readline(max_line_length=_LINE_BYTES)
        except LineTooLong as error:
            raise ExpiredError(f"a line of a watch has more than {_LINE_BYTES} bytes") from error
        if not line:
            raise StopAsyncIteration
        return line


def _proxy_of(server: ApiServer) -> str | None:
    """The proxy of the kubeconfig, or else of the environment. aiohttp would ask the environment, and the user's netrc,
    in a thread for every request."""
    host = urlsplit(server.host)
    proxy = server.proxy
    if not proxy and not proxy_bypass(host.netloc):
        proxy = getproxies().get(host.scheme)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigurationError(f"proxy {proxy} of {server.host}: only http and https proxies can be used")
    return proxy or None
