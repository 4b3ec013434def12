"""What a LocalQueue has used over time, by Kueue's AdmissionFairSharing: what is longer ago counts less.

The account is a moving average of the use, with a half-life. As the use is constant between two writes of a queue's
status, it is exact at every moment, and needs no samples. Source: Kueue v0.19.2, KEP-4136.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec

from slicebus.slices.api.quantities import in_units, parse_quantity

Manifest = dict[str, Any]


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much an amount of one resource counts."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=317)]
    weight: Annotated[float, msgspec.Meta(ge=0)]


class UsageRule(msgspec.Struct, frozen=True):
    """How use counts."""

    half_life_s: float = 7 * 24 * 3600.0
    """After so long it counts half; 0: only what is used now counts."""
    ahead_s: float = 300.0
    """What is used now counts as if it went on for so long: whoever has just got quota has used more."""
    weights: tuple[ResourceWeight, ...] = ()
    """Of the resources; 1 for one that is not among them."""

    def weighted(self, amounts: Mapping[str, float]) -> float:
        """One number for amounts by resource, in cores, bytes or pieces."""
        weights = {each.name: each.weight for each in self.weights}
        return sum(weights.get(resource, 1.0) * amount for resource, amount in amounts.items())

    def part(self, seconds: float) -> float:
        """How much of the average is what was used in the last seconds, from 0 to 1."""
        return 1.0 - 0.5 ** (max(0.0, seconds) / self.half_life_s) if self.half_life_s else 1.0


class Consumption(msgspec.Struct, frozen=True):
    """What a queue has used, in cores, bytes or pieces."""

    consumed: Mapping[str, float]
    at: datetime
    using: Mapping[str, float]
    """What it has used since then."""

    def until(self, moment: datetime, rule: UsageRule) -> Mapping[str, float]:
        """What it has used until then."""
        part = rule.part((moment - self.at).total_seconds())
        return {
            resource: (1.0 - part) * self.consumed.get(resource, 0.0) + part * self.using.get(resource, 0.0)
            for resource in sorted({*self.consumed, *self.using})
        }

    @classmethod
    def from_status(cls, status: Manifest) -> Self | None:
        """What the status of a LocalQueue says; None where it says nothing that can be read."""
        said = (status.get("fairSharing") or {}).get("admissionFairSharingStatus") or {}
        try:
            at = datetime.fromisoformat(said["lastUpdate"])
            consumed = {name: float(parse_quantity(text)) for name, text in (said["consumedResources"] or {}).items()}
            using: dict[str, float] = {}
            for flavor in status.get("flavorsUsage") or ():
                for resource in flavor["resources"]:
                    more = float(parse_quantity(resource["total"]))
                    using[resource["name"]] = using.get(resource["name"], 0.0) + more
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return cls(consumed, at, using) if at.tzinfo is not None else None


class LocalUse(msgspec.Struct, frozen=True):
    """What one LocalQueue has used, as one number."""

    used: float
    weight: float

    def share(self, more: float = 0.0) -> tuple[bool, float]:
        """The key to compare by: the smallest comes first, and a weight of 0 last."""
        return (True, 0.0) if not self.weight else (False, (self.used + more) / self.weight)


def to_status(consumed: Mapping[str, float], now: str) -> Manifest:
    """The field `status.fairSharing` of a LocalQueue."""
    texts = {resource: _text(amount) for resource, amount in consumed.items()}
    return {
        "weightedShare": 0,
        "admissionFairSharingStatus": {"consumedResources": texts, "lastUpdate": now},
    }


def in_amounts(values: Mapping[str, int]) -> dict[str, float]:
    """Values by resource, in cores, bytes or pieces."""
    return {resource: in_units(resource, value) for resource, value in values.items()}


def _text(amount: float) -> str:
    """A quantity in thousandths."""
    thousandths = round(amount * 1000)
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"
