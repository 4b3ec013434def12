"""Says what is left of the budgets that a job spends of, for people."""

from datetime import datetime

import msgspec

from slicebus.manager.state.budgets import Spender, text_of
from slicebus.manager.state.quota_trees import Quotas
from slicebus.slices.api.budget_values import hours_text
from slicebus.slices.quota.budgets import Balance
from slicebus.slices.workload.workload import LocalQueueKey


class BudgetLeft(msgspec.Struct, frozen=True, kw_only=True):
    """One budget. Amounts are as in `5000h`."""

    of: str
    """Whose it is, as `ClusterQueue batch`."""
    resource: str
    budget: str
    """As somebody wrote it, `5000h/30d`."""
    mode: str
    """A `BudgetMode`."""
    spent: str
    left: str
    share: float
    """What is spent, as a part of the budget."""
    back_at: str = ""
    """When something of it comes back at the earliest, a metav1.Time; empty where something is left."""


def budgets_left(quotas: Quotas, local_queue: LocalQueueKey, moment: datetime) -> tuple[BudgetLeft, ...]:
    """The budgets that the jobs of a LocalQueue spend of: its own, that of its ClusterQueue, and those of the cohorts
    above."""
    local = quotas.local_queues.get(local_queue)
    if local is None or not quotas.has_budgets:
        return ()
    queue, budgets = quotas.cluster_queues.get(local.cluster_queue), quotas.budgets
    spenders: list[Spender] = [local, *([queue] if queue is not None else [])]
    return tuple(_left(balance) for spender in spenders for balance in budgets.balances_of(spender, moment))


def _left(balance: Balance) -> BudgetLeft:
    left = max(0, balance.allowance.amount - balance.spent)
    return BudgetLeft(
        of=balance.of,
        resource=balance.resource,
        budget=balance.allowance.text,
        mode=balance.mode,
        spent=hours_text(balance.resource, balance.spent),
        left=hours_text(balance.resource, left),
        share=round(balance.share, 3),
        back_at=text_of(balance.back_at),
    )
