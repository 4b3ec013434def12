"""Keeps the objects of one resource in memory, with indexes. A reflector and the role's own writes feed it.

The answer of a write goes into the cache at once, so that the next decision sees it. The watch brings the same object
again, and older states before it, which the cache drops by their resourceVersion. (Since Kubernetes 1.35, KEP-5504,
resourceVersions may be compared as numbers; on etcd that was always right.)

Objects of a cache are shared: read them, never change them. They have no `managedFields`: no decision reads these, and
they are often a third of an object.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import structlog

from slicebus.kube.packed import Packed, packed
from slicebus.proto.errors import DecisionError

_log = structlog.get_logger()
Manifest = dict[str, Any]
Key = tuple[str, str]
Indexer = Callable[[Manifest], Iterable[str]]
T = TypeVar("T")

_TOMBSTONES = 4096
"""How many deleted objects are remembered, so that late events do not bring them back."""
_AT_A_TIME = 200
"""Objects of a list that are stored at a time: that takes some ten milliseconds."""


class Change(msgspec.Struct, frozen=True):
    """One change of a cache: an object was added (no old), changed, or went (no new)."""

    old: Manifest | None
    new: Manifest | None
    is_own: bool = False
    """Whether it is the answer of a write of this process."""
    final: Manifest | None = None
    """The last state of an object that went, from the watch. None where a list lacked the object: it may have changed
    in between."""


class Cache:
    """Keeps objects by namespace and name. It is not synced until a reflector has listed them once."""

    def __init__(
        self,
        indexes: Mapping[str, Indexer] | None = None,
        *,
        fitting: Callable[[Manifest], Manifest] | None = None,
        packs: bool = False,
    ) -> None:
        """`fitting` makes an object one that everybody can read: it returns the same object, or a copy. `packs`:
        whether the large parts of objects are kept as JSON (`packed`)."""
        self.synced = asyncio.Event()
        self._objects: dict[Key, Manifest] = {}
        self._fitting = fitting
        self._packs = packs
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, defaultdict[str, dict[Key, Manifest]]] = {
            name: defaultdict(dict) for name in self._indexers
        }
        self._unlisted: set[str] = set()
        """The namespaces that are still to be listed, where each has a list of its own."""
        self._gone: dict[str, int] = {}
        """The version at which an object went, by UID. With a newer version it matches the selector again."""
        self._deleted_here: set[str] = set()
        """The UIDs of objects that this process deletes, and that have not left yet."""
        self._callbacks: list[Callable[[Change], None]] = []
        self._deleted_callbacks: list[Callable[[Manifest], None]] = []

    def get(self, namespace: str | None, name: str) -> Manifest | None:
        """One object; None where the cache has none of that name."""
        return self._objects.get((namespace or "", name))

    def all(self) -> list[Manifest]:
        """Every object."""
        return list(self._objects.values())

    def by(self, index: str, value: str) -> list[Manifest]:
        """The objects under a value of an index."""
        return list(self.keyed_by(index, value).values())

    def keyed_by(self, index: str, value: str) -> Mapping[Key, Manifest]:
        """The same by namespace and name; valid until the next change."""
        return self._indexes[index].get(value, {})

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, callback: Callable[[Change], None]) -> None:
        """Call back on every change, at once and in order. Objects that are there already come first, as added."""
        self._callbacks.append(callback)
        for manifest in self.all():
            callback(Change(old=None, new=manifest))

    def on_deleted(self, callback: Callable[[Manifest], None]) -> None:
        """Call back with the last state of every object whose deletion the watch brings, before the change, and also
        where the cache had lost the object before. An object that a list lacks leads to no call."""
        self._deleted_callbacks.append(callback)

    def expect_removal(self, uid: str) -> None:
        """Note that this process deletes an object. That it goes is no sign that its definition does."""
        self._deleted_here.add(uid)

    def forget_removal(self, uid: str) -> None:
        """Take that back: the server has refused the delete, or does not know the object."""
        self._deleted_here.discard(uid)

    def is_removed_here(self, manifest: Manifest) -> bool:
        """Whether this process has asked the server to delete an object."""
        return manifest["metadata"]["uid"] in self._deleted_here

    def kept(self, manifest: Manifest) -> Manifest:
        """What is kept of an object: it fits, and is packed where that is set. What it returned is kept as it is."""
        if isinstance(manifest, Packed):
            return manifest
        if self._fitting is not None:
            manifest = self._fitting(manifest)
        return packed(manifest) if self._packs else manifest

    def put(self, manifest: Manifest, *, is_own: bool = False) -> None:
        """Store an object, unless a newer state of it is known. `is_own` as in `Change`."""
        key, metadata = key_of(manifest), manifest["metadata"]
        old = self._objects.get(key)
        if _version(manifest) <= self._gone.get(metadata["uid"], -1):
            return
        if old is not None:
            if old["metadata"]["uid"] == metadata["uid"]:
                if _version(old) >= _version(manifest):
                    return
            elif _version(old) > _version(manifest):
                return
        if "managedFields" in metadata:
            manifest = manifest | {"metadata": {n: value for n, value in metadata.items() if n != "managedFields"}}
        self._store(key, self.kept(manifest), old, is_own=is_own)

    def remove(self, manifest: Manifest, *, is_final: bool = False) -> None:
        """Remove an object, and drop older states of it that come later. `is_final`: the watch brought this as its last
        state."""
        if is_final and self._fitting is not None:
            manifest = self._fitting(manifest)
        for callback in self._deleted_callbacks if is_final else ():
            _call(callback, manifest, key_of(manifest))
        self._remove(manifest, _version(manifest), final=manifest if is_final else None)

    def expect(self, namespaces: Collection[str]) -> None:
        """Count as not synced until the objects were listed: once, or once for each of these namespaces."""
        self._unlisted = set(namespaces)
        self.synced.clear()

    async def replace(
        self, manifests: Iterable[Manifest], resource_version: str, *, namespace: str | None = None
    ) -> None:
        """Store a complete list of a version, of one namespace or of all. Objects that it lacks are removed, unless
        they were put in since. Other tasks go on meanwhile: a role that does nothing else for seconds loses its Lease.
        """
        listed, version = {manifest["metadata"]["uid"]: manifest for manifest in manifests}, int(resource_version or 0)
        async for key in _some_at_a_time([*self._objects]):
            known = self._objects.get(key)
            if known is None or (namespace is not None and known["metadata"].get("namespace") != namespace):
                continue
            if known["metadata"]["uid"] not in listed and _version(known) <= version:
                self._remove(known, version)
        async for manifest in _some_at_a_time(listed.values()):
            self.put(manifest)
        self._unlisted.discard(namespace or "")
        if not self._unlisted:
            self.synced.set()

    def clear(self) -> None:
        """Remove every object: the definition has gone with all of them. The cache is synced: there is nothing to list.

        The next list may bring some back, of the definition that has replaced it.
        """
        for manifest in self.all():
            self.drop(manifest)
        self.synced.set()

    def drop(self, manifest: Manifest) -> None:
        """Remove an object that is there, and may come back in the same state."""
        self.forget_removal(manifest["metadata"]["uid"])
        self._store(key_of(manifest), None, manifest)

    def _remove(self, manifest: Manifest, version: int, *, final: Manifest | None = None) -> None:
        key, uid = key_of(manifest), manifest["metadata"]["uid"]
        self.forget_removal(uid)
        present = self._objects.get(key)
        old = present if present is not None and present["metadata"]["uid"] == uid else None
        # The caller may know an older version than the last one of the object.
        last = _version(old) if old else self._gone.get(uid, version)
        self._gone[uid] = max(version, last)
        if len(self._gone) > _TOMBSTONES:
            del self._gone[next(iter(self._gone))]
        if old:
            self._store(key, None, old, final=final)

    def _store(
        self,
        key: Key,
        new: Manifest | None,
        old: Manifest | None,
        *,
        is_own: bool = False,
        final: Manifest | None = None,
    ) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            before, after = _values(indexer, old), _values(indexer, new)
            for value in before:
                if value not in after:
                    index[value].pop(key, None)
                    if not index[value]:
                        del index[value]
            for value in after:
                index[value][key] = new  # type: ignore[assignment]
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        change = Change(old, new, is_own, final)
        for callback in self._callbacks:
            _call(callback, change, key)


def _call(callback: Callable[[T], None], value: T, key: Key) -> None:
    try:
        callback(value)
    except Exception as error:  # noqa: BLE001 whoever wrote the object must not end the role
        failed = DecisionError.of(getattr(callback, "__qualname__", "callback"), error)
        _log.error("object.unfollowed", namespace=key[0], name=key[1], error=str(failed), exc_info=error)


def _values(indexer: Indexer, manifest: Manifest | None) -> tuple[str, ...]:
    """The values of an object in an index; none where the object cannot be read."""
    try:
        return tuple(indexer(manifest)) if manifest else ()
    except Exception as error:  # noqa: BLE001 whoever wrote the object must not end the role
        _log.error("object.unindexed", error=str(DecisionError.of("index", error)), exc_info=error)
        return ()


async def _some_at_a_time(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a turn for all other tasks after some of them."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)


def key_of(manifest: Manifest) -> Key:
    """Namespace, empty for a cluster-scoped object, and name."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])
