"""Applies the structural schemas of custom resources: defaults, pruning, validation."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_ALWAYS = ("apiVersion", "kind", "metadata")
_NEW = object()
"""In place of a missing old value."""


def completed(value: Any, schema: Schema, old: Any = _NEW, *, root: bool = True) -> Any:
    """The value with defaults filled in and without fields that the schema does not know.

    Parts that are identical to the old value are skipped: they were completed when they were stored.
    """
    if value is old:
        return value
    if isinstance(value, dict):
        return _completed_object(value, schema, old if isinstance(old, dict) else {}, root=root)
    if isinstance(value, list) and "items" in schema:
        return [completed(entry, schema["items"], root=False) for entry in value]
    return value


def _completed_object(value: Schema, schema: Schema, old: Schema, *, root: bool) -> Schema:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    keep = schema.get("x-kubernetes-preserve-unknown-fields") or "type" not in schema
    done: Schema = {}
    for name, entry in value.items():
        if root and name in _ALWAYS:
            done[name] = entry
        elif name in properties:
            if entry is not None or properties[name].get("nullable"):
                done[name] = completed(entry, properties[name], old.get(name, _NEW), root=False)
        elif isinstance(extra, dict):
            done[name] = completed(entry, extra, old.get(name, _NEW), root=False)
        elif keep or extra is True:
            done[name] = entry
    for name, entry in properties.items():
        if name not in done and "default" in entry:
            done[name] = completed(copy.deepcopy(entry["default"]), entry, root=False)
    return done


def unknown(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Paths of the fields that the schema does not know."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from unknown(entry, schema.get("items", {}), f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    keep = schema.get("x-kubernetes-preserve-unknown-fields") or "type" not in schema or extra is True
    for name, entry in value.items():
        inner, here = properties.get(name, extra), f"{path}.{name}".lstrip(".")
        if here in _ALWAYS:
            continue
        if isinstance(inner, dict):
            yield from unknown(entry, inner, here)
        elif not keep:
            yield here


def problems(value: Any, schema: Schema, path: str = "", old: Any = _NEW) -> Iterator[str]:
    """The violations of the schema, in the API server's words. CEL rules are not evaluated.

    Parts that are identical to the old value are skipped.
    """
    if value is old or (value is None and schema.get("nullable")):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            yield f"{path}: Invalid value: {path} in body must be an integer or a string"
    elif "type" in schema and not _is_type(value, schema["type"]):
        type_name = _type_name(value)
        yield f'{path}: Invalid value: "{type_name}": {path} in body must be of type {schema["type"]}: "{type_name}"'
        return
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(f'"{entry}"' for entry in schema["enum"])
        yield f'{path}: Unsupported value: "{value}": supported values: {allowed}'
    if isinstance(value, dict):
        yield from _object_problems(value, schema, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        yield from _list_problems(value, schema, path)
    elif isinstance(value, str):
        yield from _string_problems(value, schema, path)
    elif isinstance(value, int | float):
        yield from _number_problems(value, schema, path)


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    return next(name for name in _TYPES if _is_type(value, name))


def _is_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _object_problems(value: Schema, schema: Schema, path: str, old: Schema) -> Iterator[str]:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}".lstrip(".") + ": Required value"
    for name, entry in value.items():
        inner = properties.get(name, extra)
        if isinstance(inner, dict):
            yield from problems(entry, inner, f"{path}.{name}".lstrip("."), old.get(name, _NEW))
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: Too many: {len(value)}: must have at most {schema['maxProperties']} items"


def _list_problems(value: list[Any], schema: Schema, path: str) -> Iterator[str]:
    if len(value) > schema.get("maxItems", len(value)):
        yield f"{path}: Too many: {len(value)}: must have at most {schema['maxItems']} items"
    if len(value) < schema.get("minItems", 0):
        yield f"{path}: Invalid value: {len(value)}: {path} in body should have at least {schema['minItems']} items"
    for index, entry in enumerate(value):
        yield from problems(entry, schema.get("items", {}), f"{path}[{index}]")
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        seen = [{key: entry.get(key) for key in keys} for entry in value if isinstance(entry, dict)]
        for index, key in enumerate(seen):
            if key in seen[:index]:
                yield f"{path}[{index}]: Duplicate value: {json.dumps(key, separators=(',', ':'))}"


def _string_problems(value: str, schema: Schema, path: str) -> Iterator[str]:
    if len(value) > schema.get("maxLength", len(value)):
        yield f"{path}: Too long: may not be more than {schema['maxLength']} bytes"
    if len(value) < schema.get("minLength", 0):
        least = f"{path} in body should be at least {schema['minLength']} chars long"
        yield f'{path}: Invalid value: "{value}": {least}'
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: Invalid value: \"{value}\": {path} in body should match '{schema['pattern']}'"


def _number_problems(value: float, schema: Schema, path: str) -> Iterator[str]:
    if value < schema.get("minimum", value):
        yield f"{path}: Invalid value: {value}: {path} in body should be greater than or equal to {schema['minimum']}"
    if value > schema.get("maximum", value):
        yield f"{path}: Invalid value: {value}: {path} in body should be less than or equal to {schema['maximum']}"
