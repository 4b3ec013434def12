"""What queues show and keep of their budgets, what a cycle makes of it, and what people are told."""

import asyncio
import io
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console, RenderableType

from slicebus.ambient.clock import ambient
from slicebus.cli.explain.page import page as explain_page
from slicebus.cli.simulate.page import page as forecast_page
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.cache import Cache
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.kube.times import time_text
from slicebus.manager.act.budget_clock import BudgetClock
from slicebus.manager.decide import catalog
from slicebus.manager.decide.explain import explain
from slicebus.manager.decide.forecast import hypothesis
from slicebus.manager.decide.forecast.forecast import forecast
from slicebus.manager.metrics.queues import QueueMetrics
from slicebus.manager.state.store import ManagerStore
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Wait
from slicebus.slices.api import api_names
from unit.kube.loop_time import LoopTime
from unit.manager.objects import REF, a_job, a_workload, condition
from unit.manager.test_explain import a_store, an_object, of_another

Manifest = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs" / "budgets.md"
BEGAN = datetime.fromisoformat("2026-06-01T00:00:00Z")
HOUR = timedelta(hours=1)
CONDITIONS = {api_names.BUDGET_CONDITION, api_names.SPENDING_CONDITION}


def budget(text: str = "10h/30d", mode: str = "hard") -> dict[str, str]:
    return {"slicebus.dev/budget": json.dumps({"cpu": text}), "slicebus.dev/budget-mode": mode}


def put(cache: Cache, manifest: Manifest, **metadata: Any) -> None:
    """As the next version."""
    version = str(int(manifest["metadata"]["resourceVersion"]) + 1)
    cache.put(manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version} | metadata})


class World:
    """A job with two cores, a queue `cq` in cohort `org`, and time."""

    def __init__(self, *, queue: Any = None, local: Any = None, cohort: Any = None, running: int = 2) -> None:
        job, workload = a_job(running), a_workload(count=running, admitted=running, dispatched=1, applied=1)
        self.store: ManagerStore = a_store(job, workload)
        self.at = BEGAN
        caches = (self.store.cluster_queues, self.store.local_queues)
        for cache, annotations in zip(caches, (queue, local), strict=True):
            [manifest] = cache.all()
            put(cache, manifest, annotations=annotations or {})
        self.store.cohorts.put(an_object("org", {}, metadata={"annotations": cohort or {}}))
        self.report()

    def report(self, after: timedelta = timedelta()) -> list[Command]:
        """Let time pass, and write the status of the queues."""
        self.at += after
        commands = catalog.report_queues(self.store, now=time_text(self.at))
        for command in commands:
            if isinstance(command, Patch):
                cache = self.store.cluster_queues if command.resource == CLUSTERQUEUES else self.store.local_queues
                metadata = command.target["metadata"]
                present = cache.get(metadata.get("namespace"), metadata["name"])
                assert isinstance(command.body, dict)
                put(cache, merge_patch(present or {}, command.body))
        return commands

    def cycle(self, after: timedelta = timedelta()) -> list[Decision]:
        self.at += after
        return catalog.cycle(self.store, trees=None, preemption_cycles_since="", now=time_text(self.at))

    def wait(self, count: int = 1) -> None:
        """Somebody else wants so many cores."""
        self.store.workloads.put(of_another("other", count))

    def move(self, name: str) -> None:
        """The LocalQueue asks another ClusterQueue from now on."""
        [queue], [local] = self.store.cluster_queues.all(), self.store.local_queues.all()
        metadata = {"name": name, "uid": name, "resourceVersion": "1"}
        self.store.cluster_queues.put({**queue, "metadata": metadata, "status": {}})
        put(self.store.local_queues, local | {"spec": local["spec"] | {"clusterQueue": name}})

    def end(self) -> None:
        """Everything that runs ends."""
        [gone] = [each for each in self.store.workloads.all() if each["metadata"]["name"] == "w1"]
        self.store.workloads.remove(gone)

    def share(self) -> float:
        [balance] = self.store.quotas.budgets.balances(self.at)
        return balance.share

    def shown(self, type: str = api_names.BUDGET_CONDITION, *, local: bool = False) -> tuple[str, str, str] | None:
        [manifest] = (self.store.local_queues if local else self.store.cluster_queues).all()
        found = (one for one in manifest.get("status", {}).get("conditions", ()) if one["type"] == type)
        return next(((one["status"], one["reason"], one["message"]) for one in found), None)


