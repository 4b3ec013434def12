"""The verbs on objects: create, replace, patch, apply, delete, and what follows a delete."""

import copy
import re
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from slicebus.kube.embedded.kinds import Served, problems_of, with_defaults
from slicebus.kube.embedded.status import Refusal, conflict, invalid, not_found
from slicebus.kube.embedded.store import Key, Store, key_of
from slicebus.kube.resources import CRDS, NAMESPACES

Manifest = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SERVER_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Objects:
    """What a request does to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, served: Served, namespace: str, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """A new object. Status is dropped where it is a subresource."""
        metadata = dict(manifest.get("metadata") or {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)[:5]
        name = metadata.get("name") or ""
        self._check_new(served, namespace, name, metadata)
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now(), "generation": 1}
        metadata.pop("resourceVersion", None)
        if served.resource.namespaced:
            metadata["namespace"] = namespace
        body = {n: v for n, v in manifest.items() if n != "status" or not served.has_status}
        named = {"apiVersion": served.resource.api_version, "kind": served.resource.kind}
        complete = with_defaults(served, named | body | {"metadata": metadata})
        self._validate(served, None, complete)
        if dry_run:
            return complete
        if served.resource == CRDS:
            complete |= {"status": {"conditions": _established(), "acceptedNames": complete["spec"]["names"]}}
        if served.resource == NAMESPACES:
            complete |= {"status": {"phase": "Active"}}
        return self._store.put(key_of(served, namespace, name), complete)

    def update(
        self,
        served: Served,
        namespace: str,
        name: str,
        change: Callable[[Manifest], Manifest],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """An object in another state. A resourceVersion or UID in it has to be the present one."""
        old = self._store.get(served, namespace, name)
        changed = change(copy.deepcopy(old))
        metadata = changed.get("metadata") or {}
        if metadata.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
            raise conflict(served.resource.plural, name)
        if metadata.get("uid") not in (None, "", old["metadata"]["uid"]):
            raise conflict(served.resource.plural, name)
        new = with_defaults(served, self._merged(served, old, changed, subresource=subresource))
        self._validate(served, old, new)
        if old == new or dry_run:
            return new
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._remove(key_of(served, namespace, name))
        return self._store.put(key_of(served, namespace, name), new)

    def delete(self, served: Served, namespace: str, name: str, options: Manifest) -> Manifest:
        """Mark an object for deletion; without finalizers it goes at once, and then what it owns."""
        old = self._store.get(served, namespace, name)
        preconditions = options.get("preconditions") or {}
        for field, required in preconditions.items():
            if required != old["metadata"][field]:
                raise Refusal(409, f"Precondition failed: {field} is {old['metadata'][field]}, not {required}")
        key = key_of(served, namespace, name)
        propagation = options.get("propagationPolicy") or "Background"
        if served.resource == NAMESPACES:
            self._empty_namespace(name)
        if propagation == "Orphan":
            self._orphan(old["metadata"]["uid"])
        if propagation == "Foreground":
            self._collect(old["metadata"]["uid"])
        if not old["metadata"].get("finalizers"):
            return self._remove(key)
        if "deletionTimestamp" in old["metadata"]:
            return old
        generation = old["metadata"].get("generation", 1) + 1
        marked = {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 0, "generation": generation}
        return self._store.put(key, old | {"metadata": old["metadata"] | marked})

    def _check_new(self, served: Served, namespace: str, name: str, metadata: Manifest) -> None:
        resource = served.resource
        if not _NAME.fullmatch(name):
            raise invalid(resource.kind, name, f'metadata.name: Invalid value: "{name}": must be a DNS-1123 subdomain')
        if metadata.get("namespace") not in (None, "", namespace):
            raise Refusal(400, "the namespace of the provided object does not match the namespace sent on the request")
        if resource.namespaced:
            space = self._store.objects.get(("", NAMESPACES.plural, "", namespace))
            if space is None:
                raise not_found("namespaces", namespace)
            if "deletionTimestamp" in space["metadata"]:
                raise Refusal(403, f"namespace {namespace} is being terminated", reason="Forbidden")
        if key_of(served, namespace, name) in self._store.objects:
            raise Refusal(409, f'{resource.plural} "{name}" already exists', reason="AlreadyExists")

    def _merged(self, served: Served, old: Manifest, changed: Manifest, *, subresource: str) -> Manifest:
        """The part of the change that this request may make: the status through its subresource, the rest without."""
        if subresource == "status":
            kept = old | ({"status": changed["status"]} if "status" in changed else {})
            return kept if "status" in changed else {n: v for n, v in kept.items() if n != "status"}
        metadata = (changed.get("metadata") or {}) | {
            field: old["metadata"][field] for field in _SERVER_METADATA if field in old["metadata"]
        }
        metadata |= {"name": old["metadata"]["name"], "resourceVersion": old["metadata"]["resourceVersion"]}
        body = {n: v for n, v in changed.items() if n != "status"} if served.has_status else changed
        if served.has_status and "status" in old:
            body = body | {"status": old["status"]}
        spec_changed = _without(body, "metadata", "status") != _without(old, "metadata", "status")
        metadata["generation"] = old["metadata"].get("generation", 1) + spec_changed
        return body | {"metadata": metadata, "apiVersion": served.resource.api_version, "kind": served.resource.kind}

    def _validate(self, served: Served, old: Manifest | None, new: Manifest) -> None:
        found = problems_of(served, old, new)
        if found:
            detail = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
            raise invalid(served.resource.kind, new["metadata"]["name"], detail)

    def _remove(self, key: Key) -> Manifest:
        last = self._store.remove(key)
        self._collect(last["metadata"]["uid"])
        return last

    def _owned(self, uid: str) -> list[Key]:
        return [
            key
            for key, manifest in self._store.objects.items()
            if any(owner["uid"] == uid for owner in manifest["metadata"].get("ownerReferences") or ())
        ]

    def _collect(self, uid: str) -> None:
        """Background deletion: what the object owned goes, unless somebody else owns it too."""
        for key in self._owned(uid):
            manifest = self._store.objects.get(key)
            if manifest is None:
                continue
            uids = {other["metadata"]["uid"] for other in self._store.objects.values()}
            others = [o for o in manifest["metadata"]["ownerReferences"] if o["uid"] != uid and o["uid"] in uids]
            if not others:
                self.delete(self._served_of(key, manifest), key[2], key[3], {})

    def _orphan(self, uid: str) -> None:
        for key in self._owned(uid):
            manifest = self._store.objects[key]
            kept = [owner for owner in manifest["metadata"]["ownerReferences"] if owner["uid"] != uid]
            self._store.put(key, manifest | {"metadata": manifest["metadata"] | {"ownerReferences": kept}})

    def _empty_namespace(self, name: str) -> None:
        for key, manifest in list(self._store.objects.items()):
            if key[2] == name and key in self._store.objects:
                self.delete(self._served_of(key, manifest), key[2], key[3], {})

    def _served_of(self, key: Key, manifest: Manifest) -> Served:
        version = manifest["apiVersion"].rpartition("/")[2]
        return self._store.served(key[0], version, key[1])


def _without(manifest: Manifest, *names: str) -> Manifest:
    return {name: value for name, value in manifest.items() if name not in names}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _established() -> list[Manifest]:
    return [
        {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": _now()}
        for type, reason in (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted"))
    ]
