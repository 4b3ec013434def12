"""Who loses quota for somebody who may have it: the victims of a preemption, as few as possible.

A victim is the holder of a chain, and the whole chain with it. What is searched is the tree of quota as it will be:
whoever is evicted already is not in it, so nobody is preempted for what comes free anyway.
Source of the rules: Kueue v0.19.2, `pkg/scheduler/preemption`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from slicebus.slices.cohorts import Node
from slicebus.slices.kueue import Condition, PreemptionReason
from slicebus.slices.policies import Whom
from slicebus.slices.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.workload import Slice

WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
"""The reason of a slice whose room comes free when those are gone who were preempted for it."""
_DUE_TO = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
}
_TOLD = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>[^,]+), .*; preemptor path: \S*/(?P<queue>[^/;]+);"
)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A chain that holds quota."""

    slice: Slice
    """Its holder."""
    node: Node
    """The queue whose quota it holds."""
    usage: Usage

    @property
    def order(self) -> tuple[int, tuple[int, ...], str]:
        """Those of lower priority first, of these the ones that have quota for the shortest time."""
        reserved = self.slice.conditions.get(Condition.QUOTA_RESERVED, {})
        since = reserved.get("lastTransitionTime", "") if reserved.get("status") == "True" else ""
        return self.slice.priority, tuple(-ord(letter) for letter in since), self.slice.uid


Holders = Callable[[Node], Sequence[Candidate]]
"""Who holds quota of a queue and is not evicted, in their order."""


