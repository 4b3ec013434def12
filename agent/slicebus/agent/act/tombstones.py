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
from slicebus.proto.messages import JobRef, Manifest
from slicebus.slices.api.annotation_values import read_json

_log = structlog.get_logger()

NAME = "slicebus-tombstones"
_TOMBSTONE = msgspec.json.Decoder(Tombstone)
_KEPT_S = 24 * 3600
_MOST = 5000
"""The most tombstones."""
_MOST_BYTES = 1000 * 1024
"""The most of all of them: a ConfigMap holds 1 MiB. One has some 200 bytes, and the names of its job."""


def read_tombstone(text: str) -> Tombstone | None:
    """An entry of the ConfigMap; None where it is unreadable."""
    return read_json(text, _TOMBSTONE)


class Tombstones:
    """The ConfigMap and its content in memory. The agent that holds the Lease is its only writer."""

    def __init__(self, client: KubeClient, namespace: str, store: AgentStore) -> None:
        self._client = client
        self._namespace = namespace
        self._by_uid = store.tombstones
        self._ordered = store.ends_ordered
        self._unreported = store.unreported

    async def load(self) -> None:
        """Read the ConfigMap; create it where it is missing."""
        try:
            config_map = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        except NotFoundError:
            try:
                config_map = await self._client.create(CONFIGMAPS, self._config_map({}))
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
        """Store the tombstone of a job, and require a report. Of several versions the highest stays. From here on no
        earlier order is carried out, also where the API server refuses to store it."""
        self._unreported[job.uid] = True
        present = self._by_uid.get(job.uid)
        if present is not None and present.version >= version:
            return
        self._ordered[job.uid] = max(version, self._ordered.get(job.uid, 0))
        tombstone = Tombstone(job, version, int(now().timestamp()))
        expired = [uid for uid in self._expired(tombstone) if uid != job.uid]
        data: dict[str, str | None] = dict.fromkeys(expired)
        data[job.uid] = _encoded(tombstone)
        try:
            await self._client.patch(CONFIGMAPS, NAME, self._namespace, MergePatch({"data": data}))
        except NotFoundError:
            # Somebody has deleted it. Nothing else has what it had.
            known = {uid: _encoded(kept) for uid, kept in self._by_uid.items() if uid not in expired}
            await self._client.create(CONFIGMAPS, self._config_map(known | {job.uid: _encoded(tombstone)}))
        for uid in expired:
            # Another delete may have removed it too, while this one was written.
            self._by_uid.pop(uid, None)
            self._unreported.pop(uid, None)
        self._by_uid[job.uid] = tombstone
        self._ordered.pop(job.uid, None)

    def _config_map(self, data: dict[str, str]) -> Manifest:
        metadata = {"name": NAME, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def _expired(self, new: Tombstone) -> list[str]:
        """UIDs of the tombstones that are older than a day, and of the oldest for which a new one leaves no room."""
        expired, left = [], _MOST_BYTES - _size(new)
        newest_first = sorted(self._by_uid.items(), key=lambda item: item[1].at_s, reverse=True)
        for number, (uid, tombstone) in enumerate(newest_first, start=1):
            left -= _size(tombstone)
            if number >= _MOST or left < 0 or tombstone.at_s < new.at_s - _KEPT_S:
                expired.append(uid)
        return expired


def _encoded(tombstone: Tombstone) -> str:
    return msgspec.json.encode(tombstone).decode()


def _size(tombstone: Tombstone) -> int:
    """What one takes of a ConfigMap, in bytes."""
    return len(tombstone.job.uid) + len(msgspec.json.encode(tombstone))
