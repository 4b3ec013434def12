"""What is kept for slices that wait for evicted workloads, and which flavors they would choose if others left as well.

A slice that waits has its flavors chosen again in every cycle. One that takes its second choice, because somebody holds
the first, returns to the first when that one leaves. Whoever preempts by what the waiting slices hold now would then
find the room taken, and the victim would come back: the two would take turns for ever.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from slicebus.slices.cohorts import Node
from slicebus.slices.preemption import Victim
from slicebus.slices.quota import ClusterQueue, Usage
from slicebus.slices.usage import QuotaUse
from slicebus.slices.workload import Admission, FlavorName, Slice

_CHOOSE_AGAIN = 16
"""So many slices may choose again in each flavor of a tree: the first ones, who get it before the others. A bound,
because each preemption of a cycle looks at them."""
Choose = Callable[[Slice], Admission | None]


class Reservation(msgspec.Struct, frozen=True):
    """Room that a slice waits for."""

    slice: Slice
    admission: Admission
    node: Node
    """Of its queue, in the tree as it will be."""


class Reservations:
    """Of one cycle, in the order in which they were made."""

    def __init__(self, use: QuotaUse) -> None:
        self._account = use
        self._choosers: dict[tuple[str, FlavorName], list[Reservation]] = {}
        """By the root of a tree and a flavor: who would look at that flavor, and waits for another."""

    def keep(self, slice: Slice, admission: Admission, queue: ClusterQueue) -> None:
        """Nobody else gets what a slice waits for."""
        self._account.reserve(slice, admission)
        if slice.chain_id in self._account.held:
            # A replacement has the flavors of the slice that it replaces.
            return
        found = Reservation(slice, admission, self._account.later.queues[queue.name])
        for flavor in _others(admission, queue):
            choosers = self._choosers.setdefault((found.node.root.name, flavor), [])
            if len(choosers) < _CHOOSE_AGAIN:
                choosers.append(found)

    @contextmanager
    def chosen_again(self, victims: Sequence[Victim], choose: Choose) -> Iterator[None]:
        """The tree with what the waiting slices choose when the victims, which are out of the tree already, are gone.

        `choose` gives what a slice has then; who has nothing keeps what it has now.
        """
        choosers = self._choosers_of(victims)
        for each in choosers:
            each.node.use_all(_usage(each.slice, each.admission), times=-1)
        chosen: list[Usage] = []
        for each in choosers:
            chosen.append(_usage(each.slice, choose(each.slice) or each.admission))
            each.node.use_all(chosen[-1])
        yield
        for each, usage in zip(choosers, chosen, strict=True):
            each.node.use_all(usage, times=-1)
            each.node.use_all(_usage(each.slice, each.admission))

    def _choosers_of(self, victims: Sequence[Victim]) -> list[Reservation]:
        freed = {
            (victim.candidate.node.root.name, key[0]): None for victim in victims for key in victim.candidate.usage
        }
        found = {each.slice.key: each for key in freed for each in self._choosers.get(key, ())}
        return list(found.values())


def _others(admission: Admission, queue: ClusterQueue) -> set[FlavorName]:
    """The flavors of a queue that a pod set could have had instead."""
    offered = {quota.name for group in queue.resource_groups for quota in group.flavors}
    if len(offered) == 1:
        return set()
    had = [set(assignment.flavors.values()) for assignment in admission.pod_sets]
    return {flavor for flavor in offered if any(flavors - {flavor} for flavors in had)}


def _usage(slice: Slice, admission: Admission) -> Usage:
    return msgspec.structs.replace(slice, admission=admission).usage()
