"""The rules of budgets and of past use notice what they are for."""

import msgspec
import pytest

from simulation import budget_rules, cycle_rules
from simulation.mutations import mutated
from simulation.violations import Violation
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.budget_limit import SpentBudgets
from slicebus.slices.admission.snapshot import Snapshot
from unit.slices.admission.test_budget_limit import spent
from unit.slices.admission.test_preemption import holding, queue, waiting, world
from unit.slices.admission.test_usage_order import competing, of, uses


def with_budget(made: Snapshot, *, drains: bool) -> Snapshot:
    return msgspec.structs.replace(made, spent_budgets=SpentBudgets({"cq": (spent(drains=drains),)}))


ADMITS = with_budget(world(waiting("a", 1), queues=[queue()]), drains=False)
DRAINS = with_budget(world(holding("a", 1), queues=[queue()]), drains=True)
BY_USE = competing(of("l", "a"), of("m", "b"), scope="usage", used=uses(l=5.0, m=1.0))


@pytest.mark.parametrize("snapshot", [ADMITS, DRAINS])
def test_what_a_cycle_decides_breaks_no_rule_of_budgets(snapshot: Snapshot) -> None:
    budget_rules.check(snapshot, admission.cycle(snapshot))


@pytest.mark.parametrize(
    ("mutation", "snapshot", "told"),
    [
        ("budgets", ADMITS, "team/a is admitted, and the budget of ClusterQueue cq is spent"),
        ("drained budgets", DRAINS, "team/a keeps its quota, and ClusterQueue cq is drained"),
    ],
)
def test_a_missing_safeguard_of_budgets_is_noticed(mutation: str, snapshot: Snapshot, told: str) -> None:
    with mutated(mutation), pytest.raises(Violation, match=told):
        budget_rules.check(snapshot, admission.cycle(snapshot))


def test_who_has_used_more_and_comes_first_is_noticed() -> None:
    cycle_rules.check(BY_USE, admission.cycle(BY_USE))
    with mutated("past use"):
        decided = admission.cycle(BY_USE)
    with pytest.raises(Violation, match="a gets what b needs, whose queue has used less"):
        cycle_rules.check(BY_USE, decided)
