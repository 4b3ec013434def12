"""The manager's Indexed Job after its end: it gets the completions that its copy had, and names all its indexes."""

from typing import Any

import pytest

from slicebus.decisions.commands import Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.messages import message_handlers
from slicebus.manager.state.annotations import reported_status
from slicebus.proto.messages import JobPhase, Status
from slicebus.sandbox.apiserver import job_status
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, condition

Manifest = dict[str, Any]
FINISHED = condition("Finished", reason="Succeeded")
OVER = [condition("SuccessCriteriaMet"), condition("Complete")]
TIMES = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}


def an_indexed(size: int) -> Manifest:
    job = a_job(size)
    job["spec"] |= {"completionMode": "Indexed", "completions": size}
    return job


def taken(job: Manifest, patch: Manifest, *, subresource: str) -> Manifest:
    """The job after a patch that the API server takes."""
    changed = merge_patch(job, patch)
    if subresource:
        refused = list(job_status.problems(job["spec"], job.get("status", {}), changed["status"]))
        assert refused == []
    return changed


@pytest.mark.parametrize("count", [5, 2], ids=["grown", "shrunk"])
def test_it_ends_at_once_and_is_then_as_its_copy_was(count: int) -> None:
    job, workload = an_indexed(3), a_workload(count=count, admitted=count, dispatched=1, applied=1)
    there = TIMES | {"conditions": OVER, "completedIndexes": f"0-{count - 1}", "succeeded": count}
    report = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.SUCCEEDED, job_status=there)
    for left in message_handlers.status(a_view(job, workload), report, an_envelope(), now=NOW)[1:-1]:
        assert isinstance(left, Patch)
        assert isinstance(left.body, dict)
        job = taken(job, left.body, subresource=left.subresource)
    shown = job["status"]
    assert (job["spec"]["completions"], shown["conditions"]) == (3, OVER)
    assert shown["completedIndexes"] == f"0-{min(count, 3) - 1}"
    assert reported_status(job) == there

    over = a_workload(admitted=count, dispatched=2, hash="absent", applied=2, held=False, conditions=(FINISHED,))
    while commands := reconcile(a_view(job, over), NOW):
        for command in commands[:1]:
            assert isinstance(command, Patch)
            assert isinstance(command.body, dict)
            job = taken(job, command.body, subresource=command.subresource)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (count, count)
    assert job["status"] == there


def test_it_is_as_its_copy_was_after_its_user_opted_out_too() -> None:
    job = an_indexed(3)
    del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    job["status"] = TIMES | {"conditions": OVER, "completedIndexes": "0,1", "succeeded": 2}
    let_go = a_workload(admitted=2, dispatched=2, hash="absent", applied=2, held=False, conditions=(FINISHED,))
    [patch] = reconcile(a_view(job, let_go), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body == {"spec": {"parallelism": 2, "completions": 2}}
    assert reconcile(a_view(merge_patch(job, patch.body), let_go), NOW) == []


def test_one_that_slicebus_never_ran_keeps_its_spec() -> None:
    job = an_indexed(3)
    del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    job["status"] = TIMES | {"conditions": OVER, "completedIndexes": "0,1", "succeeded": 2}
    assert reconcile(a_view(job), NOW) == []


def test_what_a_status_cannot_show_for_another_reason_stays_beside_it() -> None:
    job = an_indexed(3)
    job["status"] = TIMES | {"conditions": OVER, "completedIndexes": "0-2", "succeeded": 3}
    job["metadata"]["annotations"]["slicebus.dev/unshown-status"] = '{"startTime":"2026-01-01T12:00:00Z"}'
    over = a_workload(admitted=3, dispatched=2, hash="absent", applied=2, held=False, conditions=(FINISHED,))
    assert reconcile(a_view(job, over), NOW) == []


def test_an_indexed_job_that_runs_keeps_its_completions() -> None:
    there = {"completedIndexes": "0,3-4", "succeeded": 3, "active": 2}
    report = Status(job=REF, workload="w0", spec_version=1, phase=JobPhase.RUNNING, job_status=there)
    view = a_view(an_indexed(3), a_workload(admitted=1))
    [note, shown] = message_handlers.status(view, report, an_envelope(), now=NOW)
    assert isinstance(note, Patch)
    assert isinstance(shown, Patch)
    assert shown.body == {"status": there | {"completedIndexes": "0"}}
    assert reported_status(merge_patch(merge_patch(an_indexed(3), note.body), shown.body)) == there
