"""Keeps a cache like the server: list once, then watch, and list again when the watch has lost its place.

Resource handling: one request at a time, each with a deadline for silence; nothing stays open when `run` is cancelled.

A watch is short, so that one whose connection has fallen silent is known by its not ending (`Timeouts.watch_s`). One
that has lasted is followed by the next at once, from the last bookmark on: one request, and nothing is listed again.

Error handling: whatever the server does, the reflector goes on with a growing, jittered pause, and the cache keeps what
it has. A 410 lists again and takes over the differences: an object that went in between is reported as gone. Who gives
`confirm` gets the errors that say that the resource is not served or not allowed, and is asked before an object is
taken as gone or going: see `informers`.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.kube.cache import Cache, Manifest
from slicebus.kube.client import KubeClient, WatchEvent
from slicebus.kube.resources import Resource
from slicebus.proto.errors import ExpiredError, ForbiddenError, NotFoundError, SlicebusError, TransientError

_log = structlog.get_logger()
_PAGE = 500
_BACKOFF = Backoff(first_s=0.2, most_s=45.0)
_LASTED_S = 1.0
"""A watch that ends sooner is one that the server did not want."""


Confirm = Callable[[], Awaitable[None]]


class Reflector:
    """Feeds one cache from one resource."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        cache: Cache,
        *,
        namespace: str | None = None,
        labels: str | None = None,
        shape: Callable[[Manifest], Manifest] = lambda manifest: manifest,
        confirm: Confirm | None = None,
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        """`shape` makes of an object what is kept of it: its name, UID and version at least.

        `confirm` is called after the server has said that objects went, and before the cache hears of it. What it
        raises other than TransientError ends `run`. `listed` is called whenever the cache has taken a list in.
        """
        self._client = client
        self._resource = resource
        self._cache = cache
        self._namespace = namespace
        self._labels = labels
        self._shape = shape
        self._confirm = confirm
        self._listed = listed
        self._failures = 0
        """In a row."""
        self._leaving: list[WatchEvent] = []
        self._left = asyncio.Event()
        self._lists = 0

    async def run(self) -> None:
        """List and watch until cancelled. With `confirm` raises NotFoundError, ForbiddenError, and what that raises."""
        if self._confirm is None:
            await self._follow()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(), name=f"follow:{self._resource.plural}")
                group.create_task(self._let_go(self._confirm), name=f"removals:{self._resource.plural}")
        except* SlicebusError as failed:
            error = failed.exceptions[0]
        raise error

    def doubt(self) -> None:
        """Have `confirm` called soon, although nothing is known to have gone."""
        self._left.set()

    async def _follow(self) -> None:
        loop, version = asyncio.get_running_loop(), None
        while True:
            try:
                if version is None:
                    version = await self._list()
                began = loop.time()
                async for event in self._client.watch(
                    self._resource, resource_version=version, namespace=self._namespace, labels=self._labels
                ):
                    version = event.object["metadata"]["resourceVersion"]
                    self._failures = 0
                    if event.type != "BOOKMARK":
                        self._take(event)
                if loop.time() - began >= _LASTED_S:
                    continue
            except ExpiredError:
                _log.info("reflector.relist", resource=self._resource.plural)
                version = None
            except (NotFoundError, ForbiddenError) as error:
                if self._confirm is not None:
                    raise
                _log.warning("reflector.interrupted", resource=self._resource.plural, error=str(error))
            except SlicebusError as error:
                _log.warning("reflector.interrupted", resource=self._resource.plural, error=str(error))
            await self._pause()

    async def _list(self) -> str:
        items: list[Manifest] = []
        token = ""
        while True:
            page = await self._client.list(
                self._resource,
                namespace=self._namespace,
                labels=self._labels,
                limit=_PAGE,
                continue_token=token or None,
            )
            items += map(self._shape, page.items)
            token = page.continue_token
            if not token:
                if self._confirm is not None and (len(self._cache) or any(map(_is_going, items))):
                    await self._confirm()
                self._leaving, self._lists = [], self._lists + 1
                self._cache.replace(items, page.resource_version)
                self._listed()
                return page.resource_version

    def _take(self, event: WatchEvent) -> None:
        if self._confirm is not None and (event.type == "DELETED" or self._begins_to_go(event.object)):
            self._leaving.append(event)
            self._left.set()
        else:
            self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._cache.remove(event.object, is_final=True)
        else:
            self._cache.put(self._shape(event.object))

    def _begins_to_go(self, manifest: Manifest) -> bool:
        known = self._known(manifest) if _is_going(manifest) else None
        return known is not None and not _is_going(known)

    def _known(self, manifest: Manifest) -> Manifest | None:
        return self._cache.get(manifest["metadata"].get("namespace"), manifest["metadata"]["name"])

    async def _let_go(self, confirm: Confirm) -> None:
        """Apply what takes objects away, once that is confirmed: one question for all that came while the last one
        was asked. Nothing else waits for it."""
        while True:
            await self._left.wait()
            self._left.clear()
            leaving, self._leaving, lists = self._leaving, [], self._lists
            try:
                await confirm()
            except TransientError as error:
                _log.warning("removal.unconfirmed", resource=self._resource.plural, error=str(error))
                self._leaving = leaving + self._leaving if lists == self._lists else self._leaving
                self._left.set()
                await self._pause()
                continue
            for event in leaving if lists == self._lists else ():
                known = self._known(event.object)
                # What came back into a selector's sight meanwhile stays.
                if known is None or _version(known) <= _version(event.object):
                    self._apply(event)

    async def _pause(self) -> None:
        """Wait before the next request: a server that closes at once must not be asked hundreds of times a second."""
        self._failures += 1
        await asyncio.sleep(_BACKOFF.pause_s(self._failures))


def _is_going(manifest: Manifest) -> bool:
    return "deletionTimestamp" in manifest["metadata"]


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
