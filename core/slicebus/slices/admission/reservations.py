"""Reserves quota for slices that wait for evicted workloads, and predicts the flavors that they choose next.

A waiting slice has its flavors chosen again in every cycle. One that reserved its second choice, because the first was
in use, returns to the first when that comes free. A preemptor that counted on the reservations as they are would then
find the room taken, and its victim would come back: the two would evict each other for ever.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from slicebus.slices.admission.reductions import Victim
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import Admission, FlavorName, Slice

_CHOOSE_AGAIN = 16
"""Most slices of a tree that choose again in each flavor, the first ones. It is a bound: every preemption does it."""
Choose = Callable[[Slice], Admission | None]


class Reservation(msgspec.Struct, frozen=True):
    """The admission that a slice waits for."""

    slice: Slice
    admission: Admission
    node: Node
    """The node of its queue in the projected tree."""


class Reservations:
    """Keeps the reservations of one cycle, in order."""

    def __init__(self, use: QuotaUse) -> None:
        self._use = use
        self._choosers: dict[tuple[str, FlavorName], list[Reservation]] = {}
        """By root and flavor: the reservations that hold another flavor and would prefer this one."""

    def keep(self, slice: Slice, admission: Admission, queue: ClusterQueue) -> None:
        """Reserve what a slice waits for."""
        self._use.reserve(slice, admission)
        if self._use.holder(slice.chain_id):
            # A replacement has the flavors of the slice that it replaces, but for pod sets that had no pods.
            return
        reservation = Reservation(slice, admission, self._use.projected.queues[queue.name])
        for flavor in _alternatives(admission, queue):
            choosers = self._choosers.setdefault((reservation.node.root.name, flavor), [])
            if len(choosers) < _CHOOSE_AGAIN:
                choosers.append(reservation)

    @contextmanager
    def chosen_again(self, victims: Sequence[Victim], choose: Choose) -> Iterator[None]:
        """Count the flavors that waiting slices choose once the victims are gone, while the context lasts.

        The tree does not count the victims any more. `choose` returns a slice's new admission, or None to keep the old.
        """
        choosers = self._choosers_of(victims)
        with ExitStack() as put_back:
            for reservation in choosers:
                reserved = usage_of(reservation.slice, reservation.admission)
                reservation.node.use_all(reserved, times=-1)
                put_back.callback(reservation.node.use_all, reserved)
            for reservation in choosers:
                chosen = usage_of(reservation.slice, choose(reservation.slice) or reservation.admission)
                reservation.node.use_all(chosen)
                put_back.callback(reservation.node.use_all, chosen, times=-1)
            yield

    def _choosers_of(self, victims: Sequence[Victim]) -> list[Reservation]:
        freed = {(victim.candidate.node.root.name, key[0]): None for victim in victims for key in victim.freed}
        choosers = {chooser.slice.key: chooser for key in freed for chooser in self._choosers.get(key, ())}
        return list(choosers.values())


def _alternatives(admission: Admission, queue: ClusterQueue) -> set[FlavorName]:
    """The flavors of a queue that a pod set could have had instead."""
    offered = {quota.name for group in queue.resource_groups for quota in group.flavors}
    if len(offered) == 1:
        return set()
    had = [set(assignment.flavors.values()) for assignment in admission.pod_sets]
    return {flavor for flavor in offered if any(flavors - {flavor} for flavors in had)}
