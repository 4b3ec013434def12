"""Serves probes and metrics over HTTP.

Liveness touches no dependency (rule 8 of the design): it shows that the event loop of this process runs. An outage of
the broker or of the API server must never restart anything.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from slicebus.proto.errors import ConfigurationError

_MOST_PORT = 65_535


@asynccontextmanager
async def health_server(
    address: str, *, not_ready: Callable[[], str], registry: CollectorRegistry
) -> AsyncIterator[str]:
    """Serve `/healthz`, `/readyz` and `/metrics` on `host:port`, and yield the URL. Port 0 picks a free one.

    `not_ready` returns the reason why the process does not work, which `/readyz` then answers; empty while it works.
    """
    host, port = _parse(address)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(text=f"{reason}\n", status=503) if reason else web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {address}: {error}") from error
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _parse(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MOST_PORT:
        raise ConfigurationError(f"not an address: {address!r}, use host:port")
    return host.strip("[]") or "0.0.0.0", int(port)
