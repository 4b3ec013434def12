"""Reads and writes values in manifests by paths: the names of fields, and the numbers of entries of lists."""

from typing import Any

Manifest = dict[str, Any]
Path = tuple[str | int, ...]


def path_of(text: str) -> Path:
    """The path that people write as `spec.suspend`."""
    return tuple(text.split("."))


def text_of(path: Path) -> str:
    """The text that people write for a path: `spec.groups[0].replicas`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def value_at(manifest: object, path: Path) -> Any:
    """The value at a path; None where there is none."""
    value = manifest
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def with_value(manifest: Manifest, path: Path, value: object) -> Manifest:
    """A copy with a value at a path. Whatever is on the way becomes an object; lists have to have the entry."""
    changed: Manifest = _with_value(manifest, path, value)
    return changed


def _with_value(current: Any, path: Path, value: object) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [*current[:step], _with_value(current[step], rest, value), *current[step + 1 :]]
    fields = current if isinstance(current, dict) else {}
    return fields | {step: _with_value(fields.get(step), rest, value)}


def without_value(manifest: Manifest, path: Path) -> Manifest:
    """A copy without the value at a path of fields."""
    if value_at(manifest, path) is None:
        return manifest
    *above, name = path
    holder = value_at(manifest, tuple(above))
    return with_value(manifest, tuple(above), {field: value for field, value in holder.items() if field != name})


def merge_patch(path: Path, value: object) -> Manifest:
    """The JSON merge patch (RFC 7396) that sets one value at a path of fields."""
    return with_value({}, path, value)


def pointer(path: Path) -> str:
    """The JSON pointer (RFC 6901) of a path whose names have neither `/` nor `~`."""
    return "".join(f"/{step}" for step in path)


def add_operation(manifest: Manifest, path: Path, value: object) -> Manifest:
    """The operation of a JSON patch (RFC 6902) that sets a value; it makes the objects that are missing on the way."""
    at = next(length for length in range(len(path)) if length == len(path) - 1 or _lacks(manifest, path[: length + 1]))
    return {"op": "add", "path": pointer(path[: at + 1]), "value": _with_value(None, path[at + 1 :], value)}


def _lacks(manifest: Manifest, path: Path) -> bool:
    return not isinstance(value_at(manifest, path), dict | list)
