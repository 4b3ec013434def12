"""Checks whether another version of a schema is a minor one, by the rules of README.md.

A minor version only adds: optional fields, and types. A peer of the version before understands every other change
differently, or not at all.
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_WORDS = ("description", "title", "$schema", "$defs")
"""Keywords that do not affect validity."""
_STRUCTURE = ("$ref", "properties", "required", "items", "prefixItems", "additionalProperties")


def breaks(old: Json, new: Json) -> list[str]:
    """The changes that a peer with the old schema would not understand, in words; empty for a minor version."""
    return list(_breaks("", old, new, (old, new)))


def _breaks(path: str, old: Json, new: Json, roots: tuple[Json, Json]) -> Iterator[str]:
    old, new = _resolved(old, roots[0]), _resolved(new, roots[1])
    where = path or "the message"
    for name in sorted((old.keys() | new.keys()) - {*_WORDS, *_STRUCTURE}):
        if old.get(name) != new.get(name):
            yield f"{where}: {name} was {old.get(name)!r}, and is {new.get(name)!r}"
    yield from _fields(path, old, new, roots)
    for name in ("items", "additionalProperties"):
        before, after = old.get(name, True), new.get(name, True)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _breaks(f"{path}[]", before, after, roots)
        elif before != after:
            yield f"{where}: {name} was {before!r}, and is {after!r}"
    before, after = old.get("prefixItems", []), new.get("prefixItems", [])
    if len(after) < len(before):
        yield f"{where}: had {len(before)} places, and has {len(after)}"
    for place, (was, now) in enumerate(zip(before, after, strict=False)):
        yield from _breaks(f"{path}[{place}]", was, now, roots)


def _fields(path: str, old: Json, new: Json, roots: tuple[Json, Json]) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in before:
        if name not in after:
            yield f"{path}.{name}: is gone".lstrip(".")
        else:
            yield from _breaks(f"{path}.{name}".lstrip("."), before[name], after[name], roots)
    was, now = set(old.get("required", ())), set(new.get("required", ()))
    for name in sorted(now - was):
        yield f"{path}.{name}: is required now, and a peer may not send it".lstrip(".")
    for name in sorted((was - now) & after.keys()):
        yield f"{path}.{name}: may be missing now, and a peer requires it".lstrip(".")


def _resolved(schema: Json, root: Json) -> Json:
    """The schema that a reference within its file leads to."""
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return root["$defs"][name] if name else schema
