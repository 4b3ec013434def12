"""Counts a role's requests to its API server, as client-go counts its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter

from slicebus.kube.transport import Answer, Request, Transport

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES = ("status", "finalize")
_NO_ANSWER = "none"


class Target(NamedTuple):
    """Says what a request is about, in the words of RBAC. `resource` is empty where it is about none, as discovery."""

    verb: str
    resource: str
    subresource: str

    @classmethod
    def from_request(cls, request: Request) -> "Target":
        """Read it from a request's method, path and query."""
        _, root, *parts = request.path.split("/")
        # /api/VERSION/..., /apis/GROUP/VERSION/...
        parts = parts[{"api": 1, "apis": 2}.get(root, len(parts)) :]
        if parts[:1] == ["namespaces"] and len(parts) > 2 and parts[2] not in _OF_NAMESPACES:
            parts = parts[2:]
        resource, name, subresource = (*parts[:3], "", "", "")[:3]
        read = "watch" if "watch" in request.query else "get" if name or not resource else "list"
        return cls(_VERBS.get(request.method, read), resource, subresource)


class MeteredTransport:
    """Counts the requests of one role, over a transport that others may use as well."""

    def __init__(self, transport: Transport, registry: CollectorRegistry) -> None:
        self._transport = transport
        requests = Counter(
            "slicebus_api_requests",
            "Requests to the API server, in the words of RBAC. The code is none without an answer.",
            ["verb", "resource", "subresource", "code"],
            registry=registry,
        )
        # A few dozen: prometheus_client looks each up anew.
        self._counter_of = cache(requests.labels)

    @property
    def host(self) -> str:
        """The server's URL."""
        return self._transport.host

    async def request(self, request: Request) -> Answer:
        """Make one round trip, and count it."""
        code = _NO_ANSWER
        try:
            answer = await self._transport.request(request)
            code = str(answer.status)
        finally:
            self._counter_of(*Target.from_request(request), code).inc()
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the lines of one endless answer, and count it when it begins."""
        async with AsyncExitStack() as stack:
            code = _NO_ANSWER
            try:
                lines = await stack.enter_async_context(self._transport.stream(request))
                code = "200"
            finally:
                self._counter_of(*Target.from_request(request), code).inc()
            yield lines

    async def aclose(self) -> None:
        """Close every connection. Idempotent."""
        await self._transport.aclose()
