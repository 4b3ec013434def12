"""Tries out what a preemption takes from whom: takes it out of the tree of quota, trims it, and puts it back.

A plan is a series of deeds in the order of the search: a chain shrinks by some replicas, or is evicted. It is trimmed
from its last deed to its first, so that a deed comes back before those that the order prefers. What is left is the
least of that order: nothing of it can be spared, and nobody is evicted who could give enough pods.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from slicebus.slices.admission.reductions import Candidate, Offer, Victim, offers
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.quota import FlavorResource, Usage
from slicebus.slices.workload.workload import Counts


class _Loss:
    """What one chain loses in a trial."""

    def __init__(self, candidate: Candidate, reason: PreemptionReason) -> None:
        self.candidate = candidate
        self.reason = reason
        self.given: dict[str, int] = {}
        """The replicas that it gives up, by the offer's name."""
        self._left: Counts = {}
        """The pods that it keeps of those pod sets."""
        self.is_evicted = False
        self.freed: Usage = {}

    def give(self, offer: Offer, replicas: int) -> None:
        """Give up so many replicas, in place of those that it gave up of this offer before."""
        self.given[offer.name] = replicas
        self._left |= offer.left(replicas)
        self._take_out()

    def evict(self, *, undo: bool = False) -> None:
        """Lose everything; `undo` goes back to what it gave up."""
        self.is_evicted = not undo
        self._take_out()

    def put_back(self) -> None:
        """Put back everything into the tree."""
        self.candidate.node.use_all(self.freed)
        self.freed = {}

    def _take_out(self) -> None:
        freed = self.candidate.usage if self.is_evicted else self.candidate.freed(self._left)
        self.put_back()
        self.freed = freed
        self.candidate.node.use_all(freed, times=-1)

    def victim(self) -> Victim | None:
        """The chain as a victim; None where it loses nothing."""
        held = self.candidate.slice.held_counts
        to = None if self.is_evicted else held | self._left
        if to == held:
            return None
        return Victim(candidate=self.candidate, reason=self.reason, freed=self.freed, to=to)


class _Deed(msgspec.Struct, frozen=True):
    """A step of a plan."""

    loss: _Loss
    offer: Offer | None = None
    """What is given up; None where the chain is evicted."""
    before: int = 0
    """The replicas of it that had been given up before."""


class Trial:
    """Takes quota of candidates out of the tree to try what fits. `restore` puts it back."""

    def __init__(self, short: Collection[FlavorResource]) -> None:
        """`short` is what the preemptor has no room for."""
        self._short = short
        self._losses: dict[str, _Loss] = {}
        """By chain, in the order in which they lost first."""
        self._deeds: list[_Deed] = []

    @property
    def victims(self) -> list[Victim]:
        """Those who lose anything so far."""
        return [victim for loss in self._losses.values() if (victim := loss.victim()) is not None]

    def left_of(self, candidate: Candidate) -> Usage:
        """What a candidate still holds."""
        loss = self._losses.get(candidate.slice.chain_id)
        if loss is None:
            return candidate.usage
        return {key: amount - loss.freed.get(key, 0) for key, amount in candidate.usage.items()}

    def evict(self, candidate: Candidate, reason: PreemptionReason) -> None:
        """Take everything of a candidate."""
        loss = self._loss(candidate, reason)
        loss.evict()
        self._deeds.append(_Deed(loss))

    def shrink(self, offer: Offer, reason: PreemptionReason, *, may_go_on: Callable[[], bool]) -> bool:
        """Take replicas of a candidate one by one, as long as one more may go; whether any went.

        `may_go_on` is asked about the tree before the next replica goes. Once it says no, it has to for every further
        one too.
        """
        loss = self._loss(offer.candidate, reason)
        before = low = loss.given.get(offer.name, 0)
        high = offer.most
        while low < high:
            middle = (low + high + 1) // 2
            loss.give(offer, middle - 1)
            low, high = (middle, high) if may_go_on() else (low, middle - 1)
        loss.give(offer, low)
        if low > before:
            self._deeds.append(_Deed(loss, offer, before))
        return low > before

    def trim(self, fits: Callable[[], bool]) -> None:
        """Put back what is not needed, the last deeds first. `fits` holds now, and did not before the last deed."""
        for deed in reversed(self._deeds):
            if deed.offer is None:
                self._trim_eviction(deed.loss, fits, is_last=deed is self._deeds[-1])
            elif not deed.loss.is_evicted:
                _give_least(deed.loss, deed.offer, deed.before, fits)

    def _trim_eviction(self, loss: _Loss, fits: Callable[[], bool], *, is_last: bool) -> None:
        """Leave a chain with what it gave up before, or else let it give up more, if either will do."""
        possible = [*offers(loss.candidate, self._short)]
        if is_last and not possible:
            return
        loss.evict(undo=True)
        if fits():
            return
        for offer in possible:
            loss.give(offer, offer.most)
        if not fits():
            loss.evict()
            return
        for offer in reversed(possible):
            _give_least(loss, offer, 0, fits)

    def restore(self) -> list[Victim]:
        """Put everything back into the tree, and return the victims."""
        victims, losses = self.victims, self._losses
        self._losses, self._deeds = {}, []
        for loss in losses.values():
            loss.put_back()
        return victims

    def _loss(self, candidate: Candidate, reason: PreemptionReason) -> _Loss:
        return self._losses.setdefault(candidate.slice.chain_id, _Loss(candidate, reason))


def _give_least(loss: _Loss, offer: Offer, low: int, fits: Callable[[], bool]) -> None:
    """Let a chain give up as few replicas as will do, no fewer than `low`. What it gives up now does."""
    high = loss.given[offer.name]
    while low < high:
        middle = (low + high) // 2
        loss.give(offer, middle)
        low, high = (low, middle) if fits() else (middle + 1, high)
    loss.give(offer, low)


@contextmanager
def without(victims: Iterable[Victim]) -> Iterator[None]:
    """Take what these victims lose out of the tree, while the context lasts."""
    taken = [(victim.candidate.node, victim.freed) for victim in victims]
    for node, freed in taken:
        node.use_all(freed, times=-1)
    try:
        yield
    finally:
        for node, freed in taken:
            node.use_all(freed)
