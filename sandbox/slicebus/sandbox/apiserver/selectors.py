"""Parses label and field selectors."""

from collections.abc import Callable
from typing import Any

from slicebus.sandbox.apiserver.status import ApiError
from slicebus.slices.api.selectors import parse_selector, selects

Manifest = dict[str, Any]
Matcher = Callable[[Manifest], bool]

_METADATA = ("metadata.name", "metadata.namespace")


def label_matcher(selector: str | None) -> Matcher:
    """Matches `a=b`, `a!=b`, `a>1`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`, joined by commas. Raises ApiError 400."""
    try:
        wanted = parse_selector(selector or "")
    except ValueError as error:
        raise ApiError(400, str(error)) from error
    return lambda manifest: selects(wanted, manifest["metadata"].get("labels") or {})


def field_matcher(selector: str | None, fields: tuple[str, ...]) -> Matcher:
    """Matches `path=value` and `path!=value`, joined by commas, for these fields. Raises ApiError 400 for others."""
    known = (*_METADATA, *fields)
    requirements = [_field(part.strip(), known) for part in (selector or "").split(",") if part.strip()]
    return lambda manifest: all(requirement(manifest) for requirement in requirements)


def _field(text: str, known: tuple[str, ...]) -> Matcher:
    negated = "!=" in text
    path, _, value = text.partition("!=") if negated else text.replace("==", "=").partition("=")
    if path not in known:
        raise ApiError(400, f"field label not supported: {path}")
    return lambda manifest: (_at(manifest, path) == value) is not negated


def _at(manifest: Manifest, path: str) -> str:
    value: Any = manifest
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
