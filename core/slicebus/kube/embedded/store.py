"""The server's state: objects, their versions, and the history that watches replay.

Every change has its own resourceVersion, a number that counts all changes of the server. A watch that asks for changes
since a version that has left the history gets 410.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from slicebus.kube.embedded.kinds import BUILTIN, Served, served_by
from slicebus.kube.embedded.status import Refusal, not_found
from slicebus.kube.resources import CRDS

Manifest = dict[str, Any]
Key = tuple[str, str, str, str]
"""Group, plural, namespace, name: all served versions of a resource share their objects."""
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Change(msgspec.Struct, frozen=True):
    """One entry of the history."""

    version: int
    type: ChangeType
    key: Key
    object: Manifest
    old: Manifest | None


class Store:
    """Objects by key. Whatever is in it is never changed in place."""

    def __init__(self, *, history: int = 10_000) -> None:
        self.version = 1
        self.objects: dict[Key, Manifest] = {}
        self.grew = asyncio.Event()
        self._history: deque[Change] = deque(maxlen=history)
        self._served: dict[tuple[str, str, str], Served] = {}
        for served in BUILTIN:
            self._serve(served)

    def served(self, group: str, version: str, plural: str) -> Served:
        """A resource. Raises Refusal 404 for one that is not served."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise Refusal(404, "the server could not find the requested resource") from None

    def all_served(self) -> list[Served]:
        """Every resource."""
        return list(self._served.values())

    def get(self, served: Served, namespace: str, name: str) -> Manifest:
        """One object. Raises Refusal 404."""
        try:
            return self.objects[key_of(served, namespace, name)]
        except KeyError:
            raise not_found(served.resource.plural, name) from None

    def of(self, served: Served, namespace: str | None) -> Iterator[Manifest]:
        """Objects of a resource in a namespace, or in all of them, by namespace and name."""
        group, plural = served.resource.group, served.resource.plural
        for key in sorted(self.objects):
            if key[:2] == (group, plural) and namespace in (None, key[2]):
                yield self.objects[key]

    def put(self, key: Key, manifest: Manifest) -> Manifest:
        """Store a new state under the next version."""
        old = self.objects.get(key)
        stored = self._stamped(manifest)
        self.objects[key] = stored
        self._record("ADDED" if old is None else "MODIFIED", key, stored, old)
        if key[1] == CRDS.plural:
            for served in served_by(stored):
                self._serve(served)
        return stored

    def remove(self, key: Key) -> Manifest:
        """Take an object out; its last state has the version of the removal."""
        old = self.objects.pop(key)
        last = self._stamped(old)
        self._record("DELETED", key, last, old)
        if key[1] == CRDS.plural:
            for served in served_by(old):
                self._served.pop((served.resource.group, served.resource.version, served.resource.plural), None)
        return last

    def since(self, version: int) -> list[Change]:
        """Changes after a version. Raises Refusal 410 when the history no longer reaches back to it."""
        oldest = self._history[0].version if self._history else self.version + 1
        if version + 1 < oldest and version < self.version:
            raise Refusal(410, f"too old resource version: {version} ({oldest})")
        return [change for change in self._history if change.version > version]

    def _serve(self, served: Served) -> None:
        resource = served.resource
        self._served[resource.group, resource.version, resource.plural] = served

    def _stamped(self, manifest: Manifest) -> Manifest:
        self.version += 1
        return manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(self.version)}}

    def _record(self, type: ChangeType, key: Key, manifest: Manifest, old: Manifest | None) -> None:
        self._history.append(Change(self.version, type, key, manifest, old))
        self.grew.set()
        self.grew = asyncio.Event()


def key_of(served: Served, namespace: str, name: str) -> Key:
    """The key of an object."""
    return served.resource.group, served.resource.plural, namespace if served.resource.namespaced else "", name
