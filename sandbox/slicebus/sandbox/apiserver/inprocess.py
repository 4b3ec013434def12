"""Serves the API without HTTP, for a simulation where a fleet shares one event loop on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from slicebus.kube.failures import error_of
from slicebus.kube.transport import Answer, Request
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.status import ApiError


class InProcessTransport:
    """A transport to an in-process API. Bodies are bytes, so that no object is shared."""

    def __init__(self, api: Api, *, host: str) -> None:
        self._api = api
        self._host = host

    @property
    def host(self) -> str:
        """A name for people."""
        return self._host

    async def request(self, request: Request) -> Answer:
        """The answer, after other tasks had a chance to run: no server is as fast as a function call."""
        await asyncio.sleep(0)
        return self._api.answer(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch."""
        await asyncio.sleep(0)
        try:
            yield self._api.watch(request)
        except ApiError as refusal:
            raise error_of(refusal.code, orjson.dumps(refusal.to_status())) from refusal

    async def aclose(self) -> None:
        """Nothing to close."""
