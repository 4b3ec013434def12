"""Which jobs of the manager have ended here, so that a late message never brings one back.

One ConfigMap a cluster: the UID of the manager's job, and the version that ended it. Kept for a day, which is longer
than any message may lie in a queue unseen.
"""

import time

import msgspec

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import AlreadyExistsError, NotFoundError
from slicebus.proto.messages import JobRef

NAME = "slicebus-tombstones"
_KEPT_S = 24 * 3600
_MOST = 5000
"""About 150 bytes each; a ConfigMap holds 1 MiB."""


class Tombstone(msgspec.Struct, frozen=True):
    """The end of one job."""

    job: JobRef
    version: int
    at_s: int
    """Unix time."""


class Tombstones:
    """The ConfigMap, and what it holds in memory. The agent that has the Lease is its only writer."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._by_uid: dict[str, Tombstone] = {}

    async def load(self) -> None:
        """Read the ConfigMap; make it where it is missing."""
        empty = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "data": {},
        }
        try:
            found = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        except NotFoundError:
            try:
                found = await self._client.create(CONFIGMAPS, empty)
            except AlreadyExistsError:
                found = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        entries = (found.get("data") or {}).items()
        self._by_uid = {uid: msgspec.json.decode(text, type=Tombstone) for uid, text in entries}

    def of(self, job: JobRef) -> Tombstone | None:
        """The end of a job, if it has ended here."""
        return self._by_uid.get(job.uid)

    def named(self, kind: str, namespace: str, name: str) -> list[Tombstone]:
        """The ends of all jobs that had a name."""
        wanted = (kind, namespace, name)
        return [t for t in self._by_uid.values() if (t.job.kind, t.job.namespace, t.job.name) == wanted]

    async def bury(self, job: JobRef, version: int) -> None:
        """Write the end of a job down. A lower version than is there changes nothing."""
        present = self._by_uid.get(job.uid)
        if present is not None and present.version >= version:
            return
        tombstone = Tombstone(job, version, int(time.time()))
        expired = [uid for uid in self._outlived(tombstone.at_s) if uid != job.uid]
        data: dict[str, str | None] = dict.fromkeys(expired)
        data[job.uid] = msgspec.json.encode(tombstone).decode()
        await self._client.patch(CONFIGMAPS, NAME, self._namespace, MergePatch({"data": data}))
        for uid in expired:
            del self._by_uid[uid]
        self._by_uid[job.uid] = tombstone

    def _outlived(self, now_s: int) -> list[str]:
        """Those past their time, and the oldest where there are too many."""
        by_age = sorted(self._by_uid, key=lambda uid: self._by_uid[uid].at_s)
        too_many = by_age[: max(0, len(by_age) - _MOST + 1)]
        old = [uid for uid in by_age if self._by_uid[uid].at_s < now_s - _KEPT_S]
        return list(dict.fromkeys(too_many + old))
