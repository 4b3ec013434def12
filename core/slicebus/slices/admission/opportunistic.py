"""Gives pods that nobody asked for to whoever waits. No assessment counts them: the projected tree leaves them out.

Who would fit without them waits until as few of them are gone as it needs: whole replicas, of the lowest priority
first, whatever the preemption policies say.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slicebus.slices.admission.reductions import Candidate, Offer, Victim, left_of
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.admission.trials import Trial
from slicebus.slices.admission.usage import QuotaUse
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.placement.placement import Placer
from slicebus.slices.quota.quota import Usage
from slicebus.slices.workload.workload import Counts, Slice


def with_opportunistic(snapshot: Snapshot) -> list[Slice]:
    """The quota holders with pods that are free for others. Whoever waits for more than it has, wants all of that."""
    untouched = snapshot.unevictable | snapshot.unshrinkable
    wants_more = {slice.chain_id for slice in snapshot.part.waiting if not slice.grows_unasked}
    return [
        slice
        for slice in snapshot.part.opportunistic
        if slice.chain_id not in wants_more
        and slice.key not in untouched
        and slice.admission is not None
        and slice.admission.cluster_queue in snapshot.cluster_queues
    ]


class Opportunistic:
    """Knows which opportunistic pods nobody has taken yet, in one cycle."""

    def __init__(self, use: QuotaUse, placer: Placer) -> None:
        """`placer` leaves them out when it is projected."""
        self._use = use
        self._placer = placer
        self._left = {slice.chain_id: left for slice, left in use.opportunistic}
        """The chains without any of them, and what they hold then."""
        self._chains = {slice.chain_id: self._candidate(slice, slice.shrinks_to) for slice, _ in use.opportunistic}
        """The chains with those that nobody has taken."""

    @property
    def is_empty(self) -> bool:
        """Whether there were none from the beginning."""
        return not self._chains

    def take(self, fits: Callable[[], bool]) -> list[Victim]:
        """Take as many as are needed; none where it fits already, or would not fit without all of them.

        `fits` is asked about the projected trees and clusters, with the pods that are left.
        """
        candidates = sorted(self._candidates(), key=lambda pair: pair[0].order)
        trial = Trial(())

        def fits_there() -> bool:
            pairs = [(victim.candidate.slice, victim.left.slice) for victim in trial.victims]
            self._placer.shrink(pairs)
            has_room = fits()
            self._placer.shrink(pairs, times=-1)
            return has_room

        with self.counted():
            if not candidates or fits_there():
                return []
            for offer in (offer for candidate, left in candidates for offer in _offers(candidate, left)):
                taken = trial.shrink(offer, PreemptionReason.OPPORTUNISTIC, may_go_on=lambda: not fits_there())
                if taken and fits_there():
                    trial.trim(fits_there)
                    return self._note(trial.restore())
            trial.restore()
        return []

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count those that nobody has taken in the projected tree, and in the projected clusters, while the context
        lasts."""
        candidates = self._candidates()
        more = [(candidate.node, _difference(candidate.usage, left[1])) for candidate, left in candidates]
        pairs = [(candidate.slice, left[0]) for candidate, left in candidates]
        for node, usage in more:
            node.use_all(usage)
        self._placer.shrink(pairs, times=-1)
        try:
            yield
        finally:
            self._placer.shrink(pairs)
            for node, usage in more:
                node.use_all(usage, times=-1)

    def _candidates(self) -> list[tuple[Candidate, tuple[Slice, Usage]]]:
        """The chains with opportunistic pods that nobody has taken, each with what is left of it without those."""
        found = []
        for chain_id, candidate in self._chains.items():
            left, usage = self._left[chain_id]
            # Whoever loses more than its opportunistic pods in this cycle loses those too.
            is_whole = self._use.left_of(candidate.slice) is left
            if is_whole and candidate.slice.held_counts != left.held_counts:
                found.append((candidate, (left, usage)))
        return found

    def _candidate(self, slice: Slice, kept: Counts | None) -> Candidate:
        """A chain with no more than these pods; None for all of them."""
        assert slice.admission is not None
        node = self._use.projected.queues[slice.admission.cluster_queue]
        usage = self._use.own(node.name, slice)
        if kept is None:
            return Candidate(slice=slice, node=node, usage=usage)
        return Candidate(slice=slice.at_most(kept), node=node, usage=left_of(usage, slice, kept))

    def _note(self, victims: list[Victim]) -> list[Victim]:
        for victim in victims:
            self._chains[victim.candidate.slice.chain_id] = victim.left
            self._use.note_losing(victim.candidate.slice)
        return victims


def _offers(candidate: Candidate, left: tuple[Slice, Usage]) -> Iterator[Offer]:
    """The replicas that nobody asked for, by pod set in the order of the spec."""
    slice, to = candidate.slice, left[0].held_counts
    for pod_set, held in slice.held_counts.items():
        step = slice.replica_sizes.get(pod_set, 1)
        if (most := -(-held // step) - to[pod_set] // step) > 0 and held > to[pod_set]:
            yield Offer(candidate=candidate, pods={pod_set: step}, most=most)


def _difference(usage: Usage, left: Usage) -> Usage:
    return {key: more for key, amount in usage.items() if (more := amount - left.get(key, 0)) > 0}
