"""Warns about old dead letters of a cluster, and counts dead letters."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from slicebus.bus.dead_letters import SHORT, DeadLetter, oldest
from slicebus.decisions.commands import Emit
from slicebus.proto.errors import DeadReason
from slicebus.proto.messages import MESSAGES, Manifest

EVENT = "DeadLetters"
OTHER = "other"
"""The label for an unknown cluster, type or reason: invented values must not make a time series each."""


def alerts(
    letters: Iterable[DeadLetter],
    clusters: Iterable[Manifest],
    warned_at: Mapping[str, datetime],
    *,
    now: datetime,
    alert: timedelta,
) -> list[Emit]:
    """A warning for each cluster whose oldest dead letter is older than `alert`, unless it got one within that time.

    A name without a WorkerCluster gets none: there is no object for the Event.
    """
    by_cluster: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        by_cluster.setdefault(letter.cluster, []).append(letter)
    due = (cluster for cluster in clusters if _is_due(warned_at.get(cluster["metadata"]["name"]), now, alert))
    grouped = ((cluster, by_cluster.get(cluster["metadata"]["name"], [])) for cluster in due)
    return [
        Emit(regarding=cluster, reason=EVENT, note=_note(cluster["metadata"]["name"], dead, now), warning=True)
        for cluster, dead in grouped
        if age_s(dead, now) > alert.total_seconds()
    ]


def age_s(letters: Sequence[DeadLetter], now: datetime) -> float:
    """The age of the oldest in seconds; 0 where there is none."""
    since = oldest(letters)
    return max((now - since).total_seconds(), 0.0) if since else 0.0


def brief(letter: DeadLetter) -> DeadLetter:
    """A letter without what the next browse does not need: of 65,535, the details alone would be 130 MB."""
    return structs.replace(letter, id=letter.id[-SHORT:], subject="", detail="")


def newly_dead(
    letters: Iterable[DeadLetter], known: Collection[DeadLetter] | None, *, manager: str
) -> list[DeadLetter]:
    """The letters of agents and of the broker that are new since the last browse. `known` are those of that browse.

    The manager counts its own when it dead-letters them. At the first browse `known` is None, and none is new."""
    if known is None:
        return []
    before = set(known)
    return [
        letter
        for letter in letters
        if letter not in before and (letter.by != manager or letter.reason == DeadReason.UNDELIVERABLE)
    ]


def labels(letter: DeadLetter, clusters: Collection[str]) -> tuple[str, str, str]:
    """The cluster, type and reason labels of the metric."""
    return (
        letter.cluster if letter.cluster in clusters else OTHER,
        letter.type if letter.type in MESSAGES else OTHER,
        letter.reason if letter.reason in set(DeadReason) else OTHER,
    )


def _is_due(warned_at: datetime | None, now: datetime, alert: timedelta) -> bool:
    return warned_at is None or now - warned_at >= alert


def _note(cluster: str, letters: Sequence[DeadLetter], now: datetime) -> str:
    reasons = Counter(letter.reason for letter in letters)
    shown = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    minutes = age_s(letters, now) / 60
    return f"Dead letters: {shown}; the oldest for {minutes:.0f} min. See: slicebus dead list --cluster {cluster}"
