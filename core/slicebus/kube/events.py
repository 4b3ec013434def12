"""Records Kubernetes Events, for `kubectl describe`. Neither a lost Event nor a slow write stops the work it is about.

Few tasks write them, apart from that work, as client-go's recorder does. Equal ones are one Event that is counted up.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import structlog

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import EVENTS
from slicebus.kube.times import now_text
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotServedError,
    PermanentError,
)

_log = structlog.get_logger()
Manifest = dict[str, Any]

_AGGREGATE_S = 600.0
"""The same Event within ten minutes is counted, not made again, as client-go does."""
_REFUSED_S = 30.0
_COUNT_S = 60.0
"""The count of an Event is written at most once in this time."""
_OF_A_MOMENT = (ForbiddenError, NotServedError)
"""What refuses a writer now, and not the Event: it is tried again after twice the time, within ten minutes."""
_REMEMBERED = 4096
"""Past so many unwritten Events further ones are lost: a storm of notices has fewer."""
_WRITERS = 2
_NOTE_LENGTH = 1024
"""The API server refuses longer ones."""


class _Key(NamedTuple):
    uid: str
    reason: str
    note: str


class _Event(msgspec.Struct):
    manifest: Manifest
    first_at: float
    count: int = 1
    written: int = 0
    """The count that the API server has; 0 before it has the Event."""
    written_at: float = 0.0


class EventRecorder:
    """Records Events as one component."""

    def __init__(self, client: KubeClient, *, component: str) -> None:
        self._client = client
        self._component = component
        self._events: OrderedDict[_Key, _Event] = OrderedDict()
        self._unwritten: set[_Key] = set()
        self._queue: WorkQueue[_Key] = WorkQueue("events")

    def record(self, regarding: Manifest, *, reason: str, note: str, warning: bool = False) -> None:
        """Record an Event on an object, or count it up. It is written later; past many unwritten ones it is lost."""
        key, now = _Key(regarding["metadata"]["uid"], reason, note[:_NOTE_LENGTH]), asyncio.get_running_loop().time()
        event = self._events.get(key)
        if event is not None and now - event.first_at < _AGGREGATE_S:
            event.count += 1
            if event.written:
                self._queue.add_after(key, event.written_at + _COUNT_S - now)
        elif len(self._unwritten) >= _REMEMBERED:
            _log.warning("event.lost", reason=reason, note=note, error="too many Events wait to be written")
        else:
            self._events[key] = _Event(self._manifest(regarding, key, "Warning" if warning else "Normal"), now)
            self._unwritten.add(key)
            while len(self._events) > _REMEMBERED:
                self._events.popitem(last=False)
            self._queue.add(key)

    async def run(self) -> None:
        """Write Events until cancelled."""
        await self._queue.run(self._write, workers=_WRITERS)

    async def _write(self, key: _Key) -> None:
        """Write an Event, or its count. Raises a TransientError, after which the queue retries it."""
        event = self._events.get(key)
        if event is None:
            self._unwritten.discard(key)
            return
        count, age_s = event.count, asyncio.get_running_loop().time() - event.first_at
        try:
            await (self._count_up(event, count) if event.written else self._create(event, count))
        except (ConflictError, PermanentError) as error:
            if isinstance(error, _OF_A_MOMENT) and age_s < _AGGREGATE_S:
                _log.info("event.refused", reason=key.reason, note=key.note, error=str(error))
                self._queue.add_after(key, max(age_s, _REFUSED_S))
                return
            _log.warning("event.lost", reason=key.reason, note=key.note, error=str(error))
        event.written, event.written_at = count, asyncio.get_running_loop().time()
        self._unwritten.discard(key)
        if event.count > count:
            self._queue.add_after(key, _COUNT_S)

    async def _create(self, event: _Event, count: int) -> None:
        # It exists where an earlier try got no answer.
        with suppress(AlreadyExistsError):
            await self._client.create(EVENTS, event.manifest | {"count": count}, field_manager=self._component)

    async def _count_up(self, event: _Event, count: int) -> None:
        metadata, body = event.manifest["metadata"], {"count": count, "lastTimestamp": now_text()}
        try:
            await self._client.patch(EVENTS, metadata["name"], metadata["namespace"], MergePatch(body))
        except NotFoundError:
            await self._create(event, count)

    def _manifest(self, regarding: Manifest, key: _Key, type: str) -> Manifest:
        metadata, now = regarding["metadata"], now_text()
        namespace = metadata.get("namespace", "default")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name'][:230]}.{random_hex(8)}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "name": metadata["name"],
                "namespace": metadata.get("namespace", ""),
                "uid": metadata["uid"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": key.reason,
            "message": key.note,
            "type": type,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
