"""Warns about old dead letters of a cluster, and counts dead letters."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import structs

from slicebus.bus.dead_letters.letters import SHORT, DeadLetter, oldest
from slicebus.decisions.commands import Emit
from slicebus.proto.errors import DeadReason
from slicebus.proto.messages import MESSAGES, Manifest

EVENT = "DeadLetters"
DROPPED_EVENT = "DeadLettersDropped"
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


class LetterUse(NamedTuple):
    """What dead letters take."""

    letters: int = 0
    bytes: int = 0

    def plus(self, other: "LetterUse") -> "LetterUse":
        """Both together."""
        return LetterUse(self.letters + other.letters, self.bytes + other.bytes)


QUOTA = LetterUse(letters=500, bytes=32 * 1024**2)
"""What the manager keeps of one cluster's dead letters. The queue has room for those of thirty clusters; where it is
full, nobody's message can be settled."""
_SURVEY_S = 3600.0
"""After this time without a survey everything counts as settled: a shard that makes none has a quota for each hour."""


class DeadLetterQuota:
    """Knows how many dead letters each cluster has: by the last survey of the queue, and what was added since."""

    def __init__(self, most: LetterUse = QUOTA) -> None:
        self.dropped: Counter[str] = Counter()
        """How many of each cluster's messages were not kept."""
        self._most = most
        self._use: dict[str, LetterUse] = {}
        self._surveyed_at_s = -math.inf

    def survey(self, use: Mapping[str, LetterUse], *, at_s: float) -> None:
        """Take in what is in the queue."""
        self._use, self._surveyed_at_s = dict(use), at_s

    def take(self, cluster: str, size: int, *, at_s: float) -> bool:
        """Count one more dead letter of a cluster, and return whether it is kept."""
        if at_s - self._surveyed_at_s > _SURVEY_S:
            self.survey({}, at_s=at_s)
        use = self._use.get(cluster, LetterUse()).plus(LetterUse(1, size))
        if use.letters > self._most.letters or use.bytes > self._most.bytes:
            self.dropped[cluster] += 1
            return False
        self._use[cluster] = use
        return True


def dropped_event(cluster: Manifest, count: int) -> Emit:
    """The warning that messages of a cluster were not kept."""
    note = (
        f"{count} messages that could not be handled were not kept: {QUOTA.letters} dead letters of a cluster are, "
        "see `slicebus dead list`"
    )
    return Emit(regarding=cluster, reason=DROPPED_EVENT, note=note, warning=True)


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
