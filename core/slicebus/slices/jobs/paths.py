"""Values in manifests by paths: the names of the fields that lead to them."""

from typing import Any

Manifest = dict[str, Any]
Path = tuple[str, ...]


def value_at(manifest: object, path: Path) -> Any:
    """The value at a path; None where there is none."""
    found = manifest
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def with_value(manifest: Manifest, path: Path, value: object) -> Manifest:
    """A copy with a value at a path. What is on the way and no object becomes one."""
    name, rest = path[0], path[1:]
    inner = manifest.get(name)
    below = with_value(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return manifest | {name: below}


def without_value(manifest: Manifest, path: Path) -> Manifest:
    """A copy without the value at a path."""
    name, rest = path[0], path[1:]
    if rest:
        inner = manifest.get(name)
        return manifest | {name: without_value(inner, rest)} if isinstance(inner, dict) else manifest
    return {field: value for field, value in manifest.items() if field != name}


def merge_patch(path: Path, value: object) -> Manifest:
    """The JSON merge patch (RFC 7396) that sets one value."""
    for name in reversed(path):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def text_of(path: Path) -> str:
    """As people write it: `spec.suspend`."""
    return ".".join(path)
