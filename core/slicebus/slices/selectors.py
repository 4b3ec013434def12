"""Label selectors, as Kubernetes matches them."""

from collections.abc import Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector matches. An empty one matches everything."""
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(matches(entry, labels) for entry in selector.get("matchExpressions") or ())


def matches(entry: Manifest, labels: Mapping[str, str]) -> bool:
    """One match expression, of a label selector or of a node selector term."""
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
    return False


def _compares(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """Whether a label is a greater or smaller integer; what is not an integer is neither, as for the scheduler."""
    try:
        left, [right] = int(value or ""), map(int, values)
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
