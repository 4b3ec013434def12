"""Types what comes from outside before a decision sees it: finds what has not its shape, and leaves it out."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

Manifest = dict[str, Any]

_UNREAD: Any = object()


def misfit(value: object, shape: type[msgspec.Struct]) -> str:
    """Why a value has not a shape, with the path of the first field; empty where it has it."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def fitted(value: Any, shape: type[msgspec.Struct]) -> Any:
    """The value as it has a shape: itself, or a copy without what has the wrong type.

    An optional field of another type is left out. A required one, and an entry of a list, is empty instead, so that
    every other entry keeps its place.
    """
    if not misfit(value, shape):
        return value
    kept = _fitted(value, _info(shape))
    return _empty(_info(shape)) if kept is _UNREAD else kept


def fitted_job(manifest: Manifest, spec: type[msgspec.Struct], status: type[msgspec.Struct]) -> Manifest:
    """A job whose spec and status have these shapes; the same where they have them. A job without a spec gets an empty
    one, as some definitions require none."""
    parts = {"spec": fitted(manifest.get("spec"), spec)}
    if "status" in manifest:
        parts["status"] = fitted(manifest["status"], status)
    return manifest if all(manifest.get(name) is part for name, part in parts.items()) else manifest | parts


@cache
def _info(shape: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(shape)


def _fitted(value: Any, info: inspect.Type) -> Any:
    """The value as it has a type; `_UNREAD` for one of which nothing can be kept."""
    match info:
        case inspect.AnyType():
            return value
        case inspect.StructType():
            return _fitted_struct(value, info) if isinstance(value, dict) else _UNREAD
        case inspect.ListType(item_type=item):
            if not isinstance(value, list):
                return _UNREAD
            entries = (_fitted(entry, item) for entry in value)
            return [_empty(item) if entry is _UNREAD else entry for entry in entries]
        case inspect.DictType(value_type=inner):
            if not isinstance(value, dict):
                return _UNREAD
            entries = ((name, _fitted(entry, inner)) for name, entry in value.items() if isinstance(name, str))
            return {name: entry for name, entry in entries if entry is not _UNREAD}
        case inspect.UnionType(types=types):
            kept = (_fitted(value, one) for one in types)
            return next((entry for entry in kept if entry is not _UNREAD), _UNREAD)
        case inspect.Type():
            return value if _is_scalar(value, info) else _UNREAD


def _fitted_struct(value: Manifest, info: inspect.StructType) -> Manifest:
    kept = {name: entry for name, entry in value.items() if isinstance(name, str)}
    for field in info.fields:
        name = field.encode_name
        if name in kept and (entry := _fitted(kept[name], field.type)) is not _UNREAD:
            kept[name] = entry
        else:
            kept.pop(name, None)
            if field.required:
                kept[name] = _empty(field.type)
    return kept


def _is_scalar(value: Any, info: inspect.Type) -> bool:
    if isinstance(info, inspect.IntType):
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return is_number and (info.ge is None or value >= info.ge) and (info.le is None or value <= info.le)
    if isinstance(info, inspect.FloatType):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[type(info)])


_TYPES: Mapping[type, type] = {inspect.StrType: str, inspect.BoolType: bool, inspect.NoneType: type(None)}
_EMPTY: Mapping[type, Any] = {inspect.StrType: "", inspect.IntType: 0, inspect.BoolType: False, inspect.FloatType: 0.0}


def _empty(info: inspect.Type) -> Any:
    match info:
        case inspect.StructType():
            return _fitted_struct({}, info)
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.UnionType(types=types):
            return None if any(isinstance(one, inspect.NoneType) for one in types) else _empty(types[0])
        case _:
            return _EMPTY.get(type(info))
