"""What is spent of budgets, and what a cycle may decide where one is spent.

What the status of a queue says that it has spent goes up by what its slices held since, and by no more than what they
held together. Nobody is admitted who would spend more of a budget that is spent, and who spends of a drained one goes.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

from simulation.violations import Violation
from slicebus.manager.state.budgets import spending_said
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.admission.budget_limit import SpentBudget
from slicebus.slices.admission.cycle import Admit, Decision, Evict
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.quota.budgets import Spending
from slicebus.slices.quota.quota import Usage, usage_by_chain
from slicebus.slices.workload.workload import Slice, SliceKey
from support.usage import total_by_queue

Manifest = dict[str, Any]
Clock = Callable[[], datetime]
_CPU = "cpu"
_MARGIN_S = 3.0
"""Times on objects are whole seconds, and the time of a write is not that of the decision."""
_KEPT_S = 600.0


class BudgetRules:
    """Counts what the slices of each ClusterQueue hold, beside the manager, and compares."""

    def __init__(self, slices: Mapping[SliceKey, Slice]) -> None:
        self._slices = slices
        """Of the manager, as they are now."""
        self._held: dict[str, list[tuple[float, int]]] = {}
        """What each ClusterQueue holds, and since when."""
        self._said: dict[str, tuple[Spending, Clock]] = {}
        """What each has said last, and by which clock."""

    def see_slice(self) -> None:
        """A slice has changed."""
        now_s = asyncio.get_running_loop().time()
        unfinished = (slice.without_observed() for slice in self._slices.values() if not slice.finished)
        totals = total_by_queue(usage_by_chain(unfinished))
        for queue in totals.keys() | self._held.keys():
            held, total = self._held.setdefault(queue, [(0.0, 0)]), _cpu(totals.get(queue, {}))
            if held[-1][1] != total:
                held.append((now_s, total))
            while len(held) > 1 and held[1][0] < now_s - _KEPT_S:
                del held[0]

    def see_queue(self, change: HistoryEntry, clock: Clock | None) -> None:
        """A ClusterQueue has changed: raise Violation where one process counts otherwise than its slices tell. Another
        process may have another clock."""
        spending, name = spending_said(change.object), change.key[3]
        before = self._said.pop(name, None)
        if spending is None or change.type == "DELETED" or (clock is None and before is None):
            return
        if before is not None and (clock is None or before[0] == spending):
            self._said[name] = before
            return
        assert clock is not None
        self._said[name] = spending, clock
        if before is not None and before[1] is clock:
            self._check(name, before[0], spending, clock)

    def _check(self, queue: str, before: Spending, spending: Spending, clock: Clock) -> None:
        began_s, ended_s = (_loop_time(clock, one.at) for one in (before, spending))
        held = self._held.get(queue, [(0.0, 0)])
        least = _integral(held, began_s, ended_s)
        meanwhile = [amount for at_s, amount in held if began_s - _MARGIN_S < at_s <= ended_s + _MARGIN_S]
        levels = [_at(held, began_s - _MARGIN_S), *meanwhile]
        rise = sum(max(0, new - old) for old, new in pairwise(levels))
        most = max(before.using.get(_CPU, 0), levels[0]) + rise
        for slot_s in before.spent.get(_CPU, {}).keys() & spending.spent.get(_CPU, {}).keys():
            new, first = spending.of(_CPU, slot_s), spending.at // slot_s - 30
            old = {slot: value for slot, value in before.of(_CPU, slot_s).items() if slot >= first}
            more, margin = sum(new.values()) - sum(old.values()), _MARGIN_S * most
            least_kept = _integral(held, max(began_s, ended_s - 30 * slot_s), ended_s)
            if not min(least, least_kept) - margin <= more <= most * (spending.at - before.at) + margin:
                raise Violation(
                    f"budgets: {queue} says that it has spent {more} more of {_CPU} in {spending.at - before.at} s, "
                    f"of at least {least:.0f} and at most {most} at a time"
                )


def check(snapshot: Snapshot, decided: Iterable[Decision]) -> None:
    """Raise Violation for a decision that spends more of a spent budget, or leaves somebody who does."""
    spent = snapshot.spent_budgets
    if not (spent.of_queues or spent.of_local_queues):
        return
    waiting, evicted = {slice.key: slice for slice in snapshot.part.waiting}, set[SliceKey]()
    for each in decided:
        if isinstance(each, Evict):
            evicted.add(each.key)
        if isinstance(each, Admit):
            slice, queue = waiting[each.key], each.admission.cluster_queue
            held = snapshot.part.holdings.used_by(slice.chain_id).get(queue, {})
            for one in _of(snapshot, slice, queue):
                more = sum(each.usage.get(one.resource, 0) for each in each.admission.pod_sets)
                if more > _amount(held, one.resource):
                    raise Violation(f"budgets: {each.key} is admitted, and the budget of {one.of} is spent")
    for queue in snapshot.cluster_queues:
        for holder in snapshot.part.holdings.holders_in(queue):
            drains = [one for one in _of(snapshot, holder, queue) if one.drains and _amount(holder.usage, one.resource)]
            # An admission without an answer counts, and nobody evicts what may not be there.
            if drains and holder.keeps_quota and holder.admitted and holder.key not in evicted:
                raise Violation(f"budgets: {holder.key} keeps its quota, and {drains[0].of} is drained")


def _of(snapshot: Snapshot, slice: Slice, queue: str) -> list[SpentBudget]:
    spent = snapshot.spent_budgets
    return [*spent.of_queues.get(queue, ()), *spent.of_local_queues.get(slice.local_queue, ())]


def _amount(usage: Usage, wanted: str) -> int:
    return sum(value for (_, resource), value in usage.items() if resource == wanted)


def _cpu(usage: Usage) -> int:
    return _amount(usage, _CPU)


def _loop_time(clock: Clock, at: int) -> float:
    return asyncio.get_running_loop().time() - (clock().timestamp() - at)


def _at(held: list[tuple[float, int]], moment_s: float) -> int:
    return next((amount for at_s, amount in reversed(held) if at_s <= moment_s), 0)


def _integral(held: list[tuple[float, int]], began_s: float, ended_s: float) -> float:
    total = 0.0
    for (at_s, amount), (until_s, _) in zip(held, [*held[1:], (ended_s, 0)], strict=True):
        total += amount * max(0.0, min(until_s, ended_s) - max(at_s, began_s))
    return total