class Preemptor(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that has no room, and what it needs."""

    slice: Slice
    queue: ClusterQueue
    node: Node
    """Of its queue, without what its own chain holds."""
    needs: Usage
    short: frozenset[FlavorResource]
    """Those of its needs that there is no room for: who does not hold any of them is no victim."""


class Victim(msgspec.Struct, frozen=True):
    """A chain that is to lose its quota, and why it may."""

    candidate: Candidate
    reason: PreemptionReason


class Trial:
    """Takes candidates out of the tree to see what would fit. `restore` puts all of them back."""

    def __init__(self) -> None:
        self.victims: list[Victim] = []

    def remove(self, candidate: Candidate, reason: PreemptionReason) -> None:
        """Go on without a candidate."""
        candidate.node.use_all(candidate.usage, times=-1)
        self.victims.append(Victim(candidate, reason))

    def fill_back(self, fits: Callable[[], bool]) -> None:
        """Leave out every victim that there is room without, those first that were taken last."""
        for victim in self.victims[-2::-1]:
            before, self.victims = self.victims, [other for other in self.victims if other is not victim]
            victim.candidate.node.use_all(victim.candidate.usage)
            if not fits():
                self.victims = before
                victim.candidate.node.use_all(victim.candidate.usage, times=-1)

    def restore(self) -> list[Victim]:
        """The victims, all of them in the tree again."""
        found, self.victims = self.victims, []
        for victim in found:
            victim.candidate.node.use_all(victim.candidate.usage)
        return found


@contextmanager
def without(victims: Iterable[Victim]) -> Iterator[None]:
    """The tree as it is when these are gone."""
    trial = Trial()
    for victim in victims:
        trial.remove(victim.candidate, victim.reason)
    yield
    trial.restore()


def fits(preemptor: Preemptor, *, borrowing: bool = True) -> bool:
    """Whether the preemptor has room, with what others lend or with its queue's own quota only."""
    node = preemptor.node
    return all(
        need <= max(0, node.available(key)) and (borrowing or not node.borrows(key, need))
        for key, need in preemptor.needs.items()
    )


def may_preempt(slice: Slice, other: Slice, whom: Whom) -> bool:
    """Whether a policy allows it, by priority and age."""
    match whom:
        case Whom.NEVER:
            return False
        case Whom.LOWER:
            return other.priority < slice.priority
        case Whom.LOWER_OR_NEWER:
            age = slice.created, slice.uid
            return (other.priority, age) < (slice.priority, (other.created, other.uid))
        case Whom.ANY:
            return True


def candidates(preemptor: Preemptor, node: Node, holders: Holders, whom: Whom) -> Iterator[Candidate]:
    """Those in one queue that the policy allows, and that hold something of what is missing. Never the own chain."""
    slice = preemptor.slice
    for candidate in holders(node) if whom is not Whom.NEVER else ():
        helps = any(candidate.usage.get(key, 0) > 0 for key in preemptor.short)
        if helps and candidate.slice.chain_id != slice.chain_id and may_preempt(slice, candidate.slice, whom):
            yield candidate


def message_of(preemptor: Preemptor, victim: Victim) -> str:
    """What the victim is told, in Kueue's words."""
    slice = preemptor.slice
    return (
        f"Preempted to accommodate a workload (UID: {slice.uid or 'UNKNOWN'}, JobUID: {slice.job_uid or 'UNKNOWN'}) "
        f"due to {_DUE_TO[victim.reason]}; preemptor path: {path_of(preemptor.node)}; "
        f"preemptee path: {path_of(victim.candidate.node)}"
    )


def preempted_for(slice: Slice) -> str:
    """The UID of the Workload that a slice was preempted for; empty for one that was not."""
    condition = slice.conditions.get(Condition.PREEMPTED, {})
    return preemptor_uid(condition.get("message", "")) if condition.get("status") == "True" else ""


def preemptor_uid(message: str) -> str:
    """The UID of the preemptor, from what the victim was told; empty where it was told something else."""
    found = _TOLD.match(message)
    return found["uid"] if found else ""


def preempting_queue(message: str) -> str:
    """The ClusterQueue of the preemptor, likewise."""
    found = _TOLD.match(message)
    return found["queue"] if found else ""


def path_of(node: Node) -> str:
    """A queue in its tree: `/org/team/queue`."""
    return "".join(f"/{each.name}" for each in [node, *node.path()][::-1])


class _Reclaimable(msgspec.Struct, frozen=True):
    """A candidate, and by which right it is one."""

    candidate: Candidate
    reason: PreemptionReason
    above: Node | None = None
    """The smallest cohort that has the preemptor and the candidate in it; None in the preemptor's own queue."""
    while_borrowing: bool = True
    """Whether it may be preempted by somebody who borrows."""


def classical(preemptor: Preemptor, holders: Holders) -> list[Victim]:
    """Who is preempted without fair sharing; nobody where that would not make room."""
    own = [
        _Reclaimable(candidate, PreemptionReason.IN_CLUSTER_QUEUE)
        for candidate in candidates(preemptor, preemptor.node, holders, preemptor.queue.preemption.within_queue)
    ]
    by_rank, by_priority = _reclaimable(preemptor, holders)
    others = [*_in_order(by_rank), *_in_order(by_priority)]
    for borrowing in _attempts(preemptor, has_others=bool(others), has_by_rank=bool(by_rank)):
        trial, has_room = Trial(), partial(fits, preemptor, borrowing=borrowing)
        for found in (*others, *own):
            if not _is_valid(found, preemptor.short, borrowing=borrowing):
                continue
            trial.remove(found.candidate, found.reason)
            if has_room():
                trial.fill_back(has_room)
                return trial.restore()
        trial.restore()
    return []


def _attempts(preemptor: Preemptor, *, has_others: bool, has_by_rank: bool) -> Sequence[bool]:
    """Whether to search with what others lend, without, or first the one and then the other."""
    may_not_borrow = preemptor.queue.preemption.borrow is Whom.NEVER
    node = preemptor.node
    has_quota_left = all(node.used(key) < node.quota.get(key, 0) for key in preemptor.short)
    if not has_others or (may_not_borrow and not has_quota_left):
        return (True,)
    return (False, True) if may_not_borrow and not has_by_rank else (True, False)


def _in_order(found: Iterable[_Reclaimable]) -> list[_Reclaimable]:
    return sorted(found, key=lambda each: each.candidate.order)


def _reclaimable(preemptor: Preemptor, holders: Holders) -> tuple[list[_Reclaimable], list[_Reclaimable]]:
    """Candidates in other queues: those that use quota which is nearer to the preemptor, and the others."""
    by_rank: list[_Reclaimable] = []
    by_priority: list[_Reclaimable] = []
    policy = preemptor.queue.preemption
    if policy.reclaim is Whom.NEVER:
        return by_rank, by_priority
    has_rank, missing = _fits_in_quota(preemptor.node, preemptor.needs)
    below = preemptor.node
    for above in preemptor.node.path():
        for node in _exceeding(above, below, preemptor.short):
            for candidate in candidates(preemptor, node, holders, policy.reclaim):
                if has_rank:
                    by_rank.append(_Reclaimable(candidate, PreemptionReason.IN_COHORT_RECLAMATION, above))
                else:
                    by_priority.append(_by_priority(preemptor, candidate, above))
        fits, missing = _fits_in_quota(above, missing)
        has_rank, below = has_rank or fits, above
    return by_rank, by_priority


def _by_priority(preemptor: Preemptor, candidate: Candidate, above: Node) -> _Reclaimable:
    policy, priority = preemptor.queue.preemption, candidate.slice.priority
    is_low = policy.borrow_threshold is None or priority <= policy.borrow_threshold
    if policy.borrow is not Whom.NEVER and priority < preemptor.slice.priority and is_low:
        return _Reclaimable(candidate, PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING, above)
    return _Reclaimable(candidate, PreemptionReason.IN_COHORT_RECLAMATION, above, while_borrowing=False)


def _exceeding(above: Node, below: Node, short: frozenset[FlavorResource]) -> Iterator[Node]:
    """The queues of a cohort that use more than their quota, without the part of the tree below one of its nodes."""
    for cohort in above.cohorts:
        if cohort is not below and cohort.exceeds(short):
            yield from _exceeding(cohort, below, short)
    for queue in above.queues:
        if queue is not below and queue.exceeds(short):
            yield queue


def _fits_in_quota(node: Node, needs: Mapping[FlavorResource, int]) -> tuple[bool, Usage]:
    """Whether a part of the tree has the quota for this on top of what it uses, and what it must get from above."""
    fits = not any(node.borrows(key, need) for key, need in needs.items())
    return fits, {key: max(0, need - node.unused(key)) for key, need in needs.items()}


def _is_valid(found: _Reclaimable, short: frozenset[FlavorResource], *, borrowing: bool) -> bool:
    """Whether a candidate still is one: what another part of the tree has within its quota is not taken from it."""
    if found.above is None:
        return True
    if borrowing and not found.while_borrowing:
        return False
    node: Node | None = found.candidate.node
    while node is not None and node is not found.above:
        if not node.exceeds(short):
            return False
        node = node.parent
    return True
