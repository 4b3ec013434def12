"""Tombstones of the manager's jobs that have ended here, so that no late message creates one again.

One ConfigMap in each cluster has the UID of each manager's job and the version that ended it. A tombstone stays for a
day, longer than any message waits in a queue.
"""

import msgspec
import structlog

from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import Tombstone
from slicebus.ambient.clock import now
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import AlreadyExistsError, NotFoundError
from slicebus.proto.messages import JobRef
from slicebus.slices.api.annotation_values import read_json

_log = structlog.get_logger()

NAME = "slicebus-tombstones"
_TOMBSTONE = msgspec.json.Decoder(Tombstone)
_KEPT_S = 24 * 3600
_MOST = 5000
"""The most tombstones: each has about 150 bytes, and a ConfigMap holds 1 MiB."""


def read_tombstone(text: str) -> Tombstone | None:
    """An entry of the ConfigMap; None where it is unreadable."""
    return read_json(text, _TOMBSTONE)


class Tombstones:
    """The ConfigMap and its content in memory. The agent that holds the Lease is its only writer."""

    def __init__(self, client: KubeClient, namespace: str, store: AgentStore) -> None:
        self._client = client
        self._namespace = namespace
        self._by_uid = store.tombstones
        self._unreported = store.unreported

    async def load(self) -> None:
        """Read the ConfigMap; create it where it is missing."""
        empty = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "data": {},
        }
        try:
            config_map = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        except NotFoundError:
            try:
                config_map = await self._client.create(CONFIGMAPS, empty)
            except AlreadyExistsError:
                config_map = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        entries = (config_map.get("data") or {}).items()
        for uid, text in entries:
            tombstone = read_tombstone(text)
            if tombstone is None:
                _log.warning("tombstone.unreadable", uid=uid)
                continue
            self._by_uid[uid] = tombstone
            self._unreported[uid] = True

    async def add(self, job: JobRef, version: int) -> None:
        """Store the tombstone of a job, and require a report. Of several versions the highest stays."""
        self._unreported[job.uid] = True
        present = self._by_uid.get(job.uid)
        if present is not None and present.version >= version:
            return
        tombstone = Tombstone(job, version, int(now().timestamp()))
        expired = [uid for uid in self._expired(tombstone.at_s) if uid != job.uid]
        data: dict[str, str | None] = dict.fromkeys(expired)
        data[job.uid] = msgspec.json.encode(tombstone).decode()
        await self._client.patch(CONFIGMAPS, NAME, self._namespace, MergePatch({"data": data}))
        for uid in expired:
            # Another delete may have removed it too, while this one was written.
            self._by_uid.pop(uid, None)
            self._unreported.pop(uid, None)
        self._by_uid[job.uid] = tombstone

    def _expired(self, now_s: int) -> list[str]:
        """UIDs of the tombstones that are older than a day, and of the oldest beyond the limit."""
        by_age = sorted(self._by_uid, key=lambda uid: self._by_uid[uid].at_s)
        too_many = by_age[: max(0, len(by_age) - _MOST + 1)]
        old = [uid for uid in by_age if self._by_uid[uid].at_s < now_s - _KEPT_S]
        return list(dict.fromkeys(too_many + old))
