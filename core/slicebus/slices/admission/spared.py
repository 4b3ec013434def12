"""Leaves victims what their preemptor does not need after all: in other flavors than it sought victims for, or where
all of them gave what they can, it may need less."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from slicebus.slices.admission.reductions import Offer, Victim, offers

IsEnough = Callable[[Sequence[Victim]], bool]


def enough_of(victims: Sequence[Victim], is_enough: IsEnough) -> list[Victim]:
    """The victims without those that are not needed, the last ones first, and each with as many pods as it can keep.

    `is_enough` holds for all that they lose. Where it holds for a part, it has to hold for more of that.
    """
    kept = [*victims]
    for at in reversed(range(len(kept))):
        before, after = kept[:at], kept[at + 1 :]
        if (before or after) and is_enough([*before, *after]):
            del kept[at]
        else:
            kept[at] = _least(kept[at], lambda victim: is_enough([*before, victim, *after]))  # noqa: B023 called at once
    return kept


def _least(victim: Victim, is_enough: Callable[[Victim], bool]) -> Victim:
    """The victim with as few pods less as will do, or evicted where nothing less will."""
    possible = [*offers(victim.candidate, victim.freed)]
    if victim.to is None:
        shrunk = victim
        for offer in possible:
            shrunk = _without(shrunk, offer, offer.most)
        if not possible or not is_enough(shrunk):
            return victim
        victim = shrunk
    for offer in reversed(possible):
        less = partial(_without, victim, offer)
        victim = less(bisect_left(range(_lost(victim, offer)), True, key=lambda count: is_enough(less(count))))
    return victim


def _without(victim: Victim, offer: Offer, replicas: int) -> Victim:
    to = {**victim.candidate.slice.held_counts, **(victim.to or {}), **offer.left(replicas)}
    return replace(victim, to=to, freed=victim.candidate.freed(to))


def _lost(victim: Victim, offer: Offer) -> int:
    """How many replicas of an offer a victim loses that shrinks."""
    assert victim.to is not None
    held, step = victim.candidate.slice.held_counts[offer.name], offer.pods[offer.name]
    return -(-held // step) - victim.to[offer.name] // step
