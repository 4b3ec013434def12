"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from slicebus.kube.embedded.status import Refusal

Manifest = dict[str, Any]
Matcher = Callable[[Manifest], bool]

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)")
_SEPARATOR = re.compile(r",(?![^(]*\))")
_FIELDS = ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "type", "reason")


def label_matcher(selector: str | None) -> Matcher:
    """Matches `a=b`, `a!=b`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`, joined by commas."""
    requirements = [_label(part.strip()) for part in _SEPARATOR.split(selector or "") if part.strip()]

    def matches(manifest: Manifest) -> bool:
        labels = manifest["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def field_matcher(selector: str | None) -> Matcher:
    """Matches `path=value` and `path!=value`, joined by commas, for the fields that the API server indexes."""
    requirements = [_field(part.strip()) for part in (selector or "").split(",") if part.strip()]
    return lambda manifest: all(requirement(manifest) for requirement in requirements)


def _label(text: str) -> Callable[[dict[str, str]], bool]:
    match = _SET.fullmatch(text)
    if match:
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if "!=" in text:
        key, _, value = text.partition("!=")
        return lambda labels: labels.get(key.strip()) != value.strip()
    if "=" in text:
        key, _, value = text.replace("==", "=").partition("=")
        return lambda labels: labels.get(key.strip()) == value.strip()
    if text.startswith("!"):
        return lambda labels: text[1:].strip() not in labels
    return lambda labels: text in labels


def _field(text: str) -> Matcher:
    negated = "!=" in text
    path, _, value = text.partition("!=") if negated else text.replace("==", "=").partition("=")
    if path not in _FIELDS and not path.startswith("involvedObject."):
        raise Refusal(400, f"field label not supported: {path}")
    return lambda manifest: (_at(manifest, path) == value) is not negated


def _at(manifest: Manifest, path: str) -> str:
    value: Any = manifest
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
