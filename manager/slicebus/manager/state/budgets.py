"""Knows what is spent of the budgets of queues and cohorts, from the objects alone.

The status of each queue says what it had spent when its use last changed, and what it used from then on. So what is
spent now follows without a write, and a manager that takes over counts on. A cohort spends what its queues spend.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from slicebus.kube.cache import Cache
from slicebus.kube.times import unix_time_text
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.budget_limit import SpentBudget, SpentBudgets
from slicebus.slices.api import api_names
from slicebus.slices.api.budget_values import Budget, BudgetMode
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import add
from slicebus.slices.quota.budgets import Arrival, Balance, SlotLengths, Spending, counted
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue, by_resource
from slicebus.slices.quota.spending_texts import MOST_COUNTED, MOST_TEXTS, spending_in
from slicebus.slices.workload.workload import LocalQueueKey, Slice

Spender = ClusterQueue | LocalQueue
"""Whose status says what it has spent."""
BudgetOwner = Spender | Cohort
SPENDING_CONDITIONS = (
    api_names.SPENDING_CONDITION,
    *(f"{api_names.SPENDING_CONDITION}-{number}" for number in range(2, MOST_TEXTS + 1)),
)
"""Those whose messages are the account of a queue; the first one is always there."""


class BudgetWorld(msgspec.Struct, frozen=True, kw_only=True):
    """The objects whose budgets are counted."""

    cluster_queues: Mapping[str, ClusterQueue]
    cohorts: Mapping[str, Cohort]
    local_queues: Mapping[LocalQueueKey, LocalQueue]
    """Those that have a budget."""
    cluster_queue_objects: Cache
    local_queue_objects: Cache
    ledger: Ledger

    def cohorts_of(self, queue: ClusterQueue) -> list[Cohort]:
        """The cohorts above a queue that exist, the nearest one first."""
        found: dict[str, Cohort] = {}
        name = queue.cohort
        while name in self.cohorts and name not in found:
            found[name] = self.cohorts[name]
            name = self.cohorts[name].parent
        return list(found.values())

    def _names_above(self, queue: ClusterQueue) -> Collection[str]:
        return [cohort.name for cohort in self.cohorts_of(queue)]

    def lengths_of(self, queue: Spender) -> SlotLengths:
        """The slots by which a queue's spending is counted: for its own budget, and for those of its cohorts, the
        nearest ones first, as far as its account has room."""
        lengths: dict[str, set[int]] = {}
        for resource, slot_s in islice(dict.fromkeys(self._pairs_of(queue)), MOST_COUNTED):
            lengths.setdefault(resource, set()).add(slot_s)
        return lengths

    def uncounted(self, queue: ClusterQueue) -> dict[str, list[str]]:
        """The resources with a budget for which a queue's account has no room, by whose that is: what the queue uses of
        them is not among what is spent there."""
        counted, found = self.lengths_of(queue), dict[str, list[str]]()
        owners: list[BudgetOwner] = [queue, *self.cohorts_of(queue)]
        for owner in owners:
            for resource, allowance in owner.budget.allowances.items() if owner.budget is not None else ():
                if allowance.slot_s not in counted.get(resource, ()):
                    found.setdefault(_name_of(owner), []).append(resource)
        return found

    def _pairs_of(self, queue: Spender) -> Iterator[tuple[str, int]]:
        above = self.cohorts_of(queue) if isinstance(queue, ClusterQueue) else ()
        for budget in (queue.budget, *(cohort.budget for cohort in above)):
            for resource, allowance in budget.allowances.items() if budget is not None else ():
                yield resource, allowance.slot_s

    def spending_of(self, queue: Spender, moment: datetime) -> Spending | None:
        """What a queue has spent until then; None where no budget needs that."""
        lengths = self.lengths_of(queue)
        if not lengths:
            return None
        before, using, now = spending_said(self._object_of(queue)), self.using_of(queue), int(moment.timestamp())
        is_same = before is not None and all(before.using.get(each, 0) == using.get(each, 0) for each in lengths)
        arrivals = self._arrivals(queue, before) if before is not None and not is_same else ()
        return counted(before, lengths, using, arrivals, now=now)

    def using_of(self, queue: Spender) -> Mapping[str, int]:
        """What a queue uses now, by resource."""
        if isinstance(queue, ClusterQueue):
            return by_resource(self.ledger.holdings.totals.get(queue.name, {}))
        used: Mapping[str, int] = {}
        for name in self._held_in(queue):
            used = add(used, by_resource(self.ledger.used_in.totals[queue.key, name]))
        return used

    def _held_in(self, queue: Spender) -> list[str]:
        """The ClusterQueues whose quota a queue's jobs hold: of a LocalQueue also those that it has asked before."""
        if isinstance(queue, ClusterQueue):
            return [queue.name]
        names = dict.fromkeys([queue.cluster_queue, *self.cluster_queues])
        return [name for name in names if (queue.key, name) in self.ledger.used_in.totals]

    def own(self, owner: BudgetOwner, moment: datetime) -> Iterator[Balance]:
        """What is left of the budget of one queue or cohort, by resource."""
        return self._of_cohort(owner, moment) if isinstance(owner, Cohort) else self._of_queue(owner, moment)

    def balances_of(self, queue: Spender, moment: datetime) -> list[Balance]:
        """What is left of the budgets that a queue spends of: its own, and those of its cohorts."""
        above = self.cohorts_of(queue) if isinstance(queue, ClusterQueue) else ()
        return [balance for owner in (queue, *above) for balance in self.own(owner, moment)]

    def balances(self, moment: datetime) -> list[Balance]:
        """What is left of every budget."""
        queues, locals, cohorts = self.cluster_queues, self.local_queues, self.cohorts
        owners: list[BudgetOwner] = [*queues.values(), *locals.values(), *cohorts.values()]
        return [balance for owner in owners for balance in self.own(owner, moment)]

    def spent(self, cluster_queues: Collection[ClusterQueue], moment: datetime) -> SpentBudgets:
        """The budgets of these queues of which nothing is left."""
        of_cohorts: dict[str, Sequence[SpentBudget]] = {}

        def in_cohort(cohort: Cohort) -> Sequence[SpentBudget]:
            if cohort.name not in of_cohorts:
                of_cohorts[cohort.name] = _spent(self._of_cohort(cohort, moment))
            return of_cohorts[cohort.name]

        queues: dict[str, tuple[SpentBudget, ...]] = {}
        for queue in cluster_queues:
            found = list(_spent(self.own(queue, moment)))
            for cohort in self.cohorts_of(queue):
                found += in_cohort(cohort)
            if found:
                queues[queue.name] = tuple(found)
        names = {queue.name for queue in cluster_queues}
        members = (queue for queue in self.local_queues.values() if not names.isdisjoint(self._spends_in(queue)))
        own = {queue.key: _spent(self.own(queue, moment)) for queue in members}
        return SpentBudgets(queues, {key: found for key, found in own.items() if found})

    def draining(self, holder: Slice) -> set[str]:
        """The budgets that take quota back from this holder when they are spent, in the words of its eviction."""
        queue = self.cluster_queues.get(holder.admission.cluster_queue) if holder.admission is not None else None
        local = self.local_queues.get(holder.local_queue)
        owners: list[BudgetOwner] = [queue, *self.cohorts_of(queue)] if queue is not None else []
        owners += [local] if local is not None else []
        return {
            str(SpentBudget(of=_name_of(owner), resource=resource, allowance=allowance.text, back_at="", drains=True))
            for owner in owners
            if owner.budget is not None and owner.budget.drains
            for resource, allowance in owner.budget.allowances.items()
        }

    def _spends_in(self, queue: LocalQueue) -> list[str]:
        return [queue.cluster_queue, *self._held_in(queue)]

    def _of_queue(self, queue: Spender, moment: datetime) -> Iterator[Balance]:
        if queue.budget is None or (spending := self.spending_of(queue, moment)) is None:
            return
        yield from _balances(_name_of(queue), queue.budget, [spending], moment)

    def _of_cohort(self, cohort: Cohort, moment: datetime) -> Iterator[Balance]:
        if cohort.budget is None:
            return
        below = (queue for queue in self.cluster_queues.values() if cohort.name in self._names_above(queue))
        spendings = [found for queue in below if (found := self.spending_of(queue, moment)) is not None]
        yield from _balances(_name_of(cohort), cohort.budget, spendings, moment)

    def _object_of(self, queue: Spender) -> Manifest | None:
        if isinstance(queue, ClusterQueue):
            return self.cluster_queue_objects.get(None, queue.name)
        return self.local_queue_objects.get(*queue.key)

    def _arrivals(self, queue: Spender, last: Spending) -> Iterator[Arrival]:
        """What chains use in addition to what was used at the last count: what they have got since, and what was not
        known then, as its write took long."""
        held = Counter[str]()
        pairs = ((name, holder) for name in self._held_in(queue) for holder in self.ledger.holdings.holders_in(name))
        for cluster_queue, holder in pairs:
            if not (isinstance(queue, ClusterQueue) or holder.local_queue == queue.key):
                continue
            since, chain = _reserved(holder), self.ledger.chain(holder.chain_id)
            is_in_it = holder.admission is not None and holder.admission.cluster_queue == cluster_queue
            then = holder if is_in_it and since <= last.at else _holder_at(chain, cluster_queue, last.at)
            held.update(by_resource(then.admitted_usage) if then is not None else {})
            if since > last.at:
                before = by_resource(then.usage) if then is not None else {}
                now = by_resource(self.ledger.holdings.used_by(holder.chain_id).get(cluster_queue, {}))
                more = {resource: max(0, value - before.get(resource, 0)) for resource, value in now.items()}
                yield Arrival(since=since, using=more)
        unknown = {resource: value - last.using.get(resource, 0) for resource, value in held.items()}
        yield Arrival(since=last.at, using={resource: value for resource, value in unknown.items() if value > 0})