@pytest.mark.parametrize("of", ["queue", "local", "cohort"])
def test_what_runs_is_spent_as_time_passes(of: str) -> None:
    world = World(**{of: budget()})
    world.at += HOUR
    assert world.share() == pytest.approx(0.2)
    world.end()
    world.report()
    world.at += HOUR
    assert world.share() == pytest.approx(0.2)


def patches(commands: Sequence[Command]) -> list[str]:
    return [each.target["metadata"]["name"] for each in commands if isinstance(each, Patch)]


def test_nothing_is_written_because_time_passes() -> None:
    world = World(queue=budget(), local=budget(), cohort=budget())
    assert patches(world.report(3 * HOUR)) == []
    assert patches(world.report(HOUR)) == ["cq", "queue"], "nearly spent"
    assert patches(world.report(HOUR / 2)) == []
    assert patches(world.report(HOUR / 2)) == ["cq", "queue"], "spent"


def test_a_use_that_changes_is_written_with_what_was_spent() -> None:
    world = World(queue=budget())
    world.at += HOUR
    put(world.store.workloads, a_workload(count=1, admitted=1, dispatched=1, applied=1))
    assert patches(world.report()) == ["cq", "queue"]
    said = world.shown(api_names.SPENDING_CONDITION)
    assert said is not None
    assert json.loads(said[2]) == {
        "at": int(world.at.timestamp()),
        "using": {"cpu": 1000},
        "spent": {"cpu": {"86400": f"20605:{7_200_000:x}"}},
    }


def account() -> set[str]:
    return {f"slicebus.dev/Spending-{number}" for number in range(2, 11)} | {api_names.SPENDING_CONDITION}


def test_an_account_of_hundreds_of_budgets_is_kept_in_several_conditions() -> None:
    """Those that are not needed any more go."""
    world = World(queue=budget())
    for level in range(200):
        annotations = {"slicebus.dev/budget": json.dumps({"cpu": f"500000h/{90 + level}m"})}
        spec = {"parentName": f"level-{level + 1}"} if level < 199 else {}
        world.store.cohorts.put(an_object(f"level-{level}", spec, metadata={"annotations": annotations}))
    put(world.store.cohorts, an_object("org", {"parentName": "level-0"}))
    world.report()
    [manifest] = world.store.cluster_queues.all()
    [queue] = world.store.quotas.cluster_queues.values()
    assert sum(map(len, world.store.quotas.budgets.lengths_of(queue).values())) == 1 + 200
    world.at += 5 * HOUR
    put(world.store.workloads, a_workload(count=1, admitted=1, dispatched=1, applied=1))
    world.report()
    [manifest] = world.store.cluster_queues.all()
    kept = [each for each in manifest["status"]["conditions"] if each["type"] in account()]
    assert len(kept) > 1
    assert max(len(each["message"]) for each in kept) <= 32_768
    assert next(world.store.quotas.budgets.own(queue, world.at)).share == pytest.approx(1.0)
    assert patches(world.report(timedelta(seconds=1))) == []
    for level in range(1, 200):
        world.store.cohorts.remove(world.store.cohorts.get(None, f"level-{level}") or {})
    world.report()
    [manifest] = world.store.cluster_queues.all()
    assert [each["type"] for each in manifest["status"]["conditions"] if each["type"] in account()] == [
        api_names.SPENDING_CONDITION
    ]


def test_budgets_past_the_account_are_told_and_stop_nobody() -> None:
    """The nearest ones are counted."""
    world = World(queue=budget())
    for level in range(26):
        text = json.dumps({f"example.com/{number}": f"5h/{90 + level}m" for number in range(16)})
        spec = {"parentName": f"level-{level + 1}"} if level < 25 else {}
        annotations = {"slicebus.dev/budget": text, "slicebus.dev/budget-mode": "hard"}
        world.store.cohorts.put(an_object(f"level-{level}", spec, metadata={"annotations": annotations}))
    put(world.store.cohorts, an_object("org", {"parentName": "level-0"}))
    world.report()
    told = world.shown(api_names.HONORED_CONDITION)
    assert told is not None
    assert told[:2] == ("False", "NotHonored")
    assert "the budget of Cohort level-24 for example.com/9 is not honored: the account of a ClusterQueue" in told[2]
    assert "the budget of Cohort level-25 for example.com/0, " in told[2]
    assert "level-23" not in told[2]
    assert patches(world.report(timedelta(seconds=1))) == []


