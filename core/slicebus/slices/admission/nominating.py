"""Nominates flavors for a slice, with the room that there is now and after the evictions of a cycle."""

from collections.abc import Callable, Mapping

import msgspec

from slicebus.slices.admission.opportunistic import Opportunistic
from slicebus.slices.admission.preemption import Claim
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.admission.victims import Search, no_victims
from slicebus.slices.placement.flavors import Misfit, Mode, Nomination, Room, assign, assign_part, nominate
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.quota import ClusterQueue, ResourceFlavor
from slicebus.slices.workload.workload import Admission, Slice


class Nominator:
    """Nominates flavors in one cycle."""

    def __init__(
        self,
        flavors: Mapping[str, ResourceFlavor],
        use: QuotaUse,
        search: Search,
        opportunistic: Opportunistic,
        claim_of: Callable[[Slice], Claim],
    ) -> None:
        self._flavors = flavors
        self._use = use
        self._search = search
        self._opportunistic = opportunistic
        self._claim_of = claim_of

    def room(self, slice: Slice, queue: ClusterQueue) -> Room:
        """What a slice may use of its queue."""
        current, projected = (forest.queues[queue.name] for forest in (self._use.current, self._use.projected))
        return Room(
            queue,
            self._flavors,
            current,
            projected if projected is not current else None,
            self._search.assess_preemption(slice, queue),
            may_preempt_to_borrow=self._search.may_preempt_to_borrow(queue),
        )

    def nominate(self, slice: Slice, room: Room, replaced: Slice | None) -> Nomination | Misfit:
        """The flavors that a slice could be assigned, or why it could be assigned none."""
        nomination = nominate(slice, room, replaced=replaced)
        if (
            isinstance(nomination, Nomination)
            and Mode.NO_FIT < nomination.mode < Mode.AFTER_EVICTION
            and self._claim_of(slice) is not Claim.NONE
        ):
            # Its victims are leaving. It gets no more of them while it fits once they are gone.
            kept = nominate(slice, msgspec.structs.replace(room, victims=no_victims), replaced=replaced)
            nomination = kept if isinstance(kept, Nomination) and kept.mode >= Mode.AFTER_EVICTION else nomination
        misfit = nomination if isinstance(nomination, Misfit) else nomination.misfit
        fits_now = isinstance(nomination, Nomination) and nomination.mode is Mode.FIT
        if self._use.is_apart(room.queue.name) and not (fits_now and self._opportunistic.is_empty):
            # After the evictions it may fit in other flavors than those with room now. It reserves those that it
            # chooses then, as others count on (`Reservations.chosen_again`), whatever comes free before.
            later = nominate(slice, room.later, replaced=replaced)
            if isinstance(later, Nomination) and later.mode is Mode.FIT:
                if isinstance(nomination, Nomination) and fits_now:
                    # Pods that nobody asked for make no queue a borrower.
                    return msgspec.structs.replace(nomination, distance=later.distance)
                if room.node.has_room(usage_of(slice, later.admission)):
                    return later  # Its queue would rather preempt, but nothing has to go: there is nobody to wait for.
                return msgspec.structs.replace(later, mode=Mode.AFTER_EVICTION, misfit=misfit)
        if isinstance(nomination, Nomination) and nomination.mode > Mode.NO_CANDIDATES:
            return nomination
        if (spared := self.without_victims(slice, room, replaced)) is not None:
            return spared
        if slice.partial and replaced is not None and not self._opportunistic.is_empty:
            part = assign_part(slice, room.later, replaced=replaced)
            if part is not None:
                return Nomination(admission=part, mode=Mode.AFTER_EVICTION, misfit=misfit)
        return nomination

    def without_victims(self, slice: Slice, room: Room, replaced: Slice | None) -> Nomination | None:
        """Nominate the slice in later flavors than those that its queue would preempt for, or else a part of it."""
        if room.queue.fungibility.may_rather_preempt:
            nomination = nominate(slice, msgspec.structs.replace(room, victims=None), replaced=replaced)
            if isinstance(nomination, Nomination) and nomination.mode is Mode.FIT:
                return nomination
        part = assign_part(slice, room, replaced=replaced) if slice.partial and replaced is not None else None
        return Nomination(admission=part, mode=Mode.FIT) if part is not None else None


def after_evictions(slice: Slice, room: Room, replaced: Slice | None = None) -> Admission | None:
    """What a slice is assigned once everybody has gone who is evicted."""
    assigned = assign(slice, room.later, replaced=replaced)
    return assigned if isinstance(assigned, Admission) else None
