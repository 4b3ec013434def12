"""Who waits for a budget that is spent, and who goes when it is drained."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.budget_limit import SpentBudget, SpentBudgets
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Grow, Wait, cycle
from slicebus.slices.admission.snapshot import IdleGrowth, Snapshot
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_idle_quota import SINCE, noted, willing
from unit.slices.admission.test_pod_additions import ADDING, PLAIN, bare
from unit.slices.admission.test_preemption import holding, name_of, queue, waiting, world
from unit.slices.builders import a_pod_set, replacement, snapshot

BACK = "2026-02-01T00:00:00Z"


def spent(resource: str = "cpu", *, of: str = "ClusterQueue cq", back_at: str = BACK, drains: bool = False) -> Any:
    return SpentBudget(of=of, resource=resource, allowance="5h/30d", back_at=back_at, drains=drains)


def decided(world: Snapshot, *of_queue: SpentBudget, of_local: tuple[SpentBudget, ...] = ()) -> list[Decision]:
    budgets = SpentBudgets({"cq": of_queue} if of_queue else {}, {("team", "to-cq"): of_local} if of_local else {})
    return cycle(msgspec.structs.replace(world, spent_budgets=budgets))


def names(decisions: list[Decision], of: type[Decision]) -> list[str]:
    return [name_of(each.key) for each in decisions if isinstance(each, of)]


@pytest.mark.parametrize("is_local", [False, True], ids=["of the ClusterQueue", "of the LocalQueue"])
def test_nobody_is_admitted(is_local: bool) -> None:
    found = spent(of="LocalQueue team/to-cq") if is_local else spent()
    [wait] = decided(world(waiting("a", 1)), *([] if is_local else [found]), of_local=(found,) if is_local else ())
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.message) == ("BudgetSpent", f"The cpu budget of {found.of} is spent: 5h/30d")
    assert wait.would_admit == f"a larger budget, or time: something comes back from {BACK} on"


def test_nothing_is_said_of_a_time_that_nobody_knows() -> None:
    [wait] = decided(world(waiting("a", 1)), spent(back_at=""), spent())
    assert isinstance(wait, Wait)
    assert wait.would_admit == "a larger budget, or time"


def test_who_spends_of_another_resource_is_admitted() -> None:
    assert names(decided(world(waiting("a", 1)), spent("memory")), Admit) == ["a"]


@pytest.mark.parametrize("clusters", [[ADDING], [ADDING, PLAIN]], ids=["everywhere", "where it would go"])
def test_what_a_cluster_adds_to_pods_is_spent_too(clusters: list[Cluster]) -> None:
    [wait] = decided(snapshot(bare("s1", 2), clusters=clusters), spent())
    assert isinstance(wait, Wait)
    assert wait.reason == "BudgetSpent"


def test_nobody_waits_behind_who_waits_for_a_budget() -> None:
    strict = msgspec.structs.replace(queue(), strict_fifo=True)
    other = waiting("b", 1, queue="cq")
    found = decided(
        world(waiting("a", 1, pod_sets=(a_pod_set(requests={"cpu": 1, "memory": 1}),)), other, queues=[strict]),
        spent("memory"),
    )
    assert (names(found, Wait), names(found, Admit)) == (["a"], ["b"])


def test_nobody_is_preempted_for_who_waits_for_a_budget() -> None:
    loses = queue(withinClusterQueue="LowerPriority")
    found = decided(world(holding("low", 10, -1), waiting("high", 5, 5), queues=[loses]), spent())
    assert (names(found, Evict), names(found, Wait)) == ([], ["high"])


def grows(pods: int) -> tuple[Slice, Slice]:
    holder = holding("a", 4)
    return holder, replacement(holder, "a2", pods, queue="to-cq")


def test_growth_counts_as_new() -> None:
    assert names(decided(world(*grows(5), queues=[queue()])), Admit) == ["a2"]
    assert names(decided(world(*grows(5), queues=[queue()]), spent()), Wait) == ["a2"]


def test_what_runs_goes_on() -> None:
    assert decided(world(holding("a", 4), queues=[queue()]), spent()) == []


def test_who_spends_of_a_drained_budget_goes() -> None:
    [evict] = decided(world(holding("a", 4), queues=[queue()]), spent("memory", drains=True), spent(drains=True))
    assert isinstance(evict, Evict)
    assert (name_of(evict.key), evict.reason) == ("a", EvictionReason.BUDGET_SPENT)
    assert evict.message == "The cpu budget of ClusterQueue cq is spent: 5h/30d"


def test_of_a_drained_local_queue_only_its_own_go() -> None:
    mine, theirs = holding("a", 1, queue="cq"), holding("b", 1)
    mine, theirs = (msgspec.structs.replace(one, queue=to) for one, to in ((mine, "to-cq"), (theirs, "other")))
    assert names(decided(world(mine, theirs, queues=[queue()]), of_local=(spent(drains=True),)), Evict) == ["a"]


def test_nobody_grows_into_idle_quota() -> None:
    made = world(willing("a", 2, 20), queues=[queue()])
    made = msgspec.structs.replace(made, idle_growth=IdleGrowth(SINCE, 0.0))
    assert names(decided(made), Grow) == ["a"]
    assert decided(made, spent()) == []


def test_who_has_asked_for_idle_quota_asks_no_more() -> None:
    holder = willing("a", 2, 20)
    idle = msgspec.structs.replace(world(holder, queues=[queue()]), idle_growth=IdleGrowth(SINCE, 0.0))
    [grow] = decided(idle)
    assert isinstance(grow, Grow)
    [left] = decided(world(*noted(holder, grow), queues=[queue()]), spent())
    assert isinstance(left, Grow)
    assert left.to == {"main": 2}
