"""Remembers where the pods of a job did not get ready in time: for a while the job avoids those clusters.

The while doubles with each timeout, as Kueue's requeuing backs off. All of it is forgotten when the pods are ready.
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

    times: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """How often in a row."""
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """None when the job may go there again."""


Clusters = Mapping[str, Avoided]


def read(workload: Manifest) -> dict[str, Avoided]:
    """Read the avoided clusters of a Workload, by name; empty where there are none, or nobody can read them."""
    return read_json(_text(workload), _CLUSTERS) or {}


def avoided_now(workload: Manifest) -> frozenset[str]:
    """The clusters that the job does not go to now."""
    if _text(workload) is None:
        return frozenset()
    return frozenset(name for name, avoided in read(workload).items() if avoided.until is not None)


def avoid(clusters: Clusters, name: str, *, now: datetime) -> dict[str, Avoided]:
    """The clusters with one more timeout on one of them."""
    times = clusters.get(name, Avoided()).times + 1
    pause = min(_FIRST * 2 ** min(times - 1, _MOST_DOUBLINGS), _LONGEST)
    return {**clusters, name: Avoided(times, now + pause)}


def end_expired(clusters: Clusters, *, now: datetime) -> dict[str, Avoided]:
    """The clusters, where each whose time is over may be used again and keeps its count."""
    return {name: Avoided(avoided.times) if _is_over(avoided, now) else avoided for name, avoided in clusters.items()}


def next_expiry_s(clusters: Clusters, *, now: datetime) -> float | None:
    """How many seconds until the first time is over; None where none is running."""
    left = [avoided.until - now for avoided in clusters.values() if avoided.until is not None]
    return max(0.0, min(left).total_seconds()) if left else None


def to_annotation(clusters: Clusters) -> str | None:
    """The annotation that says so, JSON; None for no cluster."""
    return msgspec.json.encode(clusters, order="sorted").decode() if clusters else None


def _is_over(avoided: Avoided, now: datetime) -> bool:
    return avoided.until is not None and avoided.until <= now


def _text(workload: Manifest) -> str | None:
    text: str | None = (workload["metadata"].get("annotations") or {}).get(api_names.AVOIDED_CLUSTERS_ANNOTATION)
    return text


_CLUSTERS = msgspec.json.Decoder(dict[str, Avoided])
