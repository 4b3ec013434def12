"""What a ClusterQueue may take from others, and how it picks among flavors. Source: Kueue v0.19.2, ClusterQueue API."""

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
    """Of those in other queues of the cohort that use more than their quota."""
    borrow: Whom = Whom.NEVER
    """Of those, also to use more than the own quota."""
    borrow_threshold: int | None = None
    """And only up to this priority."""

    @property
    def never(self) -> bool:
        """Whether nobody may be preempted."""
        return self.within_queue is self.reclaim is Whom.NEVER

    @classmethod
    def from_manifest(cls, spec: Manifest) -> Self:
        """Raises ValueError for a policy that there is not."""
        borrow = spec.get("borrowWithinCohort") or {}
        return cls(
            within_queue=Whom(spec.get("withinClusterQueue", Whom.NEVER)),
            reclaim=Whom(spec.get("reclaimWithinCohort", Whom.NEVER)),
            borrow=Whom(borrow.get("policy", Whom.NEVER)),
            borrow_threshold=borrow.get("maxPriorityThreshold"),
        )


class Fungibility(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue's `spec.flavorFungibility`: when a flavor is taken without a look at those after it."""

    next_when_borrowing: bool = False
    """Look at the next flavor, where this one has room only with what others lend."""
    next_when_preempting: bool = True
    """Look at the next flavor, where this one has room only if somebody loses it."""
    own_quota_first: bool = False
    """Rather preempt somebody than borrow. Otherwise rather borrow."""

    @property
    def may_rather_preempt(self) -> bool:
        """Whether a flavor that somebody would lose may go before one that has room."""
        return self.own_quota_first or not self.next_when_preempting

    @classmethod
    def from_manifest(cls, spec: Manifest) -> Self:
        """Any value but the one that says otherwise is the default."""
        return cls(
            next_when_borrowing=spec.get("whenCanBorrow") == "TryNextFlavor",
            next_when_preempting=spec.get("whenCanPreempt", "TryNextFlavor") == "TryNextFlavor",
            own_quota_first=spec.get("preference") == "PreemptionOverBorrowing",
        )
