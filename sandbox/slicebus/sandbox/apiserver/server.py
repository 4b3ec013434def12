"""Serves the API over HTTP, on loopback."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from aiohttp import web

from slicebus.kube.transport import JSON, Request
from slicebus.sandbox.apiserver.api import Api, is_watch
from slicebus.sandbox.apiserver.status import ApiError

_MAX_BODY = 3 * 1024**2
"""The real server's limit of a body, in bytes."""


class EmbeddedApiServer:
    """One API server on a loopback port. An async context manager."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.api = Api(history=history)
        self.url = ""
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        await self._runner.cleanup()

    async def _handle(self, received: web.Request) -> web.StreamResponse:
        request = Request(
            method=received.method,
            path=received.path,
            query=dict(received.query),
            body=await received.read(),
            content_type=received.content_type,
            accept=received.headers.get("Accept", ""),
        )
        if is_watch(request):
            try:
                lines = self.api.watch(request)
            except ApiError as refusal:
                return web.json_response(refusal.to_status(), status=refusal.code)
            return await self._stream(received, lines)
        answer = self.api.answer(request)
        return web.Response(body=answer.body, status=answer.status, content_type=answer.content_type)

    async def _stream(self, received: web.Request, lines: AsyncIterator[bytes]) -> web.StreamResponse:
        """Send lines until there are no more, the client goes, or the server stops."""
        response = web.StreamResponse(headers={"Content-Type": JSON})
        await response.prepare(received)

        async def send() -> None:
            try:
                async for line in lines:
                    await response.write(line)
            except ConnectionError:
                return

        sending = asyncio.ensure_future(send())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((sending, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            stopping.cancel()
            await asyncio.gather(sending, stopping, return_exceptions=True)
        return response
