"""Orders slices by fair sharing: by the share of a cohort's quota that each child borrows.

The share of a queue or cohort is what it borrows, as a part of what its parent could use, in thousandths, divided by
its weight. The resource with the largest part counts. Source: Kueue v0.19.2, `pkg/cache/scheduler` and
`pkg/scheduler/preemption/fairsharing`, and its KEP-1714.
"""

import math
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from slicebus.slices.admission.preemption import Claim
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.quota import FlavorResource, Usage

LARGEST_SHARE = 2**63 - 1
"""The share that a status shows for a node that borrows and has weight 0."""


class FairStrategy(StrEnum):
    """When a queue with a larger share loses to the preemptor."""

    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    """The preemptor's share after its admission is at most the other's after its loss."""
    INITIAL_SHARE = "LessThanInitialShare"
    """The preemptor's share after its admission is less than the other's now."""


class FairSharing(StrEnum):
    """The setting of fair sharing."""

    OFF = "off"
    FINAL_SHARE = "LessThanOrEqualToFinalShare"
    INITIAL_SHARE = "LessThanInitialShare"
    BOTH = "LessThanOrEqualToFinalShare,LessThanInitialShare"
    """The second strategy is tried where the first makes no room."""

    @property
    def strategies(self) -> tuple[FairStrategy, ...]:
        """The strategies in the order of trial; none without fair sharing."""
        return () if self is FairSharing.OFF else tuple(FairStrategy(name) for name in self.split(","))


class Share(msgspec.Struct, frozen=True):
    """The dominant resource share of a node."""

    ratio: float
    """In thousandths, before the weight."""
    weight: float
    borrowed: frozenset[FlavorResource] = frozenset()
    """The resources of which it uses more than its quota."""

    @property
    def order(self) -> tuple[bool, float]:
        """The key to compare by: a borrower with weight 0 has a larger share than any other."""
        if self.weight == 0 and self.ratio > 0:
            return True, self.ratio
        return False, self.ratio / self.weight if self.ratio else 0.0

    @property
    def rounded(self) -> int:
        """The share as a status shows it."""
        is_unlimited, value = self.order
        return LARGEST_SHARE if is_unlimited else math.ceil(value)


def share(node: Node) -> Share:
    """The share of a queue or cohort in its parent; 0 for a root."""
    if node.parent is None:
        return Share(0.0, node.weight)
    borrowed: dict[str, int] = {}
    keys = set()
    for key, quota in node.quota.items():
        more = node.used(key) - quota
        if more > 0:
            keys.add(key)
            borrowed[key[1]] = borrowed.get(key[1], 0) + more
    if not borrowed:
        return Share(0.0, node.weight)
    lendable = node.parent.lendable()
    ratios = (more * 1000 / lendable[resource] for resource, more in borrowed.items() if lendable.get(resource, 0) > 0)
    return Share(max(ratios, default=0.0), node.weight, frozenset(keys))


class Head(msgspec.Struct, frozen=True):
    """The head of a queue: its first slice that could be admitted."""

    node: Node
    """The node of the queue."""
    needs: Usage
    """What it would use in addition."""
    claim: Claim
    rank: tuple[int, str, str]
    """Breaks ties: priority, then age."""


def fairest(heads: Mapping[str, Head]) -> str:
    """The queue whose head comes next, among the heads of one tree by queue name.

    From the queues up, each cohort puts forward the one with the smallest share after it was admitted.
    """
    shares = {name: _shares_with(head) for name, head in heads.items()}
    root = next(iter(heads.values())).node.root

    def winner(cohort: Node) -> str | None:
        contenders = [name for child in cohort.cohorts if (name := winner(child)) is not None]
        contenders += [queue.name for queue in cohort.queues if queue.name in heads]
        return min(contenders, key=lambda name: _order(heads[name], shares[name][cohort.name]), default=None)

    return winner(root) or root.name


def _shares_with(head: Head) -> dict[str, Share]:
    """The share of the child on the way to the queue, with the head admitted, by each cohort above."""
    head.node.use_all(head.needs)
    below, shares = head.node, {}
    for above in head.node.path():
        shares[above.name], below = share(below), above
    head.node.use_all(head.needs, times=-1)
    return shares


def _order(head: Head, after: Share) -> tuple[object, ...]:
    """The key to sort by: preemptors first, then who borrows nothing of its needs, then by share."""
    asked = {key for key, need in head.needs.items() if need > 0}
    return head.claim, bool(after.borrowed & asked), after.order, head.rank
