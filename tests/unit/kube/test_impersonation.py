"""A create as another user: what the API server is told of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from slicebus.kube.client import KubeClient
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.resources import CONFIGMAPS

JOBS_OF_TEAM = Impersonation.of_service_account("team", "jobs", extra={"slicebus.dev/agent": "slicebus-system"})


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[KubeClient, list[dict[str, str]]]]:
    """A client, and the headers of impersonation that each of its requests had, as they were sent."""
    seen: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append({name: value for name, value in request.headers.items() if name.startswith("Impersonate-")})
        return web.json_response({"metadata": {}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with KubeClient.from_url(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield client, seen
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("impersonate", "headers"),
    [
        (None, {}),
        (Impersonation("alice"), {"Impersonate-User": "alice"}),
        (
            JOBS_OF_TEAM,
            {
                "Impersonate-User": "system:serviceaccount:team:jobs",
                "Impersonate-Extra-slicebus.dev%2Fagent": "slicebus-system",
            },
        ),
    ],
    ids=["as itself", "as a user", "as a service account with an extra"],
)
async def test_a_create_says_as_whom(impersonate: Impersonation | None, headers: dict[str, str]) -> None:
    manifest = {"metadata": {"name": "one", "namespace": "team"}}
    async with listening() as (client, seen):
        await client.create(CONFIGMAPS, manifest, impersonate=impersonate)
        await client.get(CONFIGMAPS, "one", "team")
    assert seen == [headers, {}], "the next request is the client's own"