def test_an_account_of_an_earlier_version_counts_on() -> None:
    world, successor = World(queue=budget()), World(queue=budget())
    successor.at += 3 * HOUR
    spent = {"cpu": {"86400": {"20605": 7_200_000}}}
    said = {"at": int(successor.at.timestamp()), "using": {"cpu": 2000}, "spent": spent}
    [manifest] = world.store.cluster_queues.all()
    conditions = [
        each | {"message": json.dumps(said)} if each["type"] == api_names.SPENDING_CONDITION else each
        for each in manifest["status"]["conditions"]
    ]
    put(successor.store.cluster_queues, manifest | {"status": {**manifest["status"], "conditions": conditions}})
    assert successor.share() == pytest.approx(0.2)
    successor.at += HOUR
    assert successor.share() == pytest.approx(0.4)


def test_whoever_takes_over_counts_on() -> None:
    world = World(queue=budget())
    successor = World(queue=budget())
    [manifest] = world.store.cluster_queues.all()
    put(successor.store.cluster_queues, manifest)
    successor.at += 3 * HOUR
    assert successor.share() == pytest.approx(0.6)


def test_what_was_admitted_and_not_yet_written_counts_from_its_admission() -> None:
    world = World(queue=budget())
    since = condition("QuotaReserved") | {"lastTransitionTime": time_text(BEGAN + HOUR)}
    other = of_another("other", 2, admitted=2)
    other["status"]["conditions"] = [since, condition("Admitted")]
    world.store.workloads.put(other)
    world.at += 2 * HOUR
    assert world.share() == pytest.approx((2 * 2 + 2 * 1) / 10)


def test_what_the_manager_heard_of_after_the_last_count_counts_from_that() -> None:
    """The API server had an admission, and its answer took long. It was never counted."""
    world = World(queue=budget())
    put(world.store.workloads, a_workload("w1", 1, admitted=1))
    world.report(2 * HOUR)
    other = of_another("other", 2, admitted=2)
    since = condition("QuotaReserved") | {"lastTransitionTime": time_text(BEGAN + HOUR)}
    other["status"]["conditions"] = [since, condition("Admitted")]
    world.store.workloads.put(other)
    before = world.share()
    world.at += HOUR
    assert world.share() - before == pytest.approx((1 + 2) / 10)


def test_a_growth_not_yet_written_counts_what_it_adds() -> None:
    world = World(queue=budget())
    since = condition("QuotaReserved") | {"lastTransitionTime": time_text(BEGAN + HOUR)}
    grown = a_workload("w2", 5, admitted=5, replaces="w1")
    grown["status"]["conditions"] = [since, condition("Admitted")]
    world.store.workloads.put(grown)
    world.at += 2 * HOUR
    assert world.share() == pytest.approx((2 * 2 + 3 * 1) / 10)


@pytest.mark.parametrize("of", ["queue", "local", "cohort"])
def test_a_hard_budget_that_is_spent_admits_nobody_until_it_is_back(of: str) -> None:
    world = World(**{of: budget()})
    world.wait()
    assert [type(each) for each in world.cycle(4 * HOUR)] == [Admit]
    [wait] = world.cycle(HOUR)
    assert isinstance(wait, Wait)
    assert wait.reason == "BudgetSpent"
    assert wait.would_admit.endswith("something comes back from 2026-07-02T00:00:00Z on")
    world.end()
    world.report()
    assert [type(each) for each in world.cycle(30 * 24 * HOUR)] == [Wait]
    assert [type(each) for each in world.cycle(24 * HOUR)] == [Admit]


def test_what_runs_in_a_former_queue_is_spent_of_its_local_queue() -> None:
    """The job has quota of `cq` still, and its LocalQueue asks another ClusterQueue."""
    world = World(local=budget(mode="drain"))
    world.move("other")
    world.report()
    world.report(HOUR)
    assert world.share() == pytest.approx(0.2)
    put(world.store.workloads, a_workload(count=3, admitted=3, dispatched=1, applied=1))
    world.report()
    world.report(HOUR)
    assert world.share() == pytest.approx(0.6), "what has grown counts from the last count on"
    [evict] = [each for each in world.cycle(2 * HOUR) if isinstance(each, Evict)]
    assert "The cpu budget of LocalQueue team/queue is spent" in evict.message


def test_a_queue_that_was_moved_takes_its_account_along() -> None:
    world = World(local=budget(), queue=budget())
    world.at += HOUR
    world.move("other")
    world.end()
    world.report()
    balances = world.store.quotas.budgets.balances(world.at + HOUR)
    assert {each.of: each.share for each in balances} == pytest.approx(
        {"LocalQueue team/queue": 0.2, "ClusterQueue cq": 0.2}
    )


