"""Deletes objects: minds finalizers, owners, a pod's grace period, and the content of namespaces and definitions.

The real server leaves this to controllers; here it is done before the request is answered.
"""

from datetime import timedelta
from typing import Any

from slicebus.ambient.clock import now
from slicebus.kube.resources import CRDS, NAMESPACES, PODS
from slicebus.kube.times import time_text
from slicebus.sandbox.apiserver.store import Key, ObjectStore, owner_uids

Manifest = dict[str, Any]

_FOREGROUND = "foregroundDeletion"
_NAMESPACES = (NAMESPACES.group, NAMESPACES.plural, "")
_CRDS = (CRDS.group, CRDS.plural, "")
_PODS = (PODS.group, PODS.plural)
_GRACE_S = 30
"""The default grace period of a pod in seconds."""
_OVER = ("Succeeded", "Failed")


class Garbage:
    """Deletes objects from the store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def delete(self, key: Key, propagation: str = "Background", *, grace_s: int | None = None) -> Manifest:
        """Mark an object for deletion. It goes when nothing holds it. Returns its last state, or the present one where
        it stays.

        A pod that has a node stays for its grace, or the shorter `grace_s`: whoever runs it there deletes it with none.
        """
        old = self._store.objects[key]
        uid, finalizers = old["metadata"]["uid"], list(old["metadata"].get("finalizers") or ())
        if propagation == "Orphan":
            self._orphan(uid)
        if propagation == "Foreground" and self._store.owned_by(uid) and _FOREGROUND not in finalizers:
            finalizers.append(_FOREGROUND)
        marked = _marked(key, old, _grace_s(key, old, grace_s))
        if not finalizers and not self._contents(key) and not has_grace(marked):
            return self.end(key)
        if finalizers:
            marked = marked | {"metadata": marked["metadata"] | {"finalizers": finalizers}}
        if marked != old:
            self._store.put(key, marked)
        for inside in self._contents(key):
            if inside in self._store.objects:
                self.delete(inside)
        if _FOREGROUND in finalizers:
            for child in self._store.owned_by(uid):
                self._let_go(child, uid, propagation)
            self._release(key)
        return self._store.objects.get(key, marked)

    def end(self, key: Key, last: Manifest | None = None) -> Manifest:
        """Remove an object, then the objects that only it owned, and those that waited for it."""
        last = self._store.remove(key, last)
        for child in self._store.owned_by(last["metadata"]["uid"]):
            self._let_go(child, last["metadata"]["uid"])
        for waiting in self._waiting_for(key, last):
            self._release(waiting)
        return last

    def collect_if_ownerless(self, key: Key) -> None:
        """Delete an object whose owners are all missing."""
        manifest = self._store.objects[key]
        owners = manifest["metadata"].get("ownerReferences") or ()
        if owners and all(self._is_gone(owner) for owner in owners):
            self.delete(key)

    def collect_all_ownerless(self) -> None:
        """Delete every object whose owners are all missing: after a definition has come, owners of its kind are known
        to be missing."""
        for key in list(self._store.objects):
            if key in self._store.objects:
                self.collect_if_ownerless(key)

    def _let_go(self, child: Key, uid: str, propagation: str = "Background") -> None:
        """Delete the objects that an object owned, unless they have another owner."""
        manifest = self._store.objects.get(child)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            return
        others = [owner for owner in manifest["metadata"].get("ownerReferences") or () if owner["uid"] != uid]
        if any(not self._is_gone(owner) for owner in others):
            self._disown(child, uid)
        else:
            self.delete(child, propagation)

    def _orphan(self, uid: str) -> None:
        for child in self._store.owned_by(uid):
            self._disown(child, uid)

    def _disown(self, child: Key, uid: str) -> None:
        manifest = self._store.objects[child]
        kept = [owner for owner in manifest["metadata"]["ownerReferences"] if owner["uid"] != uid]
        metadata = {name: value for name, value in manifest["metadata"].items() if name != "ownerReferences"}
        self._store.put(child, manifest | {"metadata": metadata | ({"ownerReferences": kept} if kept else {})})

    def _is_gone(self, owner: Manifest) -> bool:
        """Whether an owner is missing; False for a kind that is not served."""
        group, _, _ = owner["apiVersion"].rpartition("/")
        known = any((s.resource.group, s.resource.kind) == (group, owner["kind"]) for s in self._store.all_served())
        return known and self._store.key_of_uid(owner["uid"]) is None

    def _contents(self, key: Key) -> list[Key]:
        """The objects that a namespace or definition waits for."""
        if key[:3] == _NAMESPACES:
            return [inside for inside in self._store.objects if inside[2] == key[3]]
        if key[:3] == _CRDS:
            plural, _, group = key[3].partition(".")
            return [inside for inside in self._store.objects if inside[:2] == (group, plural)]
        return []

    def _waiting_for(self, key: Key, last: Manifest) -> list[Key]:
        """Remove the objects that waited for a removed one: its namespace, its definition, its owners."""
        owners = map(self._store.key_of_uid, sorted(owner_uids(last)))
        return [(*_CRDS, f"{key[1]}.{key[0]}"), (*_NAMESPACES, key[2]), *(owner for owner in owners if owner)]

    def _release(self, key: Key) -> None:
        """Remove a waiting object once it waits for nothing more. What it has come to own meanwhile goes now."""
        manifest = self._store.objects.get(key)
        if manifest is None or "deletionTimestamp" not in manifest["metadata"] or self._contents(key):
            return
        metadata = manifest["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if _FOREGROUND in finalizers:
            if blocking := self._blocking(metadata["uid"]):
                # The last of these to go releases this object.
                for child in blocking:
                    self._let_go(child, metadata["uid"], "Foreground")
                return
            finalizers.remove(_FOREGROUND)
            kept = {name: value for name, value in metadata.items() if name != "finalizers"}
            manifest = manifest | {"metadata": kept | ({"finalizers": finalizers} if finalizers else {})}
        if not finalizers and not has_grace(manifest):
            self.end(key, manifest)
        elif finalizers != metadata["finalizers"]:
            self._store.put(key, manifest)

    def _blocking(self, uid: str) -> list[Key]:
        """The objects that block their owner's deletion."""
        return [
            child
            for child in self._store.owned_by(uid)
            for owner in self._store.objects[child]["metadata"]["ownerReferences"]
            if owner["uid"] == uid and owner.get("blockOwnerDeletion")
        ]


