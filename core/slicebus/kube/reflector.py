"""Keeps a cache like the server: list once, then watch, and list again when the watch has lost its place.

Resource handling: one request at a time, each with a deadline for silence; nothing stays open when `run` is cancelled.

A watch is short, so that one whose connection has fallen silent is known by its not ending (`Timeouts.watch_s`). One
that has lasted is followed by the next at once, from the last bookmark on: one request, and nothing is listed again.

Error handling: whatever the server does, the reflector goes on with a growing, jittered pause, and the cache keeps what
it has. A 410 lists again and takes over the differences: an object that went in between is reported as gone.
"""

import asyncio
from collections.abc import Callable

import structlog

from slicebus.kube.cache import Cache, Manifest
from slicebus.kube.client import KubeClient
from slicebus.kube.clock import randomness
from slicebus.kube.resources import Resource
from slicebus.proto.errors import ExpiredError, SlicebusError

_log = structlog.get_logger()
_PAGE = 500
_PAUSE_FIRST_S = 0.2
_PAUSE_MOST_S = 30.0
_LASTED_S = 1.0
"""A watch that ends sooner is one that the server did not want."""


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
    ) -> None:
        """`shape` makes of an object what is kept of it: its name, UID and version at least."""
        self._client = client
        self._resource = resource
        self._cache = cache
        self._namespace = namespace
        self._labels = labels
        self._shape = shape
        self._pause_s = _PAUSE_FIRST_S

    async def run(self) -> None:
        """List and watch until cancelled."""
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
                    self._pause_s = _PAUSE_FIRST_S
                    if event.type == "DELETED":
                        self._cache.remove(event.object, is_final=True)
                    elif event.type != "BOOKMARK":
                        self._cache.put(self._shape(event.object))
                if loop.time() - began >= _LASTED_S:
                    continue
            except ExpiredError:
                _log.info("reflector.relist", resource=self._resource.plural)
                version = None
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
                self._cache.replace(items, page.resource_version)
                return page.resource_version

    async def _pause(self) -> None:
        """Wait before the next request: a server that closes at once must not be asked hundreds of times a second."""
        await asyncio.sleep(self._pause_s * randomness().uniform(0.5, 1.5))
        self._pause_s = min(self._pause_s * 2, _PAUSE_MOST_S)