def test_a_soft_budget_admits_everybody() -> None:
    world = World(queue=budget(mode="soft"))
    world.wait()
    assert [type(each) for each in world.cycle(50 * HOUR)] == [Admit]


@pytest.mark.parametrize("of", ["queue", "local", "cohort"])
def test_a_drained_budget_evicts_although_nobody_waits(of: str) -> None:
    world = World(**{of: budget(mode="drain")})
    assert not world.store.quotas.is_settled(None)
    assert world.cycle(4 * HOUR) == []
    [evict] = world.cycle(HOUR)
    assert isinstance(evict, Evict)
    assert evict.message.startswith("The cpu budget of ")


def test_without_a_time_no_budget_is_spent() -> None:
    world = World(queue=budget())
    world.wait()
    world.at += 50 * HOUR
    assert [type(each) for each in catalog.cycle(world.store, trees=None, preemption_cycles_since="")] == [Admit]


def test_a_queue_shows_when_it_is_nearly_spent_and_spent() -> None:
    world = World(queue=budget())
    assert world.shown() == ("True", "WithinBudget", "Less than 80% of each budget is spent")
    told = [each for each in world.report(4 * HOUR) if isinstance(each, Emit)]
    text = "of the cpu budget of ClusterQueue cq (hard) is spent: 10h/30d"
    assert world.shown() == ("True", "BudgetNearlySpent", f"80% {text}")
    assert [(each.reason, each.note, each.warning) for each in told] == [("BudgetNearlySpent", f"80% {text}", True)]
    told = [each for each in world.report(HOUR) if isinstance(each, Emit)]
    assert world.shown() == ("False", "BudgetSpent", f"100% {text}")
    assert [each.reason for each in told] == ["BudgetSpent"]
    world.end()
    world.report()
    world.report(31 * 24 * HOUR)
    assert world.shown() == ("True", "WithinBudget", "Less than 80% of each budget is spent")


def test_the_budget_of_a_cohort_shows_on_its_queues() -> None:
    world = World(cohort=budget())
    world.report(5 * HOUR)
    assert world.shown() == ("False", "BudgetSpent", "100% of the cpu budget of Cohort org (hard) is spent: 10h/30d")
    assert world.shown(local=True) is None


def test_another_window_begins_anew() -> None:
    """However long ago the account was written."""
    world = World(queue=budget("10h/30d", "drain"))
    world.at += 4 * HOUR
    [manifest] = world.store.cluster_queues.all()
    put(world.store.cluster_queues, manifest, annotations=budget("8h/60d", "drain"))
    assert world.share() == 0
    assert world.cycle() == []
    world.report()
    world.at += HOUR
    assert world.share() == pytest.approx(2 / 8)


def test_a_budget_that_a_cohort_gets_later_counts_from_then_on() -> None:
    world = World(queue=budget("100h/30d", "soft"))
    world.at += 4 * HOUR
    put(world.store.cohorts, an_object("org", {}), annotations=budget("8h/60d"))
    world.report()
    world.at += HOUR
    shares = {each.of: each.share for each in world.store.quotas.budgets.balances(world.at)}
    assert shares == pytest.approx({"ClusterQueue cq": 0.1, "Cohort org": 0.25})


def test_a_budget_that_is_taken_away_leaves_nothing() -> None:
    world = World(queue=budget())
    [manifest] = world.store.cluster_queues.all()
    put(world.store.cluster_queues, manifest, annotations={})
    assert not world.store.quotas.has_budgets
    world.report()
    assert [world.shown(type) for type in CONDITIONS] == [None, None]
    assert patches(world.report()) == []


@pytest.mark.parametrize("of", ["queue", "local", "cohort"])
def test_a_budget_that_nobody_can_read_is_told_and_stops_nobody(of: str) -> None:
    world = World(**{of: {"slicebus.dev/budget": "much", "slicebus.dev/budget-mode": "hard"}})
    world.wait()
    assert [type(each) for each in world.cycle(1000 * HOUR)] == [Admit]
    shown = world.shown(api_names.HONORED_CONDITION, local=of == "local")
    assert shown is not None
    path = "metadata.annotations[slicebus.dev/budget] is not honored: it may be JSON such as"
    assert shown[2].startswith(f"Cohort org {path}" if of == "cohort" else path)
    assert any(path in problem for problem in explain(world.store, REF).problems)


