"""Keeps a cache in sync with the server: it lists once, then watches, and lists again when the watch has expired.

Resource handling: one request at a time, each with a deadline for silence; nothing stays open when `run` is cancelled.

A watch is short, so that a dead connection shows as a watch that does not end (`Timeouts.watch_s`). After a watch that
has lasted the next one starts at once, from the last bookmark: one request, and no list.

Error handling: whatever the server does, the reflector goes on after a growing, jittered pause, and the cache keeps its
content. After a 410 it lists again and applies the differences: an object that went in between is removed. With
`confirm`, `run` raises where the resource is not served or forbidden, and removals wait for `confirm`: see `informers`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.kube.cache import Cache, Manifest
from slicebus.kube.client import KubeClient, WatchEvent
from slicebus.kube.resources import Resource
from slicebus.proto.errors import (
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    SlicebusError,
    TransientError,
    UnavailableError,
)

_log = structlog.get_logger()
_PAGE = 500
_BACKOFF = Backoff(first_s=0.2, most_s=45.0)
_LASTED_S = 1.0
"""Seconds. A watch that ends sooner was refused by the server, in effect."""


Confirm = Callable[[Sequence[Manifest]], Awaitable[None]]
"""Gets the objects that leave, or may leave."""


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
        """`shape` reduces an object to what the cache keeps: at least its name, UID and version.

        `confirm` is called before the cache removes an object that others have deleted, or marks one as being deleted;
        another object of its name comes after that. An error other than TransientError ends `run`. `listed` is called
        after each list.
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
        self._removals: list[WatchEvent] = []
        self._removals_due = asyncio.Event()
        self._lists = 0

    async def run(self) -> None:
        """List and watch until cancelled. With `confirm` raises NotFoundError, ForbiddenError, and what that raises."""
        if self._confirm is None:
            await self._list_and_watch()
            return
        plural = self._resource.plural
        await until_one_ends(
            asyncio.create_task(self._list_and_watch(), name=f"follow:{plural}"),
            asyncio.create_task(self._apply_removals(self._confirm), name=f"removals:{plural}"),
        )

    def doubt(self) -> None:
        """Have `confirm` called soon, without a removal."""
        self._removals_due.set()

    async def _list_and_watch(self) -> None:
        loop, version = asyncio.get_running_loop(), None
        while True:
            failed: SlicebusError | None = None
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
                        self._handle(event)
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
                failed = error
                _log.warning("reflector.interrupted", resource=self._resource.plural, error=str(error))
            await self._pause(failed)

    async def _list(self) -> str:
        items: list[Manifest] = []
        version = ""
        async for page in self._client.pages(
            self._resource, namespace=self._namespace, labels=self._labels, limit=_PAGE, shape=self._kept
        ):
            version = page.resource_version
            items += page.items
        if self._confirm is not None and (len(self._cache) or any(map(_is_deleting, items))):
            await self._confirm([*self._cache.all(), *filter(_is_deleting, items)])
        self._removals, self._lists = [], self._lists + 1
        await self._cache.replace(items, version, namespace=self._namespace)
        self._listed()
        return version

    def _kept(self, item: Manifest) -> Manifest:
        """What is kept of an item of a list. Here and not in the cache: all of a long list takes far more memory."""
        item["metadata"].pop("managedFields", None)
        return self._cache.kept(self._shape(item))

    def _handle(self, event: WatchEvent) -> None:
        if self._confirm is not None and (event.type == "DELETED" or self._waits(event.object)):
            self._removals.append(event)
            self._removals_due.set()
        else:
            self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._cache.remove(event.object, is_final=True)
        else:
            self._cache.put(self._shape(event.object))

    def _waits(self, manifest: Manifest) -> bool:
        """Whether an object begins to be deleted, or takes the name of one that is about to leave the cache."""
        known = self._known(manifest)
        if known is None:
            return False
        return not _is_same(known, manifest) or (_is_deleting(manifest) and not _is_deleting(known))

    def _known(self, manifest: Manifest) -> Manifest | None:
        return self._cache.get(manifest["metadata"].get("namespace"), manifest["metadata"]["name"])

    async def _apply_removals(self, confirm: Confirm) -> None:
        """Apply removals, and the objects that take their names, once they are confirmed: one call confirms all that
        came during the last one. What this process has deleted needs no call. Other events do not wait."""
        while True:
            await self._removals_due.wait()
            self._removals_due.clear()
            removals, self._removals, lists = self._removals, [], self._lists
            unexpected = [event.object for event in removals if not self._cache.is_removed_here(event.object)]
            try:
                if unexpected or not removals:
                    await confirm(unexpected)
            except TransientError as error:
                _log.warning("removal.unconfirmed", resource=self._resource.plural, error=str(error))
                self._removals = removals + self._removals if lists == self._lists else self._removals
                self._removals_due.set()
                await self._pause(error)
                continue
            for event in removals if lists == self._lists else ():
                known = self._known(event.object)
                # An object that matches the selector again stays.
                if known is None or not _is_same(known, event.object) or _version(known) <= _version(event.object):
                    self._apply(event)

    async def _pause(self, failed: SlicebusError | None) -> None:
        """Wait before the next request, so as not to ask a server that closes at once hundreds of times a second."""
        self._failures += 1
        await asyncio.sleep(_BACKOFF.pause_s(self._failures, failed))


async def until_one_ends(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of the tasks ends, end the others, and raise what it has raised.

    No TaskGroup: it forgets that it was cancelled where a task raises while it is being cancelled, as a reflector may.
    """
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.cancelled():
                raise UnavailableError(f"{task.get_name()} was cancelled by a library")
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_deleting(manifest: Manifest) -> bool:
    return "deletionTimestamp" in manifest["metadata"]


def _is_same(left: Manifest, right: Manifest) -> bool:
    return bool(left["metadata"]["uid"] == right["metadata"]["uid"])


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
