"""Orders the heads of the queues for a cycle. Slices of one queue come by priority, then age.

Source: Kueue v0.19.2, `pkg/scheduler`.
"""

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from itertools import accumulate

from slicebus.slices.admission.preemption import Claim
from slicebus.slices.admission.sharing import Head, fairest
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, Condition
from slicebus.slices.placement.flavors import Misfit, Mode, Nomination
from slicebus.slices.workload.workload import Slice

Rank = tuple[int, str, str]
Pending = Mapping[str, deque[Slice]]
"""The pending slices of each ClusterQueue, in order."""
Assessed = Nomination | Misfit
Assess = Callable[[Slice], Assessed]
"""Returns what a slice could be assigned now. It is called again whenever an earlier decision may have changed that."""
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


def preemptors_first(pending: Iterable[Slice], claim_of: ClaimOf) -> deque[Slice]:
    """The queue with preemptors first: otherwise a slice before one would take the freed quota, and lose it again.

    For the same reason those whose victims have left come before those whose victims are still leaving.
    """
    return deque(sorted(pending, key=claim_of))


def by_distance(pending: Pending, assess: Assess, claim_of: ClaimOf) -> Iterator[tuple[Slice, Assessed]]:
    """Order slices without fair sharing: preemptors first, then by the distance of their quota, then by rank."""
    # A preemptor lifts its whole queue: the slices before it come first. The last claim is that of the queue.
    claims = {name: list(accumulate(map(claim_of, reversed(slices)), min)) for name, slices in pending.items()}

    def order(name: str, distance: int) -> tuple[Claim, int, Rank, str]:
        return claims[name][-1], distance, rank(pending[name][0]), name

    heap = [order(name, 0) for name in pending]
    heapq.heapify(heap)
    while heap:
        _, distance, _, name = heapq.heappop(heap)
        queue = pending[name]
        assessment = assess(queue[0])
        nominated = _nominated(assessment)
        if nominated is not None and nominated.distance > distance:
            heapq.heappush(heap, order(name, nominated.distance))
            continue
        slice = queue.popleft()
        claims[name].pop()
        yield slice, assessment
        if queue:
            heapq.heappush(heap, order(name, 0))


def by_share(
    pending: Pending, trees: Iterable[Iterable[str]], assess: Assess, head: Callable[[Slice, Nomination], Head]
) -> Iterator[tuple[Slice, Assessed]]:
    """Order slices with fair sharing: by the share of their queue in its tree. `head` describes the head of a queue."""
    for names in trees:
        heads: dict[str, Head] = {}
        while True:
            for name in names:
                queue = pending[name]
                while queue and name not in heads:
                    assessment = assess(queue[0])
                    nominated = _nominated(assessment)
                    if nominated is not None:
                        heads[name] = head(queue[0], nominated)
                    else:
                        yield queue.popleft(), assessment
            if not heads:
                break
            name = fairest(heads)
            del heads[name]
            assessment = assess(pending[name][0])
            yield pending[name].popleft(), assessment


def _nominated(assessment: Assessed) -> Nomination | None:
    """The nomination to rank; None for a slice that can use nothing, and so takes nothing from later ones."""
    return assessment if isinstance(assessment, Nomination) and assessment.mode > Mode.NO_CANDIDATES else None
