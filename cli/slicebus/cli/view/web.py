"""The HTTP side of the view: its addresses, and what an error looks like."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from slicebus.ambient.clock import now
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.durations import age_text
from slicebus.cli.fleet.details import details_of
from slicebus.cli.jobs.command import cluster_names, queue_names
from slicebus.cli.past.ledger_rows import JOBS_NOT_KNOWN, QUEUES_NOT_KNOWN, LedgerReading, queue_lines
from slicebus.cli.past.moments import moment_of
from slicebus.cli.past.reading import NotRecordedError
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.guard import HEADERS, HEALTH_PATH
from slicebus.cli.view.history import History
from slicebus.cli.view.live import LiveFleet
from slicebus.cli.view.pages.fleet import fleet_page, queue_link
from slicebus.cli.view.pages.job import job_page
from slicebus.cli.view.pages.jobs import job_link, jobs_page
from slicebus.cli.view.pages.messages import messages_page
from slicebus.cli.view.pages.paging import page_number
from slicebus.cli.view.pages.queues import cluster_queue_rows, queue_page, queues_page
from slicebus.cli.view.pages.timeline import AT, Timeline, address_of, date_of, slider_of
from slicebus.cli.view.past_moments import PastMoments
from slicebus.cli.view.rendering import template
from slicebus.cli.view.shown import Present, Shown, Then
from slicebus.journal.page import style
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.proto.errors import (
    ConfigurationError,
    ForbiddenError,
    NotFoundError,
    SlicebusError,
    TransientError,
)

_TICK_S = 3.0
"""A stream says at least so often that it lives."""
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
_STREAM_HEADERS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
"""The second one is for NGINX, which keeps an answer back until it has 4 KiB of it."""
_STATIC = {"view.css": "text/css", "view.js": "text/javascript", "icon.svg": "image/svg+xml"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class View:
    """Answers requests from what is kept of the fleet and of its journal."""

    def __init__(
        self, live: LiveFleet, history: History, moments: PastMoments, *, public_name: str | None = None
    ) -> None:
        """`public_name`: of the proxy before the view, see `Guard`."""
        self.public_name = public_name
        self._live = live
        self._history = history
        self._moments = moments
        self._closing = asyncio.Event()

    def app(self, middlewares: Sequence[Middleware]) -> web.Application:
        """The application, behind what decides who may ask."""
        app = web.Application(middlewares=[*middlewares, self._errors])
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
                web.get(HEALTH_PATH, _healthy),
            ]
        )
        return app

    async def _fleet(self, request: web.Request) -> web.Response:
        shown = self._shown(request)
        state, rows = await shown.state(), await shown.rows()
        journal, letters = shown.journal()
        with shown.time():
            queues = cluster_queue_rows(state.reading.store)
            page = fleet_page(state, rows, queues=queues, journal=journal, dead_letters=letters)
        return self._page(request, shown, "fleet", "Fleet", state, page=page, queues=queues, queue_link=queue_link)

    async def _cluster(self, request: web.Request) -> web.Response:
        shown, name = self._shown(request), request.match_info["name"]
        state = await shown.state()
        store = state.reading.store
        manifest = store.clusters.get(None, name)
        if manifest is None and WORKERCLUSTERS in state.reading.hidden:
            raise ForbiddenError("you may not see WorkerClusters")
        if manifest is None:
            known = [cluster["metadata"]["name"] for cluster in store.clusters.all()]
            raise NotFoundError(unknown(name, "WorkerCluster", known) if known else f"there is no WorkerCluster {name}")
        granted, rows = state.reading.granted_on(name), await shown.rows()
        events, unread = await shown.cluster_events()
        with shown.time():
            details = details_of(
                manifest, jobs=rows, granted=granted, events=events, events_unread=unread, is_known=state.is_known
            )
        return self._page(request, shown, "cluster", f"Cluster {name}", state, cluster=details, job_link=job_link)

    async def _jobs(self, request: web.Request) -> web.Response:
        shown = self._shown(request)
        try:
            state, rows = await shown.state(), await shown.rows()
        except NotRecordedError as error:
            known, notes = (await self._of_ledger(shown, error)).jobs(None), (str(error), JOBS_NOT_KNOWN)
            found = jobs_page(known, request.query)
            return self._page(request, shown, "ledger_jobs", "Jobs", None, page=found, notes=notes, source="ledger")
        quotas = state.reading.store.quotas
        with shown.time():
            page = jobs_page(rows, request.query, queues=queue_names(quotas), clusters=cluster_names(quotas))
        return self._page(request, shown, "jobs", "Jobs", state, page=page, job_link=job_link)

    async def _job(self, request: web.Request) -> web.Response:
        shown, named = self._shown(request), request.match_info
        state, hour = await shown.state(), await shown.hour()
        with shown.time():
            page = job_page(state, hour, named["kind"], named["namespace"], named["name"], until=state.at)
        return self._page(request, shown, "job", page.job, state, page=page)

    async def _queues(self, request: web.Request) -> web.Response:
        shown = self._shown(request)
        try:
            state = await shown.queues()
        except NotRecordedError as error:
            lines = queue_lines((await self._of_ledger(shown, error)).queues())
            notes = str(error), QUEUES_NOT_KNOWN
            return self._page(
                request, shown, "ledger_queues", "Queues", None, lines=lines, notes=notes, source="ledger"
            )
        with shown.time():
            page = queues_page(state)
        return self._page(request, shown, "queues", "Queues", state, page=page, queue_link=queue_link)

    async def _queue(self, request: web.Request) -> web.Response:
        shown, name = self._shown(request), request.match_info["name"]
        state = await shown.queues()
        with shown.time():
            page = queue_page(state, name, page_number(request.query.get("page", "")))
        return self._page(request, shown, "queue", f"Queue {name}", state, page=page)

    async def _messages(self, request: web.Request) -> web.Response:
        shown = self._shown(request)
        state = self._state_or_none() if shown.at is None else await shown.state()
        hour = await shown.hour()
        with shown.time():
            page = messages_page(hour, request.query)
        return self._page(request, shown, "messages", "Messages", state, page=page)

    async def _keys(self, request: web.Request) -> web.Response:
        shown = self._shown(request)
        return self._page(request, shown, "keys", "Keys", self._state_or_none() if shown.at is None else None)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Says what has changed, as server-sent events: the numbers of the state, and whether it is the present one."""
        stream = web.StreamResponse(headers={**HEADERS, **_STREAM_HEADERS})
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

    async def _of_ledger(self, shown: Shown, unread: NotRecordedError) -> LedgerReading:
        """What a ledger knows of a moment that the journal does not have. Raises `unread` without one, and
        ConfigurationError."""
        assert shown.at is not None
        return await self._moments.ledger(shown.at, unread)

    def _shown(self, request: web.Request) -> Shown:
        """What a request asks for. Raises ConfigurationError, and the redirection to an address that names the same
        moment tomorrow."""
        text = request.query.get(AT, "")
        if not text:
            return Present(self._live, self._history)
        moment = moment_of(text, now().replace(microsecond=0), option=AT)
        if (lasting := address_of(moment)) != text:
            raise web.HTTPSeeOther(here(request, {**request.query, AT: lasting}), headers=HEADERS)
        return Then(moment, self._moments)

    def _page(
        self,
        request: web.Request,
        shown: Shown | None,
        name: str,
        title: str,
        state: FleetState | None,
        *,
        status: int = 200,
        **values: object,
    ) -> web.Response:
        timeline = self._timeline(request, shown)
        with shown.time() if shown is not None else nullcontext():
            text = template(name).render(
                title=title,
                section=_SECTIONS.get(name, ""),
                state=state,
                at=state.at if state is not None else now(),
                unseen=state.reading.unseen if state is not None else "",
                timeline=timeline,
                is_shared=self.public_name is not None,
                **{"source": "journal", "notes": (), **values},
            )
        return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)

    def _timeline(self, request: web.Request, shown: Shown | None) -> Timeline:
        kept, at = {name: value for name, value in request.query.items() if name != AT}, shown.at if shown else None
        timeline = Timeline(
            typed=request.query.get(AT, ""),
            present=here(request, kept),
            kept=kept,
            slider=slider_of(self._history.first, now(), at),
            is_recorded=self._history.amqp_url is not None or self._moments.has_ledger,
        )
        if at is None:
            return timeline
        ago = age_text(now() - at) if at <= now() else ""
        return msgspec.structs.replace(timeline, at=address_of(at), date=date_of(at), ago=ago)

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return self._failed(request, 404, f"the view has no page {request.path}")
        except SlicebusError as error:
            status = next(status for kind, status in _STATUSES if isinstance(error, kind))
            is_in_ledger = isinstance(error, NotRecordedError) and self._moments.has_ledger
            return self._failed(request, status, str(error), is_in_ledger=is_in_ledger)

    def _failed(self, request: web.Request, status: int, problem: str, *, is_in_ledger: bool = False) -> web.Response:
        try:
            shown = self._shown(request)
        except (ConfigurationError, web.HTTPSeeOther):
            shown = None  # No moment, so nothing of the present either.
        state = self._state_or_none() if shown is not None and shown.at is None else None
        title = _TITLES.get(status, "Something went wrong")
        how = {"problem": problem, "is_in_ledger": is_in_ledger}
        return self._page(request, shown, "problem", title, state, status=status, **how)


_SECTIONS = {
    "fleet": "fleet",
    "cluster": "fleet",
    "jobs": "jobs",
    "job": "jobs",
    "queues": "queues",
    "queue": "queues",
    "ledger_jobs": "jobs",
    "ledger_queues": "queues",
    "messages": "messages",
}


def here(request: web.Request, query: Mapping[str, str]) -> str:
    """The address of a request with another query, on this host."""
    return f"/{str(request.rel_url.with_query(query)).lstrip('/')}"  # Two slashes would name another host.


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="ok\n", headers=HEADERS)


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
