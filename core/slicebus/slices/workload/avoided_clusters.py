"""The clusters where the pods of a job did not get ready in time: for a while the job goes to others.

The time doubles with each time out, as Kueue's requeuing backs off. All of it is forgotten when the pods are ready.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json

Manifest = dict[str, Any]

_FIRST = timedelta(seconds=60)
_LONGEST = timedelta(hours=1)
_MOST_DOUBLINGS = 10


class Avoided(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster where the pods did not get ready."""

    times: int = 0
    """How often in a row."""
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """None when the job may go there again."""


Clusters = Mapping[str, Avoided]


def read(workload: Manifest) -> dict[str, Avoided]:
    """By name; empty where there are none, or what is there cannot be read."""
    return read_json(_text(workload), _CLUSTERS) or {}


def avoided_now(workload: Manifest) -> frozenset[str]:
    """The clusters that the job does not go to now."""
    if _text(workload) is None:
        return frozenset()
    return frozenset(name for name, each in read(workload).items() if each.until is not None)


def avoiding(clusters: Clusters, name: str, *, now: datetime) -> dict[str, Avoided]:
    """With one more time out on a cluster."""
    times = clusters.get(name, Avoided()).times + 1
    pause = min(_FIRST * 2 ** min(times - 1, _MOST_DOUBLINGS), _LONGEST)
    return {**clusters, name: Avoided(times, now + pause)}


def tried_again(clusters: Clusters, *, now: datetime) -> dict[str, Avoided]:
    """With those whose time is over as clusters that the job may go to again."""
    return {name: Avoided(each.times) if _is_over(each, now) else each for name, each in clusters.items()}


def next_over_s(clusters: Clusters, *, now: datetime) -> float | None:
    """How long until the first time is over, in seconds; None where none is running."""
    left = [each.until - now for each in clusters.values() if each.until is not None]
    return max(0.0, min(left).total_seconds()) if left else None


def to_annotation(clusters: Clusters) -> str | None:
    """JSON; None for no cluster."""
    return msgspec.json.encode(clusters, order="sorted").decode() if clusters else None


def _is_over(avoided: Avoided, now: datetime) -> bool:
    return avoided.until is not None and avoided.until <= now


def _text(workload: Manifest) -> str | None:
    text: str | None = (workload["metadata"].get("annotations") or {}).get(api_names.AVOIDED_CLUSTERS_ANNOTATION)
    return text


_CLUSTERS = msgspec.json.Decoder(dict[str, Avoided])
