"""Serves watches: the history as one client sees it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.store import HistoryEntry, ObjectStore

Manifest = dict[str, Any]
Matcher = Callable[[Manifest], bool]

_BOOKMARK_S = 30.0
"""The pause between two bookmarks. A real server sends one about once a minute."""


async def events(
    store: ObjectStore,
    served: Served,
    *,
    version: int,
    matches: Matcher,
    bookmarks: bool,
    timeout_s: float,
) -> AsyncIterator[Manifest]:
    """Watch events after a version until the time is over. Raises ApiError 410 for a version that is too old.

    An object that begins or ceases to match the selector is reported as added or deleted.
    """
    loop = asyncio.get_running_loop()
    ends_at, bookmark_at = loop.time() + timeout_s, loop.time() + _BOOKMARK_S
    while loop.time() < ends_at:
        grew = store.grew(served)
        for change in store.since(served, version):
            version = change.version
            event = _event(change, matches)
            if event is not None:
                yield event
        if bookmarks and loop.time() >= bookmark_at:
            bookmark_at = loop.time() + _BOOKMARK_S
            yield {"type": "BOOKMARK", "object": bookmark(served, version)}
        wait_s = min(ends_at, bookmark_at) - loop.time()
        try:
            # Not wait_for: in Python 3.11 that loses a cancellation that comes together with the event.
            async with asyncio.timeout(max(wait_s, 0)):
                await grew.wait()
        except TimeoutError:
            if not grew.is_set():
                # No change: this watch is up to date.
                version = max(version, store.version)
    if bookmarks:
        yield {"type": "BOOKMARK", "object": bookmark(served, version)}


def bookmark(served: Served, version: int, *, initial: bool = False) -> Manifest:
    """The object of a bookmark."""
    metadata: Manifest = {"resourceVersion": str(version)}
    if initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"apiVersion": served.resource.api_version, "kind": served.resource.kind, "metadata": metadata}


def _event(change: HistoryEntry, matches: Matcher) -> Manifest | None:
    was = change.old is not None and matches(change.old)
    if change.type == "DELETED":
        return {"type": "DELETED", "object": change.object} if was else None
    now = matches(change.object)
    if now:
        return {"type": "MODIFIED" if was else "ADDED", "object": change.object}
    return {"type": "DELETED", "object": change.object} if was else None
