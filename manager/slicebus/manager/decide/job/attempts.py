"""Keeps on a Workload how its earlier admissions ended: its other conditions tell only of the last one.

One condition has all of them, a line each, for `slicebus explain` and `kubectl describe`. An annotation would need a
write of its own: the quota is given back by a patch of the status. The journal has more of it, but not for who sees
only the objects. Where a Kueue admits, the conditions are Kueue's, and it counts evictions in `schedulingStats`.
"""

import msgspec

from slicebus.proto.messages import Manifest, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice

MOST = 5
"""The most attempts that are kept, the newest."""
_WHY_LENGTH = 300
_BETWEEN = "; until "


class Attempt(msgspec.Struct, frozen=True):
    """An admission that an eviction ended."""

    admitted: tuple[str, str]
    """When (RFC 3339), and in words where and for how much."""
    evicted: tuple[str, str]
    """When, and why."""

    def to_text(self) -> str:
        """One line."""
        return f"{' '.join(self.admitted)}{_BETWEEN}{' '.join(self.evicted)}"

    @classmethod
    def from_text(cls, line: str) -> "Attempt | None":
        """The attempt of a line; None for another text."""
        admitted, between, evicted = line.partition(_BETWEEN)
        (began, _, where), (ended, _, why) = admitted.partition(" "), evicted.partition(" ")
        return cls((began, where), (ended, why)) if between else None


def ended(workload: Manifest, slice: Slice) -> Finding:
    """The condition with the attempt that ends now: the slice is evicted, and gives its quota back."""
    reserved, evicted = (slice.conditions.get(type, {}) for type in (Condition.QUOTA_RESERVED, Condition.EVICTED))
    where = f"on cluster {slice.cluster}" if slice.cluster else "on no cluster"
    # Not what it still holds: its counts are those of the next attempt by now.
    granted = slice.admission.counts if slice.admission is not None else {}
    why = " ".join(reason_of(evicted).split())
    this = Attempt(
        (reserved.get("lastTransitionTime", ""), f"admitted {where} for {counts_text(granted)}"),
        (evicted.get("lastTransitionTime", ""), why if len(why) <= _WHY_LENGTH else f"{why[:_WHY_LENGTH]}…"),
    )
    kept = [*earlier(workload), this][-MOST:]
    text = "\n".join(attempt.to_text() for attempt in kept)
    return Finding(api_names.EVICTED_BEFORE_CONDITION, True, evicted.get("reason") or "Evicted", text)


def reason_of(evicted: Manifest) -> str:
    """Why a slice was evicted: the reason and the message of the condition, where that does not begin with it."""
    reason, message = evicted.get("reason", ""), evicted.get("message", "")
    return message if message.startswith(reason) else f"{reason}: {message}"


def earlier(workload: Manifest) -> list[Attempt]:
    """The attempts that have ended, oldest first."""
    said = (entry for entry in conditions_of(workload) if entry["type"] == api_names.EVICTED_BEFORE_CONDITION)
    lines = (line for condition in said for line in condition.get("message", "").splitlines())
    return [attempt for line in lines if (attempt := Attempt.from_text(line)) is not None]
