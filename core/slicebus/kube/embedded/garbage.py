"""What goes, and what goes with it: finalizers, owners, and the contents of namespaces and definitions.

The real server leaves this to controllers; here it has happened when the request is answered.
"""

from typing import Any

from slicebus.kube.embedded.store import Key, Store, owner_uids
from slicebus.kube.resources import CRDS, NAMESPACES
from slicebus.kube.times import now_text

Manifest = dict[str, Any]

_FOREGROUND = "foregroundDeletion"
_NAMESPACES = (NAMESPACES.group, NAMESPACES.plural, "")
_CRDS = (CRDS.group, CRDS.plural, "")


class Garbage:
    """Takes objects out of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def delete(self, key: Key, propagation: str = "Background") -> Manifest:
        """Mark an object for deletion. It goes when nothing holds it; the answer is its last state, or its present."""
        old = self._store.objects[key]
        uid, finalizers = old["metadata"]["uid"], list(old["metadata"].get("finalizers") or ())
        if propagation == "Orphan":
            self._orphan(uid)
        if propagation == "Foreground" and self._store.owned_by(uid) and _FOREGROUND not in finalizers:
            finalizers.append(_FOREGROUND)
        if not finalizers and not self._contents(key):
            return self.end(key)
        marked = old if "deletionTimestamp" in old["metadata"] else _marked(key, old)
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
        """Take an object out, then what only it owned, and what waited for it."""
        last = self._store.remove(key, last)
        for child in self._store.owned_by(last["metadata"]["uid"]):
            self._let_go(child, last["metadata"]["uid"])
        for waiting in self._waiting_for(key, last):
            self._release(waiting)
        return last

    def collect_if_ownerless(self, key: Key) -> None:
        """Delete an object that names owners, none of which is there."""
        manifest = self._store.objects[key]
        owners = manifest["metadata"].get("ownerReferences") or ()
        if owners and all(self._is_gone(owner) for owner in owners):
            self.delete(key)

    def _let_go(self, child: Key, uid: str, propagation: str = "Background") -> None:
        """Delete what an object owned, unless somebody else owns it too."""
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
        """Whether an owner is not there. Of a kind that is not served nobody knows."""
        group, _, _ = owner["apiVersion"].rpartition("/")
        known = any((s.resource.group, s.resource.kind) == (group, owner["kind"]) for s in self._store.all_served())
        return known and self._store.key_of_uid(owner["uid"]) is None

    def _contents(self, key: Key) -> list[Key]:
        """What a namespace or a definition cannot go before."""
        if key[:3] == _NAMESPACES:
            return [inside for inside in self._store.objects if inside[2] == key[3]]
        if key[:3] == _CRDS:
            plural, _, group = key[3].partition(".")
            return [inside for inside in self._store.objects if inside[:2] == (group, plural)]
        return []

    def _waiting_for(self, key: Key, last: Manifest) -> list[Key]:
        """What may go now that an object has gone: its namespace, its definition, its owners."""
        owners = map(self._store.key_of_uid, sorted(owner_uids(last)))
        return [(*_CRDS, f"{key[1]}.{key[0]}"), (*_NAMESPACES, key[2]), *(owner for owner in owners if owner)]

    def _release(self, key: Key) -> None:
        """Let go of an object that waited, once nothing is left that it waited for."""
        manifest = self._store.objects.get(key)
        if manifest is None or "deletionTimestamp" not in manifest["metadata"] or self._contents(key):
            return
        metadata = manifest["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if _FOREGROUND in finalizers and not self._blocked(metadata["uid"]):
            finalizers.remove(_FOREGROUND)
            kept = {name: value for name, value in metadata.items() if name != "finalizers"}
            manifest = manifest | {"metadata": kept | ({"finalizers": finalizers} if finalizers else {})}
        if not finalizers:
            self.end(key, manifest)
        elif finalizers != metadata["finalizers"]:
            self._store.put(key, manifest)

    def _blocked(self, uid: str) -> bool:
        """Whether an object that blocks its owner's deletion is left."""
        return any(
            owner["uid"] == uid and owner.get("blockOwnerDeletion")
            for child in self._store.owned_by(uid)
            for owner in self._store.objects[child]["metadata"]["ownerReferences"]
        )


def _marked(key: Key, manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"] | {"deletionTimestamp": now_text(), "deletionGracePeriodSeconds": 0}
    if "generation" in metadata:
        metadata["generation"] += 1
    terminating = {"status": manifest.get("status", {}) | {"phase": "Terminating"}} if key[:3] == _NAMESPACES else {}
    return manifest | terminating | {"metadata": metadata}
