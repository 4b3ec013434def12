"""Lets slices wait whose budget is spent, and takes quota back that goes on spending one.

Whose budget is spent neither waits in a queue's order nor holds others up: no quota that comes free would admit it.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.placement.flavors import Misfit
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.quota import FlavorResource, by_resource, needs_by_resource
from slicebus.slices.workload.workload import Admission, LocalQueueKey, Slice


class SpentBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget with nothing left that is `hard` or is drained."""

    of: str
    """Whose it is, as `ClusterQueue batch`."""
    resource: str
    allowance: str
    """As `5000h/30d`."""
    back_at: str
    """When something of it comes back at the earliest, a metav1.Time; empty where it is spent again by then."""
    drains: bool

    def __str__(self) -> str:
        return f"The {self.resource} budget of {self.of} is spent: {self.allowance}"


class SpentBudgets(msgspec.Struct, frozen=True):
    """The budgets of which nothing is left."""

    of_queues: Mapping[str, tuple[SpentBudget, ...]] = {}
    """By ClusterQueue: its own, and those of the cohorts above it."""
    of_local_queues: Mapping[LocalQueueKey, tuple[SpentBudget, ...]] = {}

    def refuse(
        self, slice: Slice, queue: str, held: Mapping[FlavorResource, int], admission: Admission | None = None
    ) -> Misfit | None:
        """Why a slice is not admitted by this ClusterQueue; None where it spends of no such budget, or no more than its
        chain, which holds so much. With an `admission` by what it would use by that: a cluster may add to its pods."""
        if not (self.of_queues or self.of_local_queues):
            return None
        has = by_resource(held)
        needs = needs_by_resource(slice) if admission is None else by_resource(usage_of(slice, admission))
        more = {resource for resource, need in needs.items() if need > has.get(resource, 0)}
        return _misfit(spent for spent in self._of(slice, queue) if spent.resource in more)

    def stops_growth(self, holder: Slice) -> bool:
        """Whether a quota holder gets no more than somebody asked for: it would spend more of such a budget."""
        return any(self._used_by(holder))

    def why_drained(self, holder: Slice) -> str:
        """Why a quota holder is evicted; empty where it is not."""
        return "; ".join(str(spent) for spent in self._used_by(holder) if spent.drains)

    def _used_by(self, holder: Slice) -> Iterator[SpentBudget]:
        if holder.admission is None or not (self.of_queues or self.of_local_queues):
            return
        used = by_resource(holder.usage)
        for spent in self._of(holder, holder.admission.cluster_queue):
            if used.get(spent.resource):
                yield spent

    def _of(self, slice: Slice, queue: str) -> tuple[SpentBudget, ...]:
        return self.of_local_queues.get(slice.local_queue, ()) + self.of_queues.get(queue, ())


def _misfit(spent: Iterable[SpentBudget]) -> Misfit | None:
    found = list(spent)
    if not found:
        return None
    back = max((each.back_at for each in found), default="") if all(each.back_at for each in found) else ""
    lacking = f"a larger budget, or time: something comes back from {back} on" if back else "a larger budget, or time"
    return Misfit("; ".join(map(str, found)), lacking, api_names.BUDGET_SPENT)
