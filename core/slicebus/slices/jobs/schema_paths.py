"""Checks whether the paths of a declaration are in the schema of its kind."""

from collections.abc import Iterator, Mapping
from typing import Any

from slicebus.slices.jobs.declaration import Declaration, DeclaredPath
from slicebus.slices.jobs.paths import Path, text_of

Schema = dict[str, Any]

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_METADATA, _DROPPED = "metadata", {"type": "object"}
"""A template's metadata as generators write it by default: the API server keeps none of its fields."""
_OPEN_WORDS = ("x-kubernetes-preserve-unknown-fields", "additionalProperties")


def misfits(declaration: Declaration, schema: Schema, components: Mapping[str, Schema]) -> list[str]:
    """The paths that lead nowhere, or to a value of another type, as clauses; empty where the schema has all of them.

    `schema` is that of the kind, as OpenAPI v3, and its references are in `components`. Where it says nothing of the
    fields of an object, they may be there. A template whose schema has no scheduling gates, or no labels, is one of
    them: the API server would drop these.
    """
    wrong = [text for path in declaration.paths() for text in _misfits(path, schema, components)]
    return wrong or [text for path in declaration.needed_of_pods() for text in _misfits(path, schema, components)]


def _misfits(declared: DeclaredPath, schema: Schema, components: Mapping[str, Schema]) -> Iterator[str]:
    begin, above = schema, ""
    if declared.entries is not None:
        above = f"{text_of(declared.entries)}[]."
        entries = _schema_at(schema, declared.entries, components)
        if entries is None:
            yield f"{declared.field} is in a list that the schema has not: {text_of(declared.entries)}"
            return
        if "items" not in entries and not _is_open(entries):
            yield f"{declared.field} is in no list: {text_of(declared.entries)} is {_type(entries)}"
            return
        begin = _resolved(entries.get("items", _OPEN), components)
    target = _schema_at(begin, declared.path, components)
    if target is None:
        yield f"{declared.field}: the schema has no {above}{text_of(declared.path)}"
    elif declared.type and _type(target) not in ("", declared.type):
        yield f"{declared.field}: {above}{text_of(declared.path)} is {_type(target)}, and not {declared.type}"


def _schema_at(schema: Schema, path: Path, components: Mapping[str, Schema]) -> Schema | None:
    """The schema at a path; None where there is none."""
    current, is_metadata = schema, False
    for name in path:
        properties = current.get("properties", {})
        if name in properties:
            current, is_metadata = _resolved(properties[name], components), name == _METADATA
        elif _is_open(current) and not (is_metadata and current == _DROPPED):
            return _OPEN
        else:
            return None
    return current


def _is_open(schema: Schema) -> bool:
    """Whether fields may be there that the schema does not name."""
    says_nothing = "properties" not in schema and _type(schema) in ("", "object")
    return says_nothing or any(schema.get(word) for word in _OPEN_WORDS)


def _resolved(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    """A schema, or what it refers to. Kubernetes wraps a reference that has a default in an `allOf` of one."""
    wrapped = schema.get("allOf")
    referring = wrapped[0] if isinstance(wrapped, list) and len(wrapped) == 1 else schema
    name = str(referring.get("$ref", "")).rpartition("/")[2]
    return components.get(name, {}) if name else schema


def _type(schema: Schema) -> str:
    type = schema.get("type", "")
    return type if isinstance(type, str) else ""
