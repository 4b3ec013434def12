"""The HTTP side of the view: its addresses, who may ask, and what an error looks like."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from slicebus.ambient.clock import now
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.fleet.details import details_of
from slicebus.cli.view.guard import HEADERS, TOKEN, Asked, Guard
from slicebus.cli.view.history import History
from slicebus.cli.view.live import FleetState, LiveFleet
from slicebus.cli.view.pages.fleet import fleet_page, queue_link
from slicebus.cli.view.pages.job import job_page
from slicebus.cli.view.pages.jobs import job_link, jobs_page
from slicebus.cli.view.pages.messages import messages_page
from slicebus.cli.view.pages.paging import page_number
from slicebus.cli.view.pages.queues import cluster_queue_rows, queue_page, queues_page
from slicebus.cli.view.rendering import template
from slicebus.journal.page import style
from slicebus.kube.client import DEFAULT_NAMESPACE
from slicebus.kube.resources import EVENTS, WORKERCLUSTERS
from slicebus.proto.errors import (
    ConfigurationError,
    ForbiddenError,
    NotFoundError,
    SlicebusError,
    TransientError,
)
from slicebus.proto.messages import Manifest

HOST = "127.0.0.1"
"""Nobody on another machine reaches the view."""
_TICK_S = 3.0
"""A stream says at least so often that it lives."""
_SHUTDOWN_S = 1.0
_SETTLE_S = 0.5
"""Changes within this time are told as one."""
_STATUSES: tuple[tuple[type[SlicebusError], int], ...] = (
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (ConfigurationError, 400),
    (TransientError, 503),
    (SlicebusError, 500),
)
_TITLES = {400: "That cannot be asked", 403: "You may not see this", 404: "Not found", 503: "Nothing can be read now"}
_STATIC = {"view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class View:
    """Answers requests from what is kept of the fleet and of its journal."""

    def __init__(self, live: LiveFleet, history: History) -> None:
        self._live = live
        self._history = history
        self._closing = asyncio.Event()

    def app(self, guard: Guard) -> web.Application:
        """The application."""
        app = web.Application(middlewares=[_guarded(guard), self._errors])
        app.on_shutdown.append(self._close)
        app.add_routes(
            [
                web.get("/", self._fleet),
                web.get("/clusters/{name}", self._cluster),
                web.get("/jobs", self._jobs),
                web.get("/jobs/{kind}/{namespace}/{name}", self._job),
                web.get("/queues", self._queues),
                web.get("/queues/{name}", self._queue),
                web.get("/messages", self._messages),
                web.get("/keys", self._keys),
                web.get("/events", self._events),
                web.get("/static/{name}", _static),
            ]
        )
        return app

    async def _fleet(self, request: web.Request) -> web.Response:
        state, hour = self._live.state(), self._history.hour()
        queues = cluster_queue_rows(state.reading.store)
        page = fleet_page(
            state,
            await self._live.rows(),
            queues=queues,
            journal=hour.problem,
            dead_letters=hour.dead_letters,
        )
        return self._page("fleet", "Fleet", state, page=page, queues=queues, queue_link=queue_link)

    async def _cluster(self, request: web.Request) -> web.Response:
        state, name = self._live.state(), request.match_info["name"]
        store = state.reading.store
        manifest = store.clusters.get(None, name)
        if manifest is None and WORKERCLUSTERS in state.reading.hidden:
            raise ForbiddenError("you may not see WorkerClusters")
        if manifest is None:
            known = [cluster["metadata"]["name"] for cluster in store.clusters.all()]
            raise NotFoundError(unknown(name, "WorkerCluster", known) if known else f"there is no WorkerCluster {name}")
        granted, rows = store.quotas.ledger.granted.get(name, {}), await self._live.rows()
        events = await self._cluster_events(state)
        details = details_of(manifest, jobs=rows, granted=granted, events=events, is_known=state.is_known)
        return self._page("cluster", f"Cluster {name}", state, cluster=details, job_link=job_link)

    async def _cluster_events(self, state: FleetState) -> list[Manifest]:
        if state.lost:
            return []
        try:
            return (await self._live.client.list(EVENTS, namespace=DEFAULT_NAMESPACE)).items
        except SlicebusError:
            return []

    async def _jobs(self, request: web.Request) -> web.Response:
        state, rows = self._live.state(), await self._live.rows()
        page = jobs_page(rows, request.query, state.reading.store.quotas)
        return self._page("jobs", "Jobs", state, page=page, job_link=job_link)

    async def _job(self, request: web.Request) -> web.Response:
        state, named = self._live.state(), request.match_info
        page = job_page(state, self._history.hour(), named["kind"], named["namespace"], named["name"], until=state.at)
        return self._page("job", page.job, state, page=page)

    async def _queues(self, request: web.Request) -> web.Response:
        state = self._live.state()
        return self._page("queues", "Queues", state, page=queues_page(state), queue_link=queue_link)

    async def _queue(self, request: web.Request) -> web.Response:
        state, name = self._live.state(), request.match_info["name"]
        page = queue_page(state, name, page_number(request.query.get("page", "")))
        return self._page("queue", f"Queue {name}", state, page=page)

    async def _messages(self, request: web.Request) -> web.Response:
        page = messages_page(self._history.hour(), request.query)
        return self._page("messages", "Messages", self._state_or_none(), page=page)

    async def _keys(self, request: web.Request) -> web.Response:
        return self._page("keys", "Keys", self._state_or_none())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Says what has changed, as server-sent events: the numbers of the state, and whether it is the present one."""
        stream = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await stream.prepare(request)
        with suppress(ConnectionError):  # Its page is gone.
            while not self._closing.is_set():
                seen = self._live.version, self._history.version
                await stream.write(b"data: " + msgspec.json.encode(self._told(seen)) + b"\n\n")
                await self._change(*seen)
                await asyncio.sleep(_SETTLE_S)
        return stream

    async def _close(self, app: web.Application) -> None:
        """Let every stream end."""
        self._closing.set()

    def _told(self, seen: tuple[int, int]) -> dict[str, str | list[int]]:
        problem = self._live.problem
        return {"seen": list(seen), "lost": str(problem) if problem else ""}

    async def _change(self, live: int, history: int) -> None:
        """Wait for a change of either, for the end, or for a moment."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._live.after(live), name="view:wait"),
            asyncio.create_task(self._history.after(history), name="view:wait"),
            asyncio.create_task(self._closing.wait(), name="view:wait"),
        ]
        try:
            await asyncio.wait(waits, timeout=_TICK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def _state_or_none(self) -> FleetState | None:
        try:
            return self._live.state()
        except SlicebusError:
            return None

    def _page(
        self, name: str, title: str, state: FleetState | None, *, status: int = 200, **values: object
    ) -> web.Response:
        text = template(name).render(
            title=title,
            section=_SECTIONS.get(name, ""),
            state=state,
            at=state.at if state is not None else now(),
            unseen=state.reading.unseen if state is not None else "",
            **values,
        )
        return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return self._failed(404, f"the view has no page {request.path}")
        except SlicebusError as error:
            status = next(status for kind, status in _STATUSES if isinstance(error, kind))
            return self._failed(status, str(error))

    def _failed(self, status: int, problem: str) -> web.Response:
        title = _TITLES.get(status, "Something went wrong")
        return self._page("problem", title, self._state_or_none(), status=status, problem=problem)


_SECTIONS = {
    "fleet": "fleet",
    "cluster": "fleet",
    "jobs": "jobs",
    "job": "jobs",
    "queues": "queues",
    "queue": "queues",
    "messages": "messages",
}


@asynccontextmanager
async def served(view: View, port: int) -> AsyncIterator[str]:
    """Serve on the loopback interface until the context is left, and yield the address with its secret. Port 0 picks a
    free one. Raises ConfigurationError for a port that is taken."""
    bound = _bound(port)
    port = bound.getsockname()[1]
    guard = Guard(port)
    runner = web.AppRunner(view.app(guard), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, bound).start()
        yield f"http://{HOST}:{port}/?{TOKEN}={guard.secret}"
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
                host=request.headers.get("Host", ""),
                fetch_site=request.headers.get("Sec-Fetch-Site", ""),
                fetch_dest=request.headers.get("Sec-Fetch-Dest", ""),
                token=given or request.cookies.get(guard.cookie, ""),
            )
        )
        if refusal:
            return web.Response(text=f"{refusal}\n", status=403, headers=HEADERS)
        if not given:
            return await handler(request)
        kept = {name: value for name, value in request.query.items() if name != TOKEN}
        here = f"/{str(request.rel_url.with_query(kept)).lstrip('/')}"  # Two slashes would name another host.
        answer = web.Response(status=303, headers={**HEADERS, "Location": here})
        answer.set_cookie(guard.cookie, guard.secret, httponly=True, samesite="Lax", path="/")
        return answer

    return check


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name == "chart.css":
        return web.Response(text=style(), content_type="text/css", headers=HEADERS)
    if name not in _STATIC:
        raise web.HTTPNotFound
    return web.Response(text=_file(name), content_type=_STATIC[name], headers=HEADERS)


@cache
def _file(name: str) -> str:
    return (files("slicebus.cli.view") / "static" / name).read_text(encoding="utf-8")
