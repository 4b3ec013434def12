"""Finds the victims of a preemption, as few as possible.

A victim is the quota holder of a chain. It gives up pods down to its least size, or loses the quota of the whole chain.
The search uses the projected tree, which leaves out what is evicted or given up: so nobody is preempted for quota that
comes free anyway.
Source of the rules: Kueue v0.19.2, `pkg/scheduler/preemption`.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial

import msgspec

from slicebus.proto.messages import counts_text
from slicebus.slices.admission.reductions import Candidate, Offer, Victim, offers
from slicebus.slices.admission.trials import Trial
from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.policies import Whom
from slicebus.slices.quota.quota import ClusterQueue, FlavorResource, Usage
from slicebus.slices.workload.workload import Slice

_DUE_TO = {
    PreemptionReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptionReason.OPPORTUNISTIC: "the return of pods that nobody had asked for",
}
_MESSAGE = re.compile(
    r"(Previously: )?(Preempted|Shrunk to [^;]+?) to accommodate a workload "
    r"\(UID: (?P<uid>[^,]+), JobUID: (?P<job>[^)]+)\).*; preemptor path: \S*/(?P<queue>[^/;]+);"
)


class Claim(IntEnum):
    """A waiting slice's claim to quota that others were preempted for. Slices are decided in this order."""

    FREED = 0
    """The workloads that were preempted for it have left, perhaps since the last cycle."""
    TO_BE_FREED = 1
    """Workloads that were preempted for it are leaving."""
    NONE = 2


Holders = Callable[[Node], Sequence[Candidate]]
"""The quota holders of a queue that are not evicted, sorted by `order`."""