def test_people_are_told_what_is_left() -> None:
    world = World(queue=budget("20h/30d"), local=budget(mode="soft"), cohort=budget("100h/7d", "drain"))
    explained = explain(world.store, REF, moment=BEGAN + 5 * HOUR).budgets
    assert [(each.of, each.mode, each.spent, each.left, each.share, each.back_at) for each in explained] == [
        ("LocalQueue team/queue", "soft", "10h", "0h", 1.0, "2026-07-02T00:00:00Z"),
        ("ClusterQueue cq", "hard", "10h", "10h", 0.5, ""),
        ("Cohort org", "drain", "10h", "90h", 0.1, ""),
    ]
    assert explain(world.store, REF).budgets == ()


def test_without_a_time_a_slice_waits_for_the_budget_as_the_last_cycle_said() -> None:
    world = World(queue=budget())
    waiting = a_workload("w2", 3, replaces="w1")
    message = "The cpu budget of ClusterQueue cq is spent: 10h/30d"
    spent = condition("QuotaReserved", status=False, reason="BudgetSpent", message=message)
    waiting["status"] = {"conditions": [spent]}
    world.store.workloads.put(waiting)
    world.at += 5 * HOUR
    [timed], [untimed] = (explain(world.store, REF, moment=moment).waiting for moment in (world.at, None))
    assert (timed.reason, timed.message) == (untimed.reason, untimed.message) == ("BudgetSpent", message)
    assert (timed.position, timed.of) == (untimed.position, untimed.of)


def shown_on(page: RenderableType) -> str:
    console = Console(width=170, no_color=True, record=True, file=io.StringIO())
    console.print(page)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines())


def test_the_page_shows_what_explain_says() -> None:
    world = World(queue=budget("20h/30d"), local=budget("10h/7d"), cohort=budget("100h/30d", "soft"))
    world.store.workloads.put(a_workload("w2", 3, replaces="w1"))
    shown = shown_on(explain_page(explain(world.store, REF, moment=BEGAN + 6 * HOUR)))
    [said] = [block for block in PAGE.read_text().split("```\n") if block.startswith("Job/team/train is")]
    assert said.strip() in shown


def test_a_forecast_waits_for_the_budget() -> None:
    world = World(queue=budget())
    new = a_job(1)
    new["metadata"] |= {"uid": "uid-new", "name": "new"}
    asked = [hypothesis.of_job(world.store, new, now=time_text(BEGAN))]
    [found] = forecast(world.store, asked, moment=BEGAN + 6 * HOUR, suggests=False)
    assert found.verdict.reason == "BudgetSpent"
    assert [(each.spent, each.left) for each in found.budgets] == [("12h", "0h")]
    text = "10h/30d (hard): 12h is spent, 0h is left, something comes back from 2026-07-02T00:00:00Z on"
    assert f"spends of the cpu budget of ClusterQueue cq, {text}" in shown_on(forecast_page(found))


def test_the_metric_is_the_share() -> None:
    world = World(queue=budget(), local=budget("100h/30d"), cohort=budget("20h/30d"))
    registry = CollectorRegistry()
    registry.register(QueueMetrics(world.store, now=lambda: BEGAN + HOUR))
    shares = [
        registry.get_sample_value(
            "slicebus_budget_spent_ratio", {"kind": kind, "name": name, "namespace": namespace, "resource": "cpu"}
        )
        for kind, name, namespace in (
            ("ClusterQueue", "cq", ""),
            ("LocalQueue", "queue", "team"),
            ("Cohort", "org", ""),
        )
    ]
    assert shares == pytest.approx([0.2, 0.02, 0.1])


async def test_the_queues_are_looked_at_when_time_has_changed_something(jumping: LoopTime) -> None:
    loop = asyncio.get_running_loop()
    looked = list[float]()
    began_s = loop.time()
    with ambient(clock=lambda: BEGAN + timedelta(seconds=loop.time() - began_s), random=Random(1)):
        world = World(queue=budget())
        task = asyncio.create_task(BudgetClock(world.store, lambda: looked.append(loop.time() - began_s)).run())
        await asyncio.sleep(5.1 * 3600)
        task.cancel()
    assert looked == pytest.approx([4 * 3600, 5 * 3600], abs=2)


async def test_without_a_budget_nothing_is_looked_at(jumping: LoopTime) -> None:
    world, looked = World(), list[int]()
    task = asyncio.create_task(BudgetClock(world.store, lambda: looked.append(1)).run())
    await asyncio.sleep(1e6)
    task.cancel()
    assert not looked
