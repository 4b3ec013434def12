"""Conditions of Kubernetes objects, as values."""

from collections.abc import Sequence
from typing import Any

Manifest = dict[str, Any]


def condition(type: str, *, status: bool, reason: str, message: str, generation: int, now: str) -> Manifest:
    """One condition as metav1.Condition. The message is cut to the schema's 32,768 characters."""
    return {
        "type": type,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message[:32_768],
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }


def with_conditions(present: Sequence[Manifest], *new: Manifest) -> list[Manifest]:
    """The conditions with each new one in the place of its type.

    `lastTransitionTime` stays where the status stays: it tells since when, not when it was looked at last.
    """
    merged = {entry["type"]: entry for entry in present}
    for entry in new:
        old = merged.get(entry["type"])
        if old is not None and old["status"] == entry["status"]:
            entry = entry | {"lastTransitionTime": old["lastTransitionTime"]}
        merged[entry["type"]] = entry
    return list(merged.values())
