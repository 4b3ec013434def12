"""Orders the slices of one queue: by priority, then age.

Source: Kueue v0.19.2, `pkg/scheduler`.
"""

from collections.abc import Callable, Container, Iterable

from slicebus.slices.admission.preemption import Claim
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.workload.workload import Slice

Rank = tuple[int, str, str]
ClaimOf = Callable[[Slice], Claim]


def rank(slice: Slice) -> Rank:
    """The key to sort by: priority, then age."""
    return -slice.priority, slice.ranked_since, slice.uid


def in_order(slices: Iterable[Slice]) -> list[Slice]:
    """The pending slices by rank."""
    return sorted((slice for slice in slices if slice.pending), key=rank)


def claim_of(slice: Slice, preemptors: Container[str]) -> Claim:
    """The claim of a slice. `preemptors` are the UIDs of those whose victims are leaving."""
    if slice.uid in preemptors:
        return Claim.TO_BE_FREED
    waits_for_preempted = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") == WAITING_FOR_PREEMPTED
    return Claim.FREED if waits_for_preempted else Claim.NONE


def preemptors_first(pending: Iterable[Slice], claim_of: ClaimOf) -> list[Slice]:
    """The queue with preemptors first: otherwise a slice before one would take the freed quota, and lose it again.

    For the same reason those whose victims have left come before those whose victims are still leaving.
    """
    return sorted(pending, key=claim_of)
