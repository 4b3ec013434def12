"""Shows on queues what becomes of their budgets, and keeps there what they have spent.

What is spent follows from what was written when the use last changed: nothing is written because time passes, but when
a budget is nearly spent, is spent, or comes back.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from slicebus.decisions.commands import Emit
from slicebus.manager.state.budgets import SPENDING_CONDITIONS, BudgetWorld, Spender, spending_said
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.quota.budgets import NEARLY, Balance, Spending
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.quota.spending_texts import MOST_COUNTED, texts_of

_NEARLY_SPENT = "BudgetNearlySpent"
_WITHIN = "WithinBudget"
_ALL_LEFT = f"Less than {NEARLY:.0%} of each budget is spent"
_OWN = (api_names.BUDGET_CONDITION, *SPENDING_CONDITIONS)
_NO_ROOM = (
    f"the account of a ClusterQueue has room for {MOST_COUNTED} pairs of a resource and a window, and counts no more"
)


class BudgetReport(msgspec.Struct, frozen=True):
    """What the status of one queue has of its budgets."""

    shown: tuple[Finding, ...] = ()
    """What people read; a change of it is written."""
    kept: tuple[Finding, ...] = ()
    """What the manager reads, which is written with any other change."""
    is_due: bool = False
    """Whether it is written at once: the use has changed, or other budgets are counted."""
    events: tuple[Emit, ...] = ()


def report(world: BudgetWorld, queue: Spender, manifest: Manifest, *, now: str) -> BudgetReport:
    """What a queue shows and keeps of its budgets, and of those of its cohorts."""
    moment = datetime.fromisoformat(now)
    spending = world.spending_of(queue, moment)
    if spending is None:
        return BudgetReport(is_due=any(each["type"] in _OWN for each in conditions_of(manifest)))
    finding = _finding(world.balances_of(queue, moment))
    is_news = finding.reason != _WITHIN and not has_finding(manifest, finding)
    return BudgetReport(
        shown=(finding,),
        kept=tuple(
            Finding(type, True, "Counted", text)
            for type, text in zip(SPENDING_CONDITIONS, texts_of(spending), strict=False)
        ),
        is_due=_is_due(spending_said(manifest), spending),
        events=(Emit(regarding=manifest, reason=finding.reason, note=finding.message, warning=True),)
        if is_news
        else (),
    )


def without_former(manifest: Manifest, made: BudgetReport) -> Manifest:
    """A queue without the conditions of budgets that it has no more."""
    former = {*_OWN}.difference(each.type for each in (*made.shown, *made.kept))
    kept = [each for each in conditions_of(manifest) if each["type"] not in former]
    return manifest | {"status": manifest.get("status", {}) | {"conditions": kept}}


def uncounted(world: BudgetWorld | None, queue: ClusterQueue | None) -> dict[str, str]:
    """What is not honored of the budgets that a queue spends of, and why: there are too many."""
    found = world.uncounted(queue) if world is not None and queue is not None else {}
    return {f"the budget of {owner} for {', '.join(resources)}": _NO_ROOM for owner, resources in found.items()}


def _finding(balances: Iterable[Balance]) -> Finding:
    """The condition that tells people, without any number that changes all the time."""
    nearly = [balance for balance in balances if balance.share >= NEARLY]
    spent = [balance for balance in nearly if balance.is_spent]
    reason = api_names.BUDGET_SPENT if spent else _NEARLY_SPENT if nearly else _WITHIN
    told = "; ".join(
        f"{1.0 if balance.is_spent else NEARLY:.0%} of the {balance.resource} budget of {balance.of} "
        f"({balance.mode}) is spent: {balance.allowance.text}"
        for balance in nearly
    )
    return Finding(api_names.BUDGET_CONDITION, not spent, reason, told or _ALL_LEFT)


def _is_due(said: Spending | None, spending: Spending) -> bool:
    if said is None or said.using != spending.using:
        return True
    counts = {resource: sorted(slots) for resource, slots in said.spent.items()}
    return counts != {resource: sorted(slots) for resource, slots in spending.spent.items()}