def has_grace(manifest: Manifest) -> bool:
    """Whether an object that is being deleted still has time to end."""
    return bool(manifest["metadata"].get("deletionGracePeriodSeconds"))


def _grace_s(key: Key, manifest: Manifest, asked: int | None) -> int:
    """The grace period of an object in seconds. Once it is being deleted that can only become shorter."""
    current_s: int | None = manifest["metadata"].get("deletionGracePeriodSeconds")
    if current_s is not None:
        return min(current_s, current_s if asked is None else asked)
    spec, phase = manifest.get("spec", {}), manifest.get("status", {}).get("phase")
    if key[:2] != _PODS or not spec.get("nodeName") or phase in _OVER:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", _GRACE_S) if asked is None else asked)


def _marked(key: Key, manifest: Manifest, grace_s: int) -> Manifest:
    """An object marked as being deleted, with its grace period."""
    was_going = "deletionTimestamp" in manifest["metadata"]
    if was_going and manifest["metadata"]["deletionGracePeriodSeconds"] == grace_s:
        return manifest
    ends_at = now() + timedelta(seconds=grace_s)
    metadata = manifest["metadata"] | {
        "deletionTimestamp": time_text(ends_at),
        "deletionGracePeriodSeconds": grace_s,
    }
    if "generation" in metadata and not was_going:
        metadata["generation"] += 1
    terminating = {"status": manifest.get("status", {}) | {"phase": "Terminating"}} if key[:3] == _NAMESPACES else {}
    return manifest | terminating | {"metadata": metadata}
