"""Counts what is spent of budgets of quota-hours in a rolling window.

A window has 30 slots. What was used longest ago comes back with its slot, whole: so what is spent in any time as long
as the window is counted. Amounts are those of `quantities` times seconds, and times are seconds since 1970.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final

import msgspec

from slicebus.slices.api.budget_values import SLOTS, Allowance, BudgetMode

NEARLY: Final = 0.8
"""From this share on a budget is nearly spent."""
Amount = Annotated[int, msgspec.Meta(ge=0)]


class Spending(msgspec.Struct, frozen=True):
    """What a queue has spent, as conditions of its status have it (`spending_texts`)."""

    at: int
    """Until then it is counted."""
    using: Mapping[str, int] = {}
    """What is used from then on, by resource."""
    spent: Mapping[str, Mapping[int, Mapping[int, int]]] = {}
    """By resource, length of the slots and number of the slot."""

    def of(self, resource: str, slot_s: int) -> Mapping[int, int]:
        """What was spent of a resource, by slots of this length."""
        return self.spent.get(resource, {}).get(slot_s, {})


class Arrival(msgspec.Struct, frozen=True):
    """Use that has begun since the spending was counted."""

    since: int
    using: Mapping[str, int]


SlotLengths = Mapping[str, Collection[int]]
"""The lengths of the slots that are counted, by resource."""


def counted(
    before: Spending | None, lengths: SlotLengths, using: Mapping[str, int], arrivals: Iterable[Arrival], *, now: int
) -> Spending:
    """The spending until now. `using` is what is used now.

    What was used then counts until now, and each arrival from its beginning: somebody who has left since is counted
    for too long, and nobody for too short. What was not counted by slots of a length counts from now on.
    """
    if before is None:
        before = Spending(at=now)
    at = min(before.at, now)
    begun = [(at, before.using), *((max(at, arrival.since), arrival.using) for arrival in arrivals)]
    spent: dict[str, dict[int, Mapping[int, int]]] = {}
    for resource, slots in sorted(lengths.items()):
        for slot_s in sorted(slots):
            found = dict(before.of(resource, slot_s))
            was_counted = slot_s in before.spent.get(resource, {})
            for since, rates in begun if was_counted else ():
                _spend(found, rates.get(resource, 0), slot_s, since=since, until=now)
            last = now // slot_s
            kept = {index: value for index, value in sorted(found.items()) if last - SLOTS <= index <= last and value}
            spent.setdefault(resource, {})[slot_s] = kept
    return Spending(at=now, using={resource: using.get(resource, 0) for resource in spent}, spent=spent)


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one budget."""

    of: str
    """Whose it is, as `ClusterQueue batch`."""
    resource: str
    allowance: Allowance
    mode: BudgetMode
    using: int
    """What is used now."""
    slots: Mapping[int, int]
    """What was spent, by slot."""
    now: int

    @property
    def spent(self) -> int:
        """What was spent in the window."""
        return self._spent_at(self.now)

    @property
    def share(self) -> float:
        """What is spent, as a part of the budget."""
        return self.spent / self.allowance.amount

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.allowance.amount

    @property
    def back_at(self) -> int | None:
        """When something of it comes back at the earliest, if nothing more is spent; None where it is not spent."""
        if not self.is_spent:
            return None
        slot_s = self.allowance.slot_s
        ends = ((index + SLOTS + 1) * slot_s for index in sorted(self.slots))
        return next((end for end in ends if end > self.now and self._spent_at(end) < self.allowance.amount), None)

    @property
    def changes_at(self) -> int | None:
        """When it is nearly spent, spent or back, if it is used as it is now; or when that is to be asked again. None
        where time alone changes nothing."""
        limits = [int(self.allowance.amount * part) for part in (NEARLY, 1.0) if self.share < part]
        times = [self.now + max(1, -(-(limit - self.spent) // self.using)) for limit in limits if self.using]
        if self.share >= NEARLY:
            times.append((self.now // self.allowance.slot_s + 1) * self.allowance.slot_s)
        return min(times, default=None)

    def _spent_at(self, moment: int) -> int:
        last = moment // self.allowance.slot_s
        return sum(value for index, value in self.slots.items() if last - SLOTS <= index <= last)


def _spend(slots: dict[int, int], rate: int, slot_s: int, *, since: int, until: int) -> None:
    """Add what is spent from then on until then. What came before the window is left out."""
    begin = max(since, (until // slot_s - SLOTS) * slot_s)
    while rate and begin < until:
        index = begin // slot_s
        end = min(until, (index + 1) * slot_s)
        slots[index] = slots.get(index, 0) + rate * (end - begin)
        begin = end
