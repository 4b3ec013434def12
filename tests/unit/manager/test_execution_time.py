"""How long a job may run: its label, its Workloads, and what follows when its time is over."""

from typing import Any

import pytest

from slicebus.decisions.commands import Command, Create, Emit, Patch, Requeue
from slicebus.manager.decide.admission import evictions
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import execution_time, unmanaged
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Wait, cycle
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import MAX_EXECUTION_TIME_LABEL as LABEL
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import a_job, a_view, a_workload, condition
from unit.slices.admission.test_cycle import snapshot

ADMITTED_AT = "2026-01-01T00:00:00Z"
AFTER_20_S = "2026-01-01T00:00:20Z"
AFTER_59_S, AFTER_60_S = "2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z"
OVER = condition("Evicted", True, EvictionReason.EXECUTION_TIME, "exceeding the maximum execution time of 60 s")


def limited(seconds: int | None = 60, *, past_s: int | None = None, since: str = "", **how: Any) -> Manifest:
    """A slice with quota since ADMITTED_AT, or for longer."""
    workload = a_workload(**({"admitted": 1, "dispatched": 1, "applied": 1} | how))
    metadata: Manifest = {"annotations": {api_names.RUNNING_SINCE_ANNOTATION: since}} if since else {}
    status = {"accumulatedPastExecutionTimeSeconds": past_s} if past_s is not None else {}
    body = {"metadata": metadata, "spec": {"maximumExecutionTimeSeconds": seconds}, "status": status}
    return merge_patch(workload, body)


def evicts(commands: list[Command]) -> bool:
    return any(isinstance(c, Emit) and c.reason == f"EvictedDueTo{EvictionReason.EXECUTION_TIME}" for c in commands)


def test_a_job_whose_time_is_over_is_evicted_and_deactivated() -> None:
    view = a_view(a_job(), limited())
    assert not evicts(reconcile(view, AFTER_59_S))
    patch, *events = reconcile(view, AFTER_60_S)
    assert isinstance(patch, Patch)
    evicted = merge_patch(limited(), patch.body)  # type: ignore[arg-type]
    shown = {entry["type"]: entry for entry in evicted["status"]["conditions"]}["Evicted"]
    assert (shown["reason"], shown["message"]) == (OVER["reason"], OVER["message"])
    assert evicts(events)

    [deactivated] = reconcile(a_view(a_job(), evicted), AFTER_60_S)
    assert isinstance(deactivated, Patch)
    assert deactivated.body == {"spec": {"active": False}}
    inactive = merge_patch(evicted, deactivated.body)
    assert not evicts(reconcile(a_view(a_job(), inactive), AFTER_60_S))


TIMES: dict[str, tuple[Manifest, str, bool]] = {
    "no limit": (limited(None), "2026-09-01T00:00:00Z", False),
    "no quota": (merge_patch(a_workload(), {"spec": {"maximumExecutionTimeSeconds": 1}}), AFTER_60_S, False),
    "a part before an eviction": (limited(past_s=30), "2026-01-01T00:00:30Z", True),
    "not yet, with that part": (limited(past_s=30), "2026-01-01T00:00:29Z", False),
    "a resize since": (limited(since="2025-12-31T23:59:30Z"), "2026-01-01T00:00:30Z", True),
    "not yet, with a resize": (limited(since="2025-12-31T23:59:30Z"), "2026-01-01T00:00:29Z", False),
    "evicted since that resize": (
        limited(since="2025-12-31T23:00:00Z", past_s=0, conditions=(condition("Evicted", False),)),
        AFTER_59_S,
        False,
    ),
    "a time that nobody can read": (limited(since="yesterday"), AFTER_60_S, True),
    "a time without a zone": (limited(since="2025-12-31T23:00:00"), AFTER_59_S, False),
}


@pytest.mark.parametrize(("workload", "now", "is_over"), TIMES.values(), ids=TIMES.keys())
def test_when_its_time_is_over(workload: Manifest, now: str, is_over: bool) -> None:
    assert evicts(reconcile(a_view(a_job(), workload), now)) is is_over


def test_it_is_looked_at_again_when_its_time_is_over() -> None:
    commands = reconcile(a_view(a_job(), limited()), AFTER_59_S)
    assert [command.delay_s for command in commands if isinstance(command, Requeue)] == [2.0]


def test_a_workload_that_replaces_another_one_goes_on_with_its_time() -> None:
    [create] = [c for c in reconcile(a_view(a_job(3), limited(past_s=10)), AFTER_20_S) if isinstance(c, Create)]
    assert create.manifest["spec"]["maximumExecutionTimeSeconds"] == 60
    since = create.manifest["metadata"]["annotations"][api_names.RUNNING_SINCE_ANNOTATION]
    assert since == "2025-12-31T23:59:50+00:00"
    [other] = [c for c in reconcile(a_view(a_job(3), limited(None)), AFTER_20_S) if isinstance(c, Create)]
    assert api_names.RUNNING_SINCE_ANNOTATION not in other.manifest["metadata"]["annotations"]


