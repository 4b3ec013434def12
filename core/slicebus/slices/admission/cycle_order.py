"""Orders the heads of all queues for a cycle, without fair sharing and with it.

Source: Kueue v0.19.2, `pkg/scheduler`.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from slicebus.slices.admission.queue_order import rank
from slicebus.slices.admission.sharing import Head, fairest
from slicebus.slices.admission.waiting_queue import Turn, WaitingQueue
from slicebus.slices.placement.flavors import Misfit, Mode, Nomination
from slicebus.slices.workload.workload import Slice

Pending = Mapping[str, WaitingQueue]
"""What waits in each ClusterQueue."""
Trees = Collection[Sequence[str]]
"""The queues of each tree of quota."""
Assessed = Nomination | Misfit
Assess = Callable[[Slice], Assessed]
"""Returns what a slice could be assigned now. It is called again whenever an earlier decision may have changed that."""
HasChanged = Callable[[], bool]
"""Whether the slice that came last has changed anything for later ones."""


def by_distance(
    pending: Pending, trees: Trees, assess: Assess, has_changed: HasChanged
) -> Iterator[tuple[Slice, Assessed]]:
    """Order slices without fair sharing: preemptors first, then by the distance of their quota, then by rank."""
    same_tree = {name: names for names in trees for name in names}
    due: dict[str, Turn] = {}
    heap: list[tuple[Turn, str]] = []
    on_clusters: set[str] = set()

    def push(name: str) -> None:
        if pending[name].head is not None and due.get(name) != (turn := pending[name].turn):
            due[name] = turn
            heapq.heappush(heap, (turn, name))

    for name in pending:
        push(name)
    while heap:
        turn, name = heapq.heappop(heap)
        if due.get(name) != turn:
            continue  # Others of its queue come before that one by now.
        del due[name]
        queue = pending[name]
        assert queue.head is not None
        assessment = assess(queue.head)
        nominated = nominated_by(assessment)
        if nominated is not None and nominated.distance > queue.distance:
            queue.distance = nominated.distance
            push(name)
            continue
        slice = queue.take()
        yield slice, assessment
        if has_changed():
            own_tree = same_tree[name]
            for other in {*own_tree, *on_clusters}:
                own = rank(slice) if other == name else None
                if pending[other].resume(turn, own=own, in_tree=other in own_tree):
                    push(other)
            on_clusters -= {other for other in on_clusters if not pending[other].depends_on_clusters}
        elif queue.depends_on_clusters:
            on_clusters.add(name)
        push(name)


def by_share(
    pending: Pending,
    trees: Trees,
    assess: Assess,
    has_changed: HasChanged,
    head_of: Callable[[Slice, Nomination], Head],
) -> Iterator[tuple[Slice, Assessed]]:
    """Order slices with fair sharing: by the share of their queue in its tree. `head_of` describes a queue's head."""
    for names in trees:
        heads: dict[str, Head] = {}
        while True:
            for name in names:
                queue = pending[name]
                while queue.head is not None and name not in heads:
                    assessment = assess(queue.head)
                    nominated = nominated_by(assessment)
                    if nominated is not None:
                        heads[name] = head_of(queue.head, nominated)
                    else:
                        yield queue.take(), assessment
            if not heads:
                break
            name = fairest(heads)
            del heads[name]
            first = pending[name].head
            assert first is not None
            assessment = assess(first)
            yield pending[name].take(), assessment
            if has_changed():
                for other in names:
                    pending[other].resume(None, own=rank(first) if other == name else None)


def nominated_by(assessment: Assessed) -> Nomination | None:
    """The nomination to rank; None for a slice that can use nothing, and so takes nothing from later ones."""
    return assessment if isinstance(assessment, Nomination) and assessment.mode > Mode.NO_CANDIDATES else None
