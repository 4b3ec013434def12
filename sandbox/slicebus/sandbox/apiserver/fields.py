"""Paths to the fields of an object, as `metadata.managedFields` writes them.

A step is `f:NAME` for a field, `k:{"KEY":VALUE}` for an entry of a list that is merged by keys, `v:VALUE` for an entry
of a list that is a set. Other lists, like scalars, are one field.
"""

from collections.abc import Callable, Container, Iterator
from typing import Any

import orjson

Manifest = dict[str, Any]
Path = tuple[str, ...]
ListKeys = Callable[[Path], tuple[str, ...] | None]
"""The keys of the list at the end of a path: none for a set; None for a list that is replaced whole."""
_FIELD, _KEYS, _VALUE = "f:", "k:", "v:"


def leaves(value: Any, keys: ListKeys, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field that has no fields of its own, with its value."""
    below = steps(value, keys, path)
    if not below:
        yield path, value
    for step, inner in below.items():
        if step.startswith(_VALUE) or not isinstance(inner, (dict, list)):
            yield (*path, step), inner
        else:
            yield from leaves(inner, keys, (*path, step))


def differences(old: Any, new: Any, keys: ListKeys, path: Path = ()) -> tuple[set[Path], set[Path]]:
    """The removed fields, and the new or changed ones. Equal parts are skipped."""
    before, after = steps(old, keys, path), steps(new, keys, path)
    if not before or not after:
        had, has = dict(leaves(old, keys, path)), dict(leaves(new, keys, path))
        other = {field for field, value in has.items() if field not in had or had[field] != value}
        return had.keys() - has.keys(), other
    gone = {field for step in before.keys() - after.keys() for field in _fields(before[step], keys, (*path, step))}
    other = {field for step in after.keys() - before.keys() for field in _fields(after[step], keys, (*path, step))}
    for step in before.keys() & after.keys():
        if before[step] != after[step]:
            gone_below, other_below = differences(before[step], after[step], keys, (*path, step))
            gone |= gone_below
            other |= other_below
    return gone, other


def _fields(value: Any, keys: ListKeys, path: Path) -> Iterator[Path]:
    """Every field below a step; an entry of a set is one."""
    if path[-1].startswith(_VALUE):
        yield path
    else:
        yield from (field for field, _ in leaves(value, keys, path))


def steps(value: Any, keys: ListKeys, path: Path) -> dict[str, Any]:
    """The values directly below a path, by their last step; none below a field that is replaced whole."""
    if isinstance(value, dict):
        return {_FIELD + name: inner for name, inner in value.items()}
    if isinstance(value, list):
        by = keys(path)
        if by == ():
            return {_VALUE + orjson.dumps(entry).decode(): entry for entry in value}
        if by and all(isinstance(entry, dict) and entry.keys() >= set(by) for entry in value):
            return {_KEYS + orjson.dumps({key: entry[key] for key in by}).decode(): entry for entry in value}
    return {}


def dropped(value: Any, keys: ListKeys, gone: Path, *, kept: Container[Path], path: Path = ()) -> Any:
    """The value without one field; parents that become empty go too, unless they are to be kept. None for nothing.

    The key of an entry goes with the last of its other fields: drop those first.
    """
    below = steps(value, keys, path)
    step, *rest = gone
    if step not in below or (not rest and is_key((*path, step)) and len(below) > 1):
        return value
    here = (*path, step)
    left = dropped(below[step], keys, tuple(rest), kept=kept, path=here) if rest else None
    if left is None:
        del below[step]
    else:
        below[step] = left
    if not below and path not in kept:
        return None
    if isinstance(value, dict):
        return {name.removeprefix(_FIELD): inner for name, inner in below.items()}
    return list(below.values())


def is_key(path: Path) -> bool:
    """Whether a path ends at a key of a list's entry."""
    if len(path) < 2 or not path[-2].startswith(_KEYS):
        return False
    return path[-1].removeprefix(_FIELD) in orjson.loads(path[-2].removeprefix(_KEYS))


def merged(old: Any, new: Any, keys: ListKeys, path: Path = ()) -> Any:
    """The old value, merged with the new one."""
    if isinstance(old, dict) and isinstance(new, dict):
        done = dict(old)
        for name, inner in new.items():
            done[name] = merged(done.get(name), inner, keys, (*path, _FIELD + name))
        return done
    if isinstance(old, list) and isinstance(new, list):
        before, after = steps(old, keys, path), steps(new, keys, path)
        if (before or not old) and (after or not new):
            done = before | {
                step: merged(before.get(step), inner, keys, (*path, step)) for step, inner in after.items()
            }
            return list(done.values())
    return new


def to_wire(paths: set[Path]) -> Manifest:
    """The `fieldsV1` of paths."""
    fields: Manifest = {}
    for path in sorted(paths):
        inner = fields
        for step in path:
            inner = inner.setdefault(step, {})
    return fields


def from_wire(fields: Manifest, path: Path = ()) -> set[Path]:
    """The paths of a `fieldsV1`."""
    if not fields:
        return {path}
    return {found for step, inner in fields.items() for found in from_wire(inner, (*path, step))}


def names(path: Path) -> Path:
    """The names of the fields along a path."""
    return tuple(step.removeprefix(_FIELD) for step in path if step.startswith(_FIELD))


def to_text(path: Path) -> str:
    """A path in the form of the server's messages: `.spec.parts[name="x"].weight`."""
    text = ""
    for step in path:
        if step.startswith(_FIELD):
            text += f".{step.removeprefix(_FIELD)}"
        elif step.startswith(_KEYS):
            found = orjson.loads(step.removeprefix(_KEYS))
            text += f"[{','.join(f'{key}={orjson.dumps(value).decode()}' for key, value in found.items())}]"
        else:
            text += f"[={step.removeprefix(_VALUE)}]"
    return text