def given_back(workload: Manifest) -> Manifest:
    view = a_view(a_job(), workload)
    assert view.evicted is not None
    patch = evictions._give_back(view, view.evicted, now=AFTER_60_S)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    status: Manifest = patch.body["status"]
    return status


def test_the_time_before_an_eviction_counts_and_that_of_an_ended_run_does_not() -> None:
    preempted = condition("Evicted", True, "Preempted") | {"lastTransitionTime": "2026-01-01T00:00:20Z"}
    name = "accumulatedPastExecutionTimeSeconds"
    assert given_back(limited(past_s=5, conditions=(preempted,)))[name] == 25
    assert given_back(limited(past_s=5, conditions=(OVER,)))[name] == 0
    assert name not in given_back(limited(None, conditions=(preempted,)))


def test_the_time_before_a_resize_counts_where_its_slice_is_evicted() -> None:
    preempted = condition("Evicted", True, "Preempted") | {"lastTransitionTime": "2026-01-01T00:00:20Z"}
    name, since = "accumulatedPastExecutionTimeSeconds", "2025-12-31T23:59:30Z"
    assert given_back(limited(since=since, conditions=(preempted,)))[name] == 50
    assert given_back(limited(since=since, past_s=5, conditions=(preempted,)))[name] == 25


def test_it_says_why_it_waits() -> None:
    workload = merge_patch(limited(conditions=(OVER,)), {"spec": {"active": False}, "status": {"admission": None}})
    [wait] = cycle(snapshot(Slice.from_manifest(workload)))
    assert isinstance(wait, Wait)
    assert wait.message == "The workload is deactivated: exceeding the maximum execution time of 60 s"


def with_label(text: str) -> Manifest:
    return a_job(labels={LABEL: text})


def first(job: Manifest, *workloads: Manifest) -> Command:
    view: JobView = a_view(job, *workloads)
    return reconcile(view, ADMITTED_AT)[0]


def test_a_new_workload_has_the_time_of_its_jobs_label() -> None:
    create = first(with_label("90"))
    assert isinstance(create, Create)
    assert create.manifest["spec"]["maximumExecutionTimeSeconds"] == 90
    assert create.manifest["metadata"]["labels"][LABEL] == "90"


def waiting(seconds: int | None) -> Manifest:
    return merge_patch(a_workload(), {"spec": {"maximumExecutionTimeSeconds": seconds}})


def test_another_label_is_copied_and_what_a_workload_has_of_its_own_stays() -> None:
    patch = first(with_label("90"), waiting(60))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"labels": {LABEL: "90"}}, "spec": {"maximumExecutionTimeSeconds": 90}}
    labelled = merge_patch(waiting(60), patch.body)
    assert execution_time.copied(a_view(with_label("90"), labelled), with_label("90")) == []
    [removed] = execution_time.copied(a_view(a_job(), labelled), a_job())
    assert isinstance(removed, Patch)
    assert removed.body == {"metadata": {"labels": {LABEL: None}}, "spec": {"maximumExecutionTimeSeconds": None}}
    assert execution_time.copied(a_view(a_job(), waiting(60)), a_job()) == []


def test_a_limit_stays_while_its_workload_has_quota() -> None:
    """Kueue's schema forbids another one: the write would be refused each time, and nothing else be done."""
    assert execution_time.copied(a_view(with_label("90"), limited(60)), with_label("90")) == []
    grown = a_job(3, labels={LABEL: "90"})
    [create] = [c for c in reconcile(a_view(grown, limited(60)), AFTER_20_S) if isinstance(c, Create)]
    assert create.manifest["spec"]["maximumExecutionTimeSeconds"] == 60
    assert LABEL not in create.manifest["metadata"]["labels"]


@pytest.mark.parametrize(("text", "is_told"), [("90", True), ("60", False), ("an hour", False)])
def test_a_label_that_counts_from_the_next_start_is_told(text: str, is_told: bool) -> None:
    workload = merge_patch(limited(60), {"metadata": {"labels": {LABEL: "60"}}})
    commands = unmanaged.run_on(a_view(with_label(text), workload), with_label(text))
    told = [command for command in commands if isinstance(command, Emit)]
    assert [event.reason for event in told] == ["MaximumExecutionTimeChanged"] * is_told


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "an hour", "9" * 10, "9" * 5000, "\u0661"], ids=lambda text: text[:10]
)
def test_a_label_that_is_no_time_is_refused_and_changes_nothing_that_runs(text: str) -> None:
    [_, event] = reconcile(a_view(with_label(text)), ADMITTED_AT)
    assert isinstance(event, Emit)
    assert event.reason == "InvalidMaximumExecutionTime"
    assert execution_time.copied(a_view(with_label(text), limited(60)), with_label(text)) == []
