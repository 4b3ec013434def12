"""The three patch formats, on plain objects. No function changes its arguments; a result may share parts of them."""

from collections.abc import Callable
from typing import Any

import jsonpatch

from slicebus.sandbox.apiserver.status import ApiError

Manifest = dict[str, Any]

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "schedulingGates": "name",
    "imagePullSecrets": "name",
}
"""Lists of built-in kinds that a strategic merge patch merges, with the field that identifies their entries."""
_MERGED_SETS = ("finalizers",)
"""Lists of built-in kinds that are sets."""
_DIRECTIVE = "$patch"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def change_of(content_type: str, body: Any, *, custom: bool) -> Callable[[Manifest], Manifest]:
    """A function that returns the object after a patch. Raises ApiError 415 for a format that does not exist, or not
    for the kind."""
    match content_type:
        case "application/json-patch+json":
            return lambda old: json_patch(old, body)
        case "application/merge-patch+json":
            return lambda old: dict(merge_patch(old, body))
        case "application/strategic-merge-patch+json" if not custom:
            return lambda old: dict(strategic_patch(old, body))
    raise ApiError(415, f"the body of the request was in an unknown format: {content_type}")


def merge_patch(target: Any, patch: Any) -> Any:
    """The object after a JSON merge patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Manifest, operations: Any) -> Manifest:
    """The object after a JSON patch, RFC 6902. A test that fails, or a missing path, refuses the whole patch.

    As in Kubernetes, `replace` also adds a field that an object lacks: Ray's autoscaler relies on it.
    """
    try:
        patched: Manifest = jsonpatch.JsonPatch([_as_kubernetes(operation) for operation in operations]).apply(target)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise ApiError(422, f"the server rejected our request due to an error in our request: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise ApiError(400, f"not a JSON patch: {error}") from error
    return patched


def _as_kubernetes(operation: Manifest) -> Manifest:
    """An operation as Kubernetes reads it: only an object has a field whose name is no number."""
    replaces_field = operation.get("op") == "replace" and not operation["path"].rpartition("/")[2].isdigit()
    return operation | {"op": "add"} if replaces_field and operation["path"] else operation


def strategic_patch(target: Any, patch: Any, *, field: str = "") -> Any:
    """The object after Kubernetes' strategic merge patch. It merges the lists that `_MERGE_KEYS` names; other lists are
    replaced."""
    if isinstance(patch, dict):
        return _strategic_object(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list) and isinstance(target, list):
        if field in _MERGE_KEYS:
            return _strategic_list(target, patch, key=_MERGE_KEYS[field])
        if field in _MERGED_SETS:
            return target + [value for value in patch if value not in target]
    return patch


def _strategic_object(target: Manifest, patch: Manifest) -> Manifest:
    if patch.get(_DIRECTIVE) == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    merged = dict(target)
    for name, value in patch.items():
        if name.startswith(_DELETE_PRIMITIVES):
            plain = name.removeprefix(_DELETE_PRIMITIVES)
            merged[plain] = [entry for entry in merged.get(plain, ()) if entry not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = strategic_patch(merged.get(name), value, field=name)
    return merged


def _strategic_list(target: list[Any], patch: list[Any], *, key: str) -> list[Any]:
    merged = {entry.get(key): entry for entry in target}
    for entry in patch:
        if entry.get(_DIRECTIVE) == "delete":
            merged.pop(entry.get(key), None)
        else:
            merged[entry.get(key)] = _strategic_object(merged.get(entry.get(key), {}), entry)
    return list(merged.values())
