"""Kubernetes Events, for `kubectl describe`. Losing one must never stop the work that it is about."""

import asyncio
from collections import OrderedDict
from typing import Any

import msgspec
import structlog

from slicebus.ambient.clock import random_hex
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import EVENTS
from slicebus.kube.times import now_text
from slicebus.proto.errors import NotFoundError, SlicebusError

_log = structlog.get_logger()
Manifest = dict[str, Any]

_AGGREGATE_S = 600.0
"""As client-go: the same Event within ten minutes is counted, not made again."""
_REMEMBERED = 4096
_NOTE_LENGTH = 1024
"""The API server refuses longer ones."""


class _Recorded(msgspec.Struct):
    namespace: str
    name: str
    count: int
    first_at: float


class EventRecorder:
    """Records Events as one component."""

    def __init__(self, client: KubeClient, *, component: str) -> None:
        self._client = client
        self._component = component
        self._recorded: OrderedDict[tuple[str, str, str], _Recorded] = OrderedDict()

    async def record(self, regarding: Manifest, *, reason: str, note: str, warning: bool = False) -> None:
        """Record an Event on an object, or count it up. Never raises a SlicebusError."""
        try:
            await self._record(regarding, reason, note[:_NOTE_LENGTH], "Warning" if warning else "Normal")
        except SlicebusError as error:
            _log.warning("event.lost", reason=reason, note=note, error=str(error))

    async def _record(self, regarding: Manifest, reason: str, note: str, type: str) -> None:
        key = (regarding["metadata"]["uid"], reason, note)
        now = asyncio.get_running_loop().time()
        known = self._recorded.get(key)
        if known is not None and now - known.first_at < _AGGREGATE_S:
            known.count += 1
            body = {"count": known.count, "lastTimestamp": now_text()}
            try:
                await self._client.patch(EVENTS, known.name, known.namespace, MergePatch(body))
            except NotFoundError:
                self._recorded.pop(key, None)
            else:
                return
        manifest = self._manifest(regarding, reason, note, type)
        metadata = manifest["metadata"]
        # Remembered before the request, so that equal Events at once seldom lead to more than one object.
        self._recorded[key] = _Recorded(metadata["namespace"], metadata["name"], 1, now)
        while len(self._recorded) > _REMEMBERED:
            self._recorded.popitem(last=False)
        await self._client.create(EVENTS, manifest, field_manager=self._component)

    def _manifest(self, regarding: Manifest, reason: str, note: str, type: str) -> Manifest:
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
            "reason": reason,
            "message": note,
            "type": type,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
