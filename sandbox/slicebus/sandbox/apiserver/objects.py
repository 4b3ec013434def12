"""The verbs on objects: create, update, delete."""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from slicebus.ambient.clock import random_bytes
from slicebus.kube.resources import CRDS, NAMESPACES, PODS
from slicebus.kube.times import now_text
from slicebus.sandbox.apiserver import metadata as metadata_rules
from slicebus.sandbox.apiserver import pod_admission, schema
from slicebus.sandbox.apiserver.garbage import Garbage, has_grace
from slicebus.sandbox.apiserver.kinds import Served, problems_of, with_defaults
from slicebus.sandbox.apiserver.status import ApiError, already_exists, conflict, invalid, not_found
from slicebus.sandbox.apiserver.store import ObjectStore, key_of

Manifest = dict[str, Any]

_SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "uid",
)


class Write(msgspec.Struct, frozen=True):
    """The options of a write."""

    subresource: str = ""
    is_patch: bool = False
    dry_run: bool = False
    strict: bool = False
    """Refuse fields that the schema does not know, instead of dropping them."""


class Objects:
    """Carries out writes on the store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._garbage = Garbage(store)

    def create(self, served: Served, namespace: str, manifest: Manifest, write: Write) -> Manifest:
        """Create an object. Its status is dropped where that is a subresource."""
        metadata = dict(manifest.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise ApiError(500, "resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata_rules.generated_name(metadata["generateName"])
        self._check_place(served, namespace, metadata)
        assigned: Manifest = {"uid": str(uuid.UUID(bytes=random_bytes(16), version=4)), "creationTimestamp": now_text()}
        assigned |= {"generation": 1} if served.has_generation else {}
        assigned |= {"namespace": namespace} if served.resource.namespaced else {}
        kept = {name: value for name, value in metadata.items() if name not in (*_SERVER_METADATA, "resourceVersion")}
        keeps_status = served.keeps_status or not served.has_status
        body = {name: value for name, value in manifest.items() if name != "status" or keeps_status}
        body["metadata"] = {"name": ""} | kept | assigned
        if served.resource == PODS:
            body = pod_admission.admitted(body, namespace, self._store.objects)
        new = self._completed(served, None, body, write)
        key = key_of(served, namespace, new["metadata"]["name"])
        if key in self._store.objects:
            raise already_exists(served.resource, new["metadata"]["name"])
        if write.dry_run:
            return new
        stored = self._store.put(key, new)
        self._garbage.collect_if_ownerless(key)
        if key[:2] == (CRDS.group, CRDS.plural):
            self._garbage.collect_all_ownerless()
        return stored

    def update(
        self, served: Served, namespace: str, name: str, change: Callable[[Manifest], Manifest], write: Write
    ) -> Manifest:
        """Update an object; `change` returns the new state and leaves the old one as it is.

        A resourceVersion or UID in it has to be the present one.
        """
        key, old = key_of(served, namespace, name), self._store.get(served, namespace, name)
        changed = change(old)
        self._check_identity(served, old, changed, write)
        merged = _merged(served, old, changed, subresource=write.subresource)
        new = self._completed(served, old, merged, write)
        if served.has_generation:
            new["metadata"]["generation"] = old["metadata"]["generation"] + _is_other(served, old, new)
        new["metadata"] = metadata_rules.tidied(new["metadata"])
        if old == new or write.dry_run:
            return new
        is_held = new["metadata"].get("finalizers") or has_grace(new)
        if "deletionTimestamp" in new["metadata"] and not is_held:
            return self._garbage.end(key, new)
        stored = self._store.put(key, new)
        self._garbage.collect_if_ownerless(key)
        return stored

    def delete(self, served: Served, namespace: str, name: str, options: Manifest) -> Manifest:
        """Mark an object for deletion. Without finalizers it goes at once, and then the objects that it owns."""
        old = self._store.get(served, namespace, name)
        _check_preconditions(served, old, options.get("preconditions") or {})
        key, propagation = key_of(served, namespace, name), options.get("propagationPolicy") or "Background"
        return self._garbage.delete(key, propagation, grace_s=options.get("gracePeriodSeconds"))

    def _check_place(self, served: Served, namespace: str, metadata: Manifest) -> None:
        resource = served.resource
        definition = self._store.objects.get((CRDS.group, CRDS.plural, "", f"{resource.plural}.{resource.group}"))
        if definition is not None and "deletionTimestamp" in definition["metadata"]:
            named = f'{resource.plural}.{resource.group} "{metadata.get("name", "")}"'
            detail = "create not allowed while custom resource definition is terminating"
            raise ApiError(403, f"{named} is forbidden: {detail}")
        if not served.resource.namespaced:
            return
        if metadata.get("namespace") not in (None, "", namespace):
            raise ApiError(400, "the namespace of the provided object does not match the namespace sent on the request")
        space = self._store.objects.get(("", NAMESPACES.plural, "", namespace))
        if space is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in space["metadata"]:
            detail = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise ApiError(403, f'{served.resource.plural} "{metadata.get("name", "")}" is forbidden: {detail}')

    def _check_identity(self, served: Served, old: Manifest, changed: Manifest, write: Write) -> None:
        """Refuse a write for another UID or version of the object."""
        resource, present, asked = served.resource, old["metadata"], changed.get("metadata") or {}
        name = present["name"]
        if asked.get("name") != name:
            detail = f"the name of the object ({asked.get('name')}) does not match the name on the URL ({name})"
            raise ApiError(400, detail)
        if asked.get("uid") not in (None, "", present["uid"]):
            if write.is_patch:
                raise invalid(resource, name, f'metadata.uid: Invalid value: "{asked["uid"]}": field is immutable')
            detail = f"UID in precondition: {asked['uid']}, UID in object meta: {present['uid']}"
            raise conflict(resource, name, f"Precondition failed: {detail}")
        version = asked.get("resourceVersion")
        if not version and not served.unconditional and not write.is_patch:
            raise invalid(resource, name, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")
        if version not in (None, "", present["resourceVersion"]):
            raise conflict(resource, name)

    def _completed(self, served: Served, old: Manifest | None, manifest: Manifest, write: Write) -> Manifest:
        """The valid object to store. Raises ApiError."""
        resource = served.resource
        named = manifest | {"apiVersion": resource.api_version, "kind": resource.kind}
        if write.strict and served.schema is not None:
            unknown = [f'unknown field "{path}"' for path in schema.unknown(named, served.schema)]
            if unknown:
                handled = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
                raise ApiError(400, f"{handled}: strict decoding error: {', '.join(unknown)}")
        named["metadata"] = metadata_rules.tidied(named["metadata"])
        new = with_defaults(served, old, named)
        problems = problems_of(served, old, new)
        if old is not None and "deletionTimestamp" in new["metadata"]:
            problems += _finalizer_problems(old, new)
        if problems:
            raise invalid(resource, new["metadata"]["name"], *problems)
        return new


def _merged(served: Served, old: Manifest, changed: Manifest, *, subresource: str) -> Manifest:
    """The part of the change that this request may make: the status through its subresource, the rest without."""
    if subresource == "status":
        kept = _without(old, "status") | ({"status": changed["status"]} if changed.get("status") is not None else {})
        return kept | {"metadata": dict(old["metadata"])}
    present = old["metadata"]
    metadata = _without(changed["metadata"], *_SERVER_METADATA, "resourceVersion", "namespace")
    metadata |= {
        field: present[field] for field in (*_SERVER_METADATA, "resourceVersion", "namespace") if field in present
    }
    if not served.has_status:
        return changed | {"metadata": metadata}
    body = _without(changed, "status") | ({"status": old["status"]} if "status" in old else {})
    return body | {"metadata": metadata}


def _is_other(served: Served, old: Manifest, new: Manifest) -> bool:
    """Whether the difference of two states raises the generation."""
    apart = ("metadata", "status") if served.has_status else ("metadata",)
    return _without(old, *apart) != _without(new, *apart)


def _finalizer_problems(old: Manifest, new: Manifest) -> list[str]:
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if not added:
        return []
    detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [f"metadata.finalizers: Forbidden: {detail} {sorted(added)}"]


def _check_preconditions(served: Served, old: Manifest, preconditions: Manifest) -> None:
    for field, name in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        required, present = preconditions.get(field), old["metadata"][field]
        if required not in (None, present):
            detail = f"the {name} in the precondition ({required}) does not match the {name} in record ({present})"
            raise conflict(served.resource, old["metadata"]["name"], detail)


def _without(manifest: Manifest, *names: str) -> Manifest:
    return {name: value for name, value in manifest.items() if name not in names}
