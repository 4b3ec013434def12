"""A job that its user suspends: at its submission, while it waits, runs or is evicted, and how it comes back."""

from typing import Any

import pytest

from slicebus.decisions.commands import Emit, Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import waiting
from slicebus.manager.state.views import JobView
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import Waiting
from unit.manager.objects import NOW, a_job, a_view, a_workload, condition, shorts

Manifest = dict[str, Any]
BY_USER = condition("Evicted", True, "SuspendedByUser", "Its user has suspended the job")
STOPPED = condition("Evicted", True, "ClusterQueueStopped", "The ClusterQueue is stopped")
ENDED = condition("Finished", True, "OutOfSync", "headGroupSpec should have at least one container")
AGAIN = condition("Evicted", False, "QuotaReserved", "Previously: The ClusterQueue is stopped")


def a_suspended(*, by_manager: bool = False) -> Manifest:
    job = a_job(annotations={api_names.SUSPENDED_ANNOTATION: "true"} if by_manager else {})
    job["spec"]["suspend"] = True
    job["metadata"]["creationTimestamp"] = NOW
    return job


def inactive(workload: Manifest, *, marked: bool) -> Manifest:
    mark = {"metadata": {"annotations": {api_names.SUSPENDED_ANNOTATION: "true"}}} if marked else {}
    return merge_patch(workload, {"spec": {"active": False}} | mark)


RUNS = a_workload(admitted=1, dispatched=1, applied=1)
EVICTS = [("w1", "Evicted=True SuspendedByUser", "slicebus.dev/Dispatched=False Suspending")]
EVENTS = [("event Workload", "EvictedDueToSuspendedByUser"), ("event Job", "EvictedDueToSuspendedByUser")]
CASES: dict[str, tuple[JobView, list[tuple[Any, ...]]]] = {
    "at its submission": (a_view(a_suspended()), []),
    "while it waits": (a_view(a_suspended(), a_workload()), [("w1", "inactive")]),
    "while it runs": (a_view(a_suspended(), RUNS), [*EVICTS, *EVENTS]),
    "while it runs again": (
        a_view(a_suspended(), a_workload(admitted=1, dispatched=1, applied=1, conditions=(AGAIN,))),
        [*EVICTS, *EVENTS],
    ),
    "with the manager's mark, while it runs": (a_view(a_suspended(by_manager=True), RUNS), [*EVICTS, *EVENTS]),
    "with the manager's mark, and no Workload": (a_view(a_suspended(by_manager=True)), [("train", "resumed")]),
    "with the manager's mark, and one that has ended": (
        a_view(a_suspended(by_manager=True), a_workload(conditions=(STOPPED, ENDED))),
        [("train", "resumed")],
    ),
    "without it, and one that has ended": (a_view(a_suspended(), a_workload(conditions=(STOPPED, ENDED))), []),
    "when it is evicted for that": (
        a_view(a_suspended(), a_workload(admitted=1, dispatched=1, applied=1, conditions=(BY_USER,))),
        [("w1", "inactive")],
    ),
    "when it is evicted for something else": (
        a_view(a_suspended(), a_workload(admitted=1, dispatched=1, applied=1, conditions=(STOPPED,))),
        [("w1", "inactive")],
    ),
    "when it has done that": (a_view(a_suspended(), inactive(a_workload(), marked=True)), []),
    "when somebody has deactivated it": (a_view(a_suspended(), inactive(a_workload(), marked=False)), []),
    "it is resumed": (a_view(a_job(), inactive(a_workload(), marked=True)), [("w1", "active")]),
    "it is resumed, and somebody has deactivated it": (a_view(a_job(), inactive(a_workload(), marked=False)), []),
    "the manager has suspended it, and its user has removed the mark": (
        a_view(a_suspended(), a_workload(conditions=(STOPPED,))),
        [("w1", "inactive")],
    ),
    "the manager has suspended it": (
        a_view(a_suspended(by_manager=True), a_workload(conditions=(STOPPED,))),
        [],
    ),
}


@pytest.mark.parametrize(("view", "expected"), CASES.values(), ids=CASES.keys())
def test_what_follows(view: JobView, expected: list[tuple[Any, ...]]) -> None:
    assert shorts(reconcile(view, NOW)) == expected


def test_what_is_activated_again_has_no_mark() -> None:
    workload = inactive(a_workload(), marked=True)
    [activated] = reconcile(a_view(a_job(), workload), NOW)
    assert isinstance(activated, Patch)
    assert isinstance(activated.body, dict)
    after = merge_patch(workload, activated.body)
    assert after["spec"]["active"] is True
    assert api_names.SUSPENDED_ANNOTATION not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    "workloads", [(), (RUNS,), (inactive(a_workload(), marked=True),)], ids=["new", "runs", "waits"]
)
def test_it_says_why_it_does_not_run(workloads: tuple[Manifest, ...]) -> None:
    shown, told = waiting.reconcile(a_view(a_suspended(), *workloads))
    assert isinstance(shown, Patch)
    assert isinstance(shown.body, dict)
    assert isinstance(told, Emit)
    why = Waiting.from_manifest(merge_patch(a_suspended(), shown.body))
    assert why is not None
    assert (why.reason, told.reason) == ("SuspendedByUser", "SuspendedByUser")
    assert "when somebody sets spec.suspend to false" in why.message
    again = merge_patch(a_suspended(), shown.body)
    assert waiting.reconcile(a_view(again, *workloads)) == []


def test_a_job_that_the_manager_has_suspended_says_what_it_waits_for() -> None:
    view = a_view(a_suspended(by_manager=True), a_workload(conditions=(STOPPED,)))
    assert waiting.reason_for(view) is None
