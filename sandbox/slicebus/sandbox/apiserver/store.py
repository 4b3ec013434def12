"""The server's state: objects, their versions, and the history that watches replay.

Every change has its own resourceVersion, a number that counts all changes of the server. Each resource has a history of
its own, as a real server's watch caches are. A watch that asks for changes since a version that has left the history
gets 410, and so does a list that goes on from there.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Literal

import msgspec

from slicebus.kube.resources import CRDS
from slicebus.sandbox.apiserver.builtin import BUILTIN
from slicebus.sandbox.apiserver.kinds import Served, served_by
from slicebus.sandbox.apiserver.status import ApiError, not_found, unserved

Manifest = dict[str, Any]
Key = tuple[str, str, str, str]
"""Group, plural, namespace, name: all served versions of a resource share their objects."""
Kind = tuple[str, str]
"""Group and plural."""
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class HistoryEntry(msgspec.Struct, frozen=True):
    """One entry of a history."""

    version: int
    type: ChangeType
    key: Key
    object: Manifest
    old: Manifest | None


class ObjectStore:
    """Objects by key. No object is ever changed in place."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.version = 1
        self.objects: dict[Key, Manifest] = {}
        self._uids: dict[str, Key] = {}
        self._owned: dict[str, set[Key]] = {}
        self._history: defaultdict[Kind, deque[HistoryEntry]] = defaultdict(lambda: deque(maxlen=history))
        self._forgotten: dict[Kind, int] = {}
        """The last version that has left each history."""
        self._grew: defaultdict[Kind, asyncio.Event] = defaultdict(asyncio.Event)
        self._callbacks: list[Callable[[HistoryEntry], None]] = []
        self._served: dict[tuple[str, str, str], Served] = {}
        for served in BUILTIN:
            self._serve(served)

    def served(self, group: str, version: str, plural: str) -> Served:
        """A resource. Raises ApiError 404 for one that is not served."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise unserved() from None

    def all_served(self) -> list[Served]:
        """Every resource."""
        return list(self._served.values())

    def get(self, served: Served, namespace: str, name: str) -> Manifest:
        """One object. Raises ApiError 404."""
        try:
            return self.objects[key_of(served, namespace, name)]
        except KeyError:
            raise not_found(served.resource, name) from None

    def of(self, served: Served, namespace: str | None, *, version: int | None = None) -> Iterator[Manifest]:
        """The objects of a resource in a namespace, or in all of them, sorted by namespace and name; now or as of a
        version."""
        objects = self.objects if version in (None, self.version) else self._as_of(served, version)
        kind = kind_of(served)
        for key in sorted(key for key in objects if key[:2] == kind):
            if namespace in (None, key[2]):
                yield objects[key]

    def owned_by(self, uid: str) -> list[Key]:
        """The objects that name an object as their owner."""
        return sorted(self._owned.get(uid, ()))

    def key_of_uid(self, uid: str) -> Key | None:
        """The key of the object with a UID; None where it is missing."""
        return self._uids.get(uid)

    def put(self, key: Key, manifest: Manifest) -> Manifest:
        """Store a new state under the next version."""
        old = self.objects.get(key)
        stored = self._stamped(manifest)
        self.objects[key] = stored
        self._index(key, old, stored)
        self._record("ADDED" if old is None else "MODIFIED", key, stored, old)
        return stored

    def remove(self, key: Key, last: Manifest | None = None) -> Manifest:
        """Remove an object; its last state, by default the present one, gets the version of the removal."""
        old = self.objects.pop(key)
        last = self._stamped(last or old)
        self._index(key, old, None)
        self._record("DELETED", key, last, old)
        return last

    def since(self, served: Served, version: int) -> list[HistoryEntry]:
        """Changes of a resource after a version. Raises ApiError 410 when its history no longer reaches back to it."""
        kind = kind_of(served)
        forgotten = self._forgotten[kind]
        if version < forgotten:
            raise ApiError(410, f"too old resource version: {version} ({forgotten})")
        newest_first = takewhile(lambda change: change.version > version, reversed(self._history[kind]))
        return list(newest_first)[::-1]

    def forget(self) -> None:
        """Empty every history, as a restarted server does: every watch ends with 410."""
        self.version += 1
        self._history.clear()
        self._forgotten = dict.fromkeys(self._forgotten, self.version)
        for waited_for in self._grew.values():
            waited_for.set()
        self._grew.clear()

    def subscribe(self, callback: Callable[[HistoryEntry], None]) -> None:
        """Call back on every change from now on, at once and in order."""
        self._callbacks.append(callback)

    def grew(self, served: Served) -> asyncio.Event:
        """Set by the next change of a resource."""
        return self._grew[kind_of(served)]

    def _as_of(self, served: Served, version: int) -> dict[Key, Manifest]:
        """The objects of a resource at a version: undoes later changes, the newest first."""
        objects = dict(self.objects)
        for change in reversed(self.since(served, version)):
            if change.old is None:
                del objects[change.key]
            else:
                objects[change.key] = change.old
        return objects

    def _index(self, key: Key, old: Manifest | None, new: Manifest | None) -> None:
        """Update the indexes after a change: UIDs, owners, and served resources."""
        if old is not None:
            self._uids.pop(old["metadata"]["uid"], None)
            for uid in owner_uids(old):
                self._owned[uid].discard(key)
                if not self._owned[uid]:
                    del self._owned[uid]
        if new is not None:
            self._uids[new["metadata"]["uid"]] = key
            for uid in owner_uids(new):
                self._owned.setdefault(uid, set()).add(key)
        if key[:2] == (CRDS.group, CRDS.plural):
            for served in served_by(old) if old is not None else ():
                resource = served.resource
                self._served.pop((resource.group, resource.version, resource.plural), None)
            for served in served_by(new) if new is not None else ():
                self._serve(served)

    def _serve(self, served: Served) -> None:
        resource = served.resource
        self._served[resource.group, resource.version, resource.plural] = served
        # The resource has no watches yet.
        self._forgotten.setdefault(kind_of(served), self.version)

    def _stamped(self, manifest: Manifest) -> Manifest:
        self.version += 1
        return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(self.version)}}

    def _record(self, type: ChangeType, key: Key, manifest: Manifest, old: Manifest | None) -> None:
        change, kind = HistoryEntry(self.version, type, key, manifest, old), key[:2]
        history = self._history[kind]
        if len(history) == history.maxlen:
            self._forgotten[kind] = history[0].version
        history.append(change)
        if (waited_for := self._grew.pop(kind, None)) is not None:
            waited_for.set()
        for callback in self._callbacks:
            callback(change)


def owner_uids(manifest: Manifest) -> set[str]:
    """The UIDs of an object's owners."""
    return {owner["uid"] for owner in manifest["metadata"].get("ownerReferences") or ()}


def kind_of(served: Served) -> Kind:
    """The common prefix of the keys of a resource's objects."""
    return served.resource.group, served.resource.plural


def key_of(served: Served, namespace: str, name: str) -> Key:
    """The key of an object."""
    return served.resource.group, served.resource.plural, namespace if served.resource.namespaced else "", name