def spending_said(manifest: Manifest | None) -> Spending | None:
    """What the status of a queue says of its spending."""
    conditions = conditions_of(manifest) if manifest is not None else ()
    return spending_in(each.get("message") or "" for each in conditions if each["type"] in SPENDING_CONDITIONS)


def _name_of(owner: BudgetOwner) -> str:
    name = f"{owner.namespace}/{owner.name}" if isinstance(owner, LocalQueue) else owner.name
    return f"{type(owner).__name__} {name}"


def _balances(of: str, budget: Budget, spendings: Sequence[Spending], moment: datetime) -> Iterator[Balance]:
    for resource, allowance in budget.allowances.items():
        slots: Mapping[int, int] = {}
        for spending in spendings:
            slots = add(slots, spending.of(resource, allowance.slot_s))
        yield Balance(
            of=of,
            resource=resource,
            allowance=allowance,
            mode=budget.mode,
            using=sum(spending.using.get(resource, 0) for spending in spendings),
            slots=slots,
            now=int(moment.timestamp()),
        )


def _spent(balances: Iterable[Balance]) -> tuple[SpentBudget, ...]:
    return tuple(
        SpentBudget(
            of=balance.of,
            resource=balance.resource,
            allowance=balance.allowance.text,
            back_at=text_of(balance.back_at),
            drains=balance.mode is BudgetMode.DRAIN,
        )
        for balance in balances
        if balance.is_spent and balance.mode is not BudgetMode.SOFT
    )


def text_of(moment_s: int | None) -> str:
    """A time as metav1.Time; empty for none."""
    return unix_time_text(moment_s) if moment_s is not None else ""


def _reserved(slice: Slice) -> int:
    """Since when a slice holds its quota."""
    since = slice.conditions.get(Condition.QUOTA_RESERVED, {}).get("lastTransitionTime", slice.created)
    return int(datetime.fromisoformat(since).timestamp())


def _holder_at(chain: Iterable[Slice], cluster_queue: str, at: int) -> Slice | None:
    """The slice by which a chain held quota of a queue then, as far as its slices still say."""
    held = [
        slice
        for slice in chain
        if slice.admission is not None and slice.admission.cluster_queue == cluster_queue and _reserved(slice) <= at
    ]
    return held[-1] if held else None
