"""Reads the preemption and flavor policies of a ClusterQueue. Source: Kueue v0.19.2, ClusterQueue API."""

from enum import StrEnum
from typing import Any, Self

import msgspec

Manifest = dict[str, Any]


class Whom(StrEnum):
    """Who may be preempted, by priority."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue's `spec.preemption`."""

    within_queue: Whom = Whom.NEVER
    reclaim: Whom = Whom.NEVER
    """Whom to preempt in other queues of the cohort that use more than their quota."""
    borrow: Whom = Whom.NEVER
    """Whom of those to preempt even in order to borrow."""
    borrow_threshold: int | None = None
    """The highest priority of a victim then; None for no limit."""

    @property
    def never(self) -> bool:
        """Whether nobody may be preempted."""
        return self.within_queue is self.reclaim is Whom.NEVER

    @property
    def by_age(self) -> bool:
        """Whether the age of the preemptor counts."""
        return Whom.LOWER_OR_NEWER in (self.within_queue, self.reclaim)

    @classmethod
    def from_manifest(cls, spec: Manifest) -> Self:
        """Read the field. An unknown policy counts as Never."""
        borrow = spec.get("borrowWithinCohort") or {}
        return cls(
            within_queue=_whom(spec.get("withinClusterQueue")),
            reclaim=_whom(spec.get("reclaimWithinCohort")),
            borrow=_whom(borrow.get("policy")),
            borrow_threshold=borrow.get("maxPriorityThreshold"),
        )


class Fungibility(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue's `spec.flavorFungibility`: when to try the flavors after one that could be assigned."""

    next_when_borrowing: bool = False
    """Try the next flavor where this one fits only by borrowing."""
    next_when_preempting: bool = True
    """Try the next flavor where this one fits only by preemption."""
    own_quota_first: bool = False
    """Prefer preemption to borrowing; otherwise the reverse."""

    @property
    def may_rather_preempt(self) -> bool:
        """Whether a flavor that needs preemption may come before one with room."""
        return self.own_quota_first or not self.next_when_preempting

    @classmethod
    def from_manifest(cls, spec: Manifest) -> Self:
        """Read the field. An unknown value counts as the default."""
        return cls(
            next_when_borrowing=spec.get("whenCanBorrow") == "TryNextFlavor",
            next_when_preempting=spec.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
            own_quota_first=spec.get("preference") == "PreemptionOverBorrowing",
        )


def _whom(policy: str | None) -> Whom:
    return Whom(policy) if policy in set(Whom) else Whom.NEVER
