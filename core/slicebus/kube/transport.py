"""Transports of requests to an API server: the interface, and the one over HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import aiohttp
import msgspec
from kubernetes_asyncio.client import ApiClient

from slicebus.kube.failures import error_of, translated

JSON = "application/json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `read_s` is the longest time without a byte from the server."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    agent: str = "slicebus"
    """The user agent: the field manager of a write that names none."""
    headers: Mapping[str, str] = {}
    """More than those of the fields above."""
    connect_s: float = 5.0
    read_s: float = 30.0


class Answer(msgspec.Struct, frozen=True):
    """An answer of any status."""

    status: int
    body: bytes
    content_type: str = JSON


class Transport(Protocol):
    """A way to one API server."""

    @property
    def host(self) -> str:
        """The server, for people."""

    async def request(self, request: Request) -> Answer:
        """The server's answer. Raises UnavailableError without one: the request may have had its effect."""

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The lines of an answer as they come. Raises the error of an answer other than 200, UnavailableError."""

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""


class HttpTransport:
    """Over the connections of kubernetes-asyncio, which knows kubeconfigs, certificates and tokens that expire."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    @property
    def host(self) -> str:
        """The server's URL."""
        return str(self._api.configuration.host)

    async def request(self, request: Request) -> Answer:
        """One round trip."""
        with translated(f"{request.method} {request.path}"):
            response = await self._send(request)
            async with response:
                return Answer(response.status, await response.read())

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of one endless answer."""
        with translated(f"{request.method} {request.path}"):
            response = await self._send(request)
            async with response:
                if response.status != 200:
                    raise error_of(response.status, await response.read())
                try:
                    yield aiter(response.content)
                finally:
                    # The rest is not needed, and TLS would wait for the server's close beyond the end of the loop.
                    if response.connection is not None and response.connection.transport is not None:
                        response.connection.transport.abort()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        configuration = self._api.configuration
        headers = {**request.headers, "Accept": request.accept, "User-Agent": request.agent}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        session: aiohttp.ClientSession = self._api.rest_client.pool_manager
        return await session.request(
            request.method,
            f"{configuration.host}{request.path}",
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(sock_connect=request.connect_s, sock_read=request.read_s),
            server_hostname=configuration.tls_server_name,
        )
