"""The order in which the heads of the queues are decided. Slices of one queue come by priority, then age.

Source: Kueue v0.19.2, `pkg/scheduler`.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from slicebus.slices.flavors import Misfit, Mode, Nomination
from slicebus.slices.kueue import Condition
from slicebus.slices.preemption import WAITING_FOR_PREEMPTED
from slicebus.slices.sharing import Head, fairest
from slicebus.slices.workload import Slice

Rank = tuple[int, str, str]
Pending = Mapping[str, deque[Slice]]
"""The pending slices of each ClusterQueue, in order."""
Assessed = Nomination | Misfit
Assess = Callable[[Slice], Assessed]
"""What a slice could be assigned now. Called again whenever an earlier decision may have changed that."""


def rank(slice: Slice) -> Rank:
    """The key to sort by: priority, then age."""
    return -slice.priority, slice.created, slice.uid


def waits_for_preempted(slice: Slice) -> bool:
    """Whether the last cycle left the slice waiting for workloads that were preempted for it."""
    return slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("reason") == WAITING_FOR_PREEMPTED


def preemptors_first(pending: Iterable[Slice], is_preemptor: Callable[[Slice], bool]) -> deque[Slice]:
    """The queue with preemptors first: otherwise a slice before one would take the freed quota, and lose it again."""
    return deque(sorted(pending, key=lambda slice: not is_preemptor(slice)))


def by_distance(
    pending: Pending, assess: Assess, is_preemptor: Callable[[Slice], bool]
) -> Iterator[tuple[Slice, Assessed]]:
    """Without fair sharing: preemptors first, then by the distance that the quota comes from, then by rank."""
    preemptors = Counter({name: sum(map(is_preemptor, slices)) for name, slices in pending.items()})

    def order(name: str, distance: int) -> tuple[bool, int, Rank, str]:
        # A preemptor lifts its whole queue: the slices before it come first.
        return not preemptors[name], distance, rank(pending[name][0]), name

    heap = [order(name, 0) for name in pending]
    heapq.heapify(heap)
    while heap:
        _, distance, _, name = heapq.heappop(heap)
        queue = pending[name]
        found = assess(queue[0])
        nominated = _nominated(found)
        if nominated is not None and nominated.distance > distance:
            heapq.heappush(heap, order(name, nominated.distance))
            continue
        slice = queue.popleft()
        preemptors[name] -= is_preemptor(slice)
        yield slice, found
        if queue:
            heapq.heappush(heap, order(name, 0))


def by_share(
    pending: Pending, trees: Iterable[Iterable[str]], assess: Assess, head: Callable[[Slice, Nomination], Head]
) -> Iterator[tuple[Slice, Assessed]]:
    """With fair sharing: the queues of each tree by their share. `head` describes the head of a queue."""
    for names in trees:
        heads: dict[str, Head] = {}
        while True:
            for name in names:
                queue = pending[name]
                while queue and name not in heads:
                    found = assess(queue[0])
                    nominated = _nominated(found)
                    if nominated is not None:
                        heads[name] = head(queue[0], nominated)
                    else:
                        yield queue.popleft(), found
            if not heads:
                break
            name = fairest(heads)
            del heads[name]
            found = assess(pending[name][0])
            yield pending[name].popleft(), found


def _nominated(found: Assessed) -> Nomination | None:
    """The nomination to rank; None for a slice that can use nothing, and so takes nothing from later ones."""
    return found if isinstance(found, Nomination) and found.mode > Mode.NO_CANDIDATES else None
