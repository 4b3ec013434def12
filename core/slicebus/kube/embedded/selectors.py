"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from slicebus.kube.embedded.status import Refusal

Manifest = dict[str, Any]
Labels = dict[str, str]
Matcher = Callable[[Manifest], bool]

_KEY, _VALUE = r"[A-Za-z0-9][-A-Za-z0-9_./]*", r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)")
_COMPARISON = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|!=|=|<|>)\s*(?P<value>{_VALUE})")
_PRESENCE = re.compile(rf"(?P<absent>!?)\s*(?P<key>{_KEY})")
_SEPARATOR = re.compile(r",(?![^(]*\))")
_METADATA = ("metadata.name", "metadata.namespace")


def label_matcher(selector: str | None) -> Matcher:
    """Matches `a=b`, `a!=b`, `a>1`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`, joined by commas. Raises Refusal 400."""
    requirements = [_label(part.strip()) for part in _SEPARATOR.split(selector or "") if part.strip()]

    def matches(manifest: Manifest) -> bool:
        labels = manifest["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def field_matcher(selector: str | None, fields: tuple[str, ...]) -> Matcher:
    """Matches `path=value` and `path!=value`, joined by commas, for these fields. Raises Refusal 400 for others."""
    known = (*_METADATA, *fields)
    requirements = [_field(part.strip(), known) for part in (selector or "").split(",") if part.strip()]
    return lambda manifest: all(requirement(manifest) for requirement in requirements)


def _label(text: str) -> Callable[[Labels], bool]:
    if match := _SET.fullmatch(text):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _COMPARISON.fullmatch(text):
        return _comparison(match["key"], match["operator"], match["value"])
    if match := _PRESENCE.fullmatch(text):
        key, absent = match["key"], bool(match["absent"])
        return lambda labels: (key in labels) is not absent
    raise Refusal(400, f'unable to parse requirement: "{text}"')


def _comparison(key: str, operator: str, value: str) -> Callable[[Labels], bool]:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    try:
        bound = int(value)
    except ValueError as error:
        raise Refusal(400, f'unable to parse requirement: "{value}" is not a number') from error
    return lambda labels: (
        labels.get(key, "").isdigit() and (int(labels[key]) > bound if operator == ">" else int(labels[key]) < bound)
    )


def _field(text: str, known: tuple[str, ...]) -> Matcher:
    negated = "!=" in text
    path, _, value = text.partition("!=") if negated else text.replace("==", "=").partition("=")
    if path not in known:
        raise Refusal(400, f"field label not supported: {path}")
    return lambda manifest: (_at(manifest, path) == value) is not negated


def _at(manifest: Manifest, path: str) -> str:
    value: Any = manifest
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)
