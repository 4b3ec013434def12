"""Parses, checks and matches label selectors, as Kubernetes writes and matches them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

Manifest = dict[str, Any]
MOST_CHARACTERS = 8192
"""Of a selector in an annotation: it is copied onto Workloads, whose annotations have 256 KiB."""

_KEY, _VALUE = r"[A-Za-z0-9][-A-Za-z0-9_./]*", r"[-A-Za-z0-9_.]*"
_SET = re.compile(rf"(?P<key>{_KEY})\s+(?P<operator>in|notin)\s+\((?P<values>[^()]*)\)")
_COMPARISON = re.compile(rf"(?P<key>{_KEY})\s*(?P<operator>==|!=|=|<|>)\s*(?P<value>{_VALUE})")
_PRESENCE = re.compile(rf"(?P<absent>!?)\s*(?P<key>{_KEY})")
_COMMA = re.compile(r"\([^()]*\)|(?P<comma>,)")
"""A comma, or values in parentheses, whose commas separate nothing."""
_OPERATORS = {"in": "In", "notin": "NotIn", "=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}

_NOTHING: Manifest = {"matchExpressions": [{"key": "", "operator": "In", "values": []}]}


class LabelRequirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One expression of a label selector."""

    key: str
    operator: Annotated[str, msgspec.Meta(pattern="^(In|NotIn|Exists|DoesNotExist)$")]
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A label selector as in Kubernetes; an empty one matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()

    def to_manifest(self) -> Manifest:
        """The selector as `selects` reads it."""
        selector: Manifest = msgspec.to_builtins(self)
        return selector


def problem_of(selector: object) -> str:
    """What is wrong with a LabelSelector that somebody wrote; empty where nothing is. Empty fields say nothing."""
    try:
        msgspec.convert(_without_empty(selector), LabelSelector)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty(part) for name, part in value.items() if part is not None}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value


def readable(selector: Manifest) -> Manifest:
    """The selector, or one that matches nothing where it is none: no decision may raise for it."""
    return _NOTHING if problem_of(selector) else selector


def parse_selector(text: str) -> Manifest:
    """Parse `a=b`, `a!=b`, `a>1`, `a`, `!a`, `a in (b,c)`, `a notin (b,c)`, joined by commas, into a LabelSelector.

    Raises ValueError for anything else, and for a text of more than `MOST_CHARACTERS`.
    """
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, and {MOST_CHARACTERS} are the most")
    parts = (part.strip() for part in _split(text))
    return {"matchExpressions": [_expression(part) for part in parts if part]}


def problem_of_text(text: str) -> str:
    """Why `parse_selector` cannot read a text; empty where it can."""
    try:
        parse_selector(text)
    except ValueError as error:
        return str(error)
    return ""


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector matches. An empty one matches everything."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(matches(entry, labels) for entry in selector.get("matchExpressions") or ())


def matches(entry: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether labels match one expression, of a label selector or of a node selector term."""
    value, values = labels.get(entry["key"]), entry.get("values") or ()
    match entry["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(value, operator, values)
        case _:
            return False


def _split(text: str) -> Iterator[str]:
    begin = 0
    for match in _COMMA.finditer(text):
        if match["comma"]:
            yield text[begin : match.start()]
            begin = match.end()
    yield text[begin:]


def _expression(text: str) -> Manifest:
    if match := _SET.fullmatch(text):
        values = [value.strip() for value in match["values"].split(",")]
        return {"key": match["key"], "operator": _OPERATORS[match["operator"]], "values": values}
    if match := _COMPARISON.fullmatch(text):
        operator, value = _OPERATORS[match["operator"]], match["value"]
        if operator in ("Gt", "Lt") and not value.lstrip("-").isdecimal():
            raise ValueError(f'unable to parse requirement: "{value}" is not a number')
        return {"key": match["key"], "operator": operator, "values": [value]}
    if match := _PRESENCE.fullmatch(text):
        return {"key": match["key"], "operator": "DoesNotExist" if match["absent"] else "Exists"}
    raise ValueError(f'unable to parse requirement: "{text}"')


def _compares(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """Whether a label is an integer that is greater, or less. Any other text is neither, as in the scheduler."""
    try:
        left, [right] = int(value or ""), map(int, values)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
