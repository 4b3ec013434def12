"""A job whose order is larger than a message may be: its Workload says so, and nothing is published."""

from typing import Any

import pytest

from slicebus.decisions.commands import Emit, Publish
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import builtin
from slicebus.manager.state.settings import LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api.api_names import DISPATCHED_CONDITION
from slicebus.slices.api.conditions import conditions_of
from unit.manager.objects import a_job, a_view, a_workload

NOW = "2026-01-31T12:00:00Z"
SHOWN = {
    "type": DISPATCHED_CONDITION,
    "status": "False",
    "reason": "TooLarge",
    "message": "",
    "lastTransitionTime": NOW,
}


def job(size: int) -> dict[str, Any]:
    made = a_job()
    made["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * size]
    return made


def decided(size: int, *, limit: int = 2**20, shown: str | None = None, dispatched: int = 0) -> list[Any]:
    workload = a_workload(admitted=1, dispatched=dispatched or None)
    if shown is not None:
        workload.setdefault("status", {}).setdefault("conditions", []).append(SHOWN | {"message": shown})
    return builtin.reconcile(a_view(job(size), workload, message_bytes=limit), NOW)


def condition(commands: list[Any]) -> dict[str, Any]:
    [patch] = [command for command in commands if getattr(command, "subresource", "") == "status"]
    assert patch.resource == WORKLOADS
    [found] = [entry for entry in conditions_of(patch.body) if entry["type"] == DISPATCHED_CONDITION]
    return dict(found)


@pytest.mark.parametrize("dispatched", [0, 3], ids=["new", "to be published again"])
def test_an_order_that_is_too_large_is_shown_and_not_published(dispatched: int) -> None:
    commands = decided(2**20, dispatched=dispatched)
    assert not [command for command in commands if isinstance(command, Publish)]
    found = condition(commands)
    assert (found["status"], found["reason"]) == ("False", "TooLarge")
    assert "a message has at most 1.0" in found["message"]
    [event] = [command for command in commands if isinstance(command, Emit)]
    assert (event.reason, event.note, event.warning) == ("TooLarge", found["message"], True)
    assert event.regarding["kind"] == "Job"
    assert decided(2**20, shown=found["message"], dispatched=dispatched) == [], "once is enough"


@pytest.mark.parametrize(("size", "limit"), [(1000, 2**20), (2**20, 2**22)], ids=["a usual one", "with another limit"])
def test_an_order_within_the_limit_is_published(size: int, limit: int) -> None:
    assert [command for command in decided(size, limit=limit) if isinstance(command, Publish)]


def test_an_order_that_is_no_longer_too_large_goes_out_after_its_condition() -> None:
    found = condition(decided(1000, shown="it was"))
    assert (found["status"], found["reason"]) == ("True", "Dispatched")


def test_the_limit_is_an_input_of_the_decision() -> None:
    store = ManagerStore()
    assert store.view(a_view(a_job(), a_workload()).ref).message_bytes == 2**20
    store.configure(LeaderSettings(message_bytes=300_000))
    assert store.view(a_view(a_job(), a_workload()).ref).message_bytes == 300_000
