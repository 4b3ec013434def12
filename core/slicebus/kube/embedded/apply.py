"""Server-side apply: who owns which fields, and what an applier's manifest makes of an object.

Ownership is by path, kept in `metadata.managedFields` as the real server does. Lists are owned whole, except where
strategic merge knows their keys: those are merged entry by entry.
"""

from collections.abc import Iterator
from typing import Any

from slicebus.kube.embedded.patches import strategic_patch
from slicebus.kube.embedded.status import Refusal

Manifest = dict[str, Any]
Path = tuple[str, ...]

_UNOWNED = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))


def applied(old: Manifest, manifest: Manifest, *, manager: str, subresource: str, force: bool) -> Manifest:
    """The object after an apply. Raises Refusal 409 for fields that another manager owns, unless forced."""
    entries = old["metadata"].get("managedFields") or []
    mine = {path: value for path, value in _leaves(manifest) if path not in _UNOWNED and "managedFields" not in path}
    owners = {_identity(entry): _paths(entry["fieldsV1"]) for entry in entries}
    me = (manager, subresource)
    disputed = [
        (owner, path)
        for owner, paths in owners.items()
        if owner != me
        for path in paths & mine.keys()
        if _value(old, path) != mine[path]
    ]
    if disputed and not force:
        owner, path = disputed[0]
        count = "conflict" if len(disputed) == 1 else "conflicts"
        raise Refusal(409, f'Apply failed with {len(disputed)} {count}: conflict with "{owner[0]}": .{".".join(path)}')
    elsewhere = {path for owner, paths in owners.items() if owner != me for path in paths}
    merged: Manifest = strategic_patch(old, manifest)
    for path in owners.get(me, set()) - mine.keys() - elsewhere:
        _drop(merged, path)
    lost = {path for _, path in disputed}
    owners = {owner: paths - lost for owner, paths in owners.items() if owner != me} | {me: set(mine)}
    fields = [_entry(owner, paths) for owner, paths in owners.items() if paths]
    return merged | {"metadata": merged["metadata"] | {"managedFields": fields}}


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
    else:
        yield path, value


def _value(manifest: Any, path: Path) -> Any:
    for name in path:
        manifest = manifest.get(name) if isinstance(manifest, dict) else None
    return manifest


def _drop(manifest: Manifest, path: Path) -> None:
    *parents, last = path
    for name in parents:
        inner = manifest.get(name)
        if not isinstance(inner, dict):
            return
        manifest[name] = manifest = dict(inner)
    manifest.pop(last, None)


def _identity(entry: Manifest) -> tuple[str, str]:
    return entry["manager"], entry.get("subresource", "")


def _entry(owner: tuple[str, str], paths: set[Path]) -> Manifest:
    fields: Manifest = {}
    for path in sorted(paths):
        inner = fields
        for name in path:
            inner = inner.setdefault(f"f:{name}", {})
    entry = {"manager": owner[0], "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return entry | ({"subresource": owner[1]} if owner[1] else {})


def _paths(fields: Manifest, path: Path = ()) -> set[Path]:
    if not fields:
        return {path}
    found: set[Path] = set()
    for name, inner in fields.items():
        found |= _paths(inner, (*path, name.removeprefix("f:")))
    return found
