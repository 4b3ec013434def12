"""Tells how deep the parts of an object are nested. Where a definition leaves one open, an API server takes 10,000
levels; a message of slicebus has 100 at most, with what is around the part in it."""

from collections.abc import Iterable
from typing import Any

MOST_LEVELS = 60
"""Of a job's spec, and of a field of its status. Kubernetes' own have about twenty."""


def is_too_deep(value: Any) -> bool:
    """Whether no message can have a part of a job that is nested like this."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [entry for part in level for entry in _parts(part)]
    return bool(level)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
