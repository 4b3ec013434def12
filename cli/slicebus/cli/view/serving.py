"""Serves the view on the loopback interface, to who has its secret or comes through the proxy."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Middleware

from slicebus.cli.view.guard import HEADERS, TOKEN, Asked, Guard
from slicebus.cli.view.web import Handler, View, here
from slicebus.proto.errors import ConfigurationError

HOST = "127.0.0.1"
"""Nobody on another machine reaches the view."""
_SHUTDOWN_S = 1.0


@asynccontextmanager
async def served(view: View, port: int) -> AsyncIterator[str]:
    """Serve on the loopback interface until the context is left, and yield the address, with its secret unless a proxy
    is before it. Port 0 picks a free one. Raises ConfigurationError for a port that is taken."""
    bound = _bound(port)
    port = bound.getsockname()[1]
    guard = Guard(port, public_name=view.public_name)
    # A moment that nobody waits for any more is not read to its end.
    runner = web.AppRunner(
        view.app([_guarded(guard)]), access_log=None, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True
    )
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        yield f"http://{HOST}:{port}/" + (f"?{TOKEN}={guard.secret}" if guard.secret else "")
    finally:
        await runner.cleanup()


def _bound(port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"--port {port}: {error.strerror or error}; 0 picks a free one") from error
    return bound


def _guarded(guard: Guard) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.query.get(TOKEN, "")
        refusal = guard.refusal(
            Asked(
                method=request.method,
                path=request.path,
                forwarded_host=",".join(request.headers.getall("X-Forwarded-Host", ())),
                host=request.headers.get("Host", ""),
                fetch_site=request.headers.get("Sec-Fetch-Site", ""),
                fetch_dest=request.headers.get("Sec-Fetch-Dest", ""),
                token=given or request.cookies.get(guard.cookie, ""),
            )
        )
        if refusal:
            return web.Response(text=f"{refusal}\n", status=403, headers=HEADERS)
        if not given or not guard.secret:
            return await handler(request)
        kept = {name: value for name, value in request.query.items() if name != TOKEN}
        answer = web.Response(status=303, headers={**HEADERS, "Location": here(request, kept)})
        answer.set_cookie(guard.cookie, guard.secret, httponly=True, samesite="Lax", path="/")
        return answer

    return check