class Preemptor(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that has no room, and what it needs."""

    slice: Slice
    queue: ClusterQueue
    node: Node
    """The node of its queue, without what its own chain holds."""
    needs: Usage
    short: frozenset[FlavorResource]
    """The needs without room. A victim holds some of them."""


def fits(preemptor: Preemptor, *, borrowing: bool = True) -> bool:
    """Whether the preemptor fits, with borrowing or within its queue's own quota."""
    node, needs = preemptor.node, preemptor.needs
    return node.has_room(needs) and (borrowing or not any(node.borrows(key, need) for key, need in needs.items()))


def may_preempt(slice: Slice, other: Slice, whom: Whom) -> bool:
    """Whether a policy allows the preemption, by priority and age. What was taken back from a job is no reason to take
    anything from another one of its priority."""
    if slice.restores and other.priority == slice.priority:
        return False
    match whom:
        case Whom.NEVER:
            return False
        case Whom.LOWER:
            return other.priority < slice.priority
        case Whom.LOWER_OR_NEWER:
            age = slice.ranked_since, slice.uid
            return (other.priority, age) < (slice.priority, (other.ranked_since, other.uid))
        case Whom.ANY:
            return True


def candidates(preemptor: Preemptor, node: Node, holders: Holders, whom: Whom) -> Iterator[Candidate]:
    """The holders in one queue that the policy allows and that use what is short; never the own chain."""
    slice = preemptor.slice
    for candidate in holders(node) if whom is not Whom.NEVER else ():
        helps = any(candidate.usage.get(key, 0) > 0 for key in preemptor.short)
        if helps and candidate.slice.chain_id != slice.chain_id and may_preempt(slice, candidate.slice, whom):
            yield candidate


def message_of(preemptor: Preemptor, victim: Victim) -> str:
    """The message of the victim's condition or note, in Kueue's words."""
    slice = preemptor.slice
    deed = "Preempted" if victim.to is None else f"Shrunk to {counts_text(victim.to)}"
    return (
        f"{deed} to accommodate a workload (UID: {slice.uid or 'UNKNOWN'}, JobUID: {slice.job_uid or 'UNKNOWN'}) "
        f"due to {_DUE_TO[victim.reason]}; preemptor path: {path_of(preemptor.node)}; "
        f"preemptee path: {path_of(victim.candidate.node)}"
    )


def preempted_for(slice: Slice) -> str:
    """The UID of the Workload that a slice was preempted for; empty for one that was not."""
    return preemptor_uid(_told(slice))


def preempted_by(slice: Slice) -> str:
    """The UID of the job that a slice was preempted for; empty for one that was not."""
    return preemptor_job(_told(slice))


def _told(slice: Slice) -> str:
    """The message of a slice that is preempted; empty for any other."""
    condition = slice.conditions.get(Condition.PREEMPTED, {})
    return condition.get("message", "") if condition.get("status") == "True" else ""


def preemptor_uid(message: str) -> str:
    """The UID of the preemptor in a victim's message; empty for any other message."""
    match = _MESSAGE.match(message)
    return match["uid"] if match else ""


def preemptor_job(message: str) -> str:
    """The UID of the preemptor's job in a victim's message, also in that of a victim that has quota again; empty for
    any other message."""
    match = _MESSAGE.match(message)
    return match["job"] if match else ""


def preempting_queue(message: str) -> str:
    """The ClusterQueue of the preemptor in a victim's message; empty for any other message."""
    match = _MESSAGE.match(message)
    return match["queue"] if match else ""


def path_of(node: Node) -> str:
    """The path of a queue in its tree: `/org/team/queue`."""
    return "".join(f"/{level.name}" for level in [node, *node.path()][::-1])


class _Reclaimable(msgspec.Struct, frozen=True):
    """A candidate, and the rule that makes it one."""

    candidate: Candidate
    reason: PreemptionReason
    above: Node | None = None
    """The smallest cohort with both preemptor and candidate; None in the preemptor's own queue."""
    while_borrowing: bool = True
    """Whether a preemptor that borrows may preempt it."""


def classical(preemptor: Preemptor, holders: Holders, *, whole: bool = False) -> list[Victim]:
    """The victims without fair sharing; none where they would not make room. `whole`: nobody gives up pods."""
    own = [
        _Reclaimable(candidate, PreemptionReason.IN_CLUSTER_QUEUE)
        for candidate in candidates(preemptor, preemptor.node, holders, preemptor.queue.preemption.within_queue)
    ]
    by_rank, by_priority = _reclaimable(preemptor, holders)
    others = [*_in_order(by_rank), *_in_order(by_priority)]
    everybody = [*others, *own]
    short = frozenset[FlavorResource]() if whole else preemptor.short
    offered = [(entry, offer) for entry in everybody for offer in offers(entry.candidate, short)]
    for borrowing in _attempts(preemptor, has_others=bool(others), has_by_rank=bool(by_rank)):
        # What pods are taken of first may leave a queue within its quota: then its jobs are no victims any more.
        for first in (offered, []) if offered else ([],):
            deeds = _in_turn(everybody, first, preemptor.queue)
            if victims := _search(Trial(short), preemptor, deeds, borrowing=borrowing):
                return victims
    return []


def _search(
    trial: Trial, preemptor: Preemptor, deeds: Iterable[tuple[_Reclaimable, Offer | None]], *, borrowing: bool
) -> list[Victim]:
    """The victims of these deeds, taken one after the other until the preemptor fits; none where it does not."""
    has_room = partial(fits, preemptor, borrowing=borrowing)
    for entry, offer in deeds:
        is_valid = partial(_is_valid, entry, preemptor.short, borrowing=borrowing)
        if not is_valid():
            continue
        if offer is None:
            trial.evict(entry.candidate, entry.reason)
        elif not trial.shrink(offer, entry.reason, may_go_on=is_valid):
            continue
        if has_room():
            trial.trim(has_room)
            return trial.restore()
    trial.restore()
    return []


def _in_turn(
    candidates: Iterable[_Reclaimable], offered: Iterable[tuple[_Reclaimable, Offer]], queue: ClusterQueue
) -> Iterator[tuple[_Reclaimable, Offer | None]]:
    """The deeds of a search in order, an offer or an eviction. The evictions are in the order of the candidates.

    Before one is evicted, everybody of its priority or a lower one gives up pods, from the lowest priority up; where
    the preemptor's queue wants pods first, everybody does.
    """
    left = deque(sorted(offered, key=lambda pair: pair[1].order[0]))
    for entry in candidates:
        while left and (queue.pods_first or left[0][1].order[0] <= entry.candidate.slice.priority):
            yield left.popleft()
        yield entry, None


def _attempts(preemptor: Preemptor, *, has_others: bool, has_by_rank: bool) -> Sequence[bool]:
    """Whether the preemptor may borrow, for each search in turn."""
    may_not_borrow = preemptor.queue.preemption.borrow is Whom.NEVER
    node = preemptor.node
    has_quota_left = all(node.used(key) < node.quota.get(key, 0) for key in preemptor.short)
    if not has_others or (may_not_borrow and not has_quota_left):
        return (True,)
    return (False, True) if may_not_borrow and not has_by_rank else (True, False)


def _in_order(reclaimable: Iterable[_Reclaimable]) -> list[_Reclaimable]:
    return sorted(reclaimable, key=lambda entry: entry.candidate.order)


def _reclaimable(preemptor: Preemptor, holders: Holders) -> tuple[list[_Reclaimable], list[_Reclaimable]]:
    """Candidates in other queues: those that use quota nearer to the preemptor, and the others."""
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
    """The queues of a cohort that use more than their quota, except those below one node."""
    for cohort in above.cohorts:
        if cohort is not below and cohort.exceeds(short):
            yield from _exceeding(cohort, below, short)
    for queue in above.queues:
        if queue is not below and queue.exceeds(short):
            yield queue


def _fits_in_quota(node: Node, needs: Mapping[FlavorResource, int]) -> tuple[bool, Usage]:
    """Whether a node has the unused quota for these needs, and what it has to borrow from above."""
    fits = not any(node.borrows(key, need) for key, need in needs.items())
    return fits, {key: max(0, need - node.unused(key)) for key, need in needs.items()}


def _is_valid(reclaimable: _Reclaimable, short: frozenset[FlavorResource], *, borrowing: bool) -> bool:
    """Whether a candidate may still be preempted: its queue and the cohorts above still exceed their quota."""
    if reclaimable.above is None:
        return True
    if borrowing and not reclaimable.while_borrowing:
        return False
    node: Node | None = reclaimable.candidate.node
    while node is not None and node is not reclaimable.above:
        if not node.exceeds(short):
            return False
        node = node.parent
    return True
