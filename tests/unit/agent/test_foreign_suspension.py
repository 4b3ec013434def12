"""A worker's job that somebody else than the manager has suspended is resumed, and says so."""

from typing import Any

import pytest

from slicebus.agent.decide.job import reconcile, suspension, waiting
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Emit, Patch
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import Waiting
from unit.agent.objects import NOW, a_job, a_view, shorts

Manifest = dict[str, Any]
JUST_BEFORE, LONG_AGO, FUTURE = "2026-01-31T11:59:40Z", "2026-01-31T11:00:00Z", "2026-01-31T13:00:00Z"
LATER = "2026-01-31T12:00:09Z"


def a_suspended(*, resumed_at: str | None = None, **how: Any) -> Manifest:
    job = a_job(suspended=True, **how)
    job["metadata"]["annotations"] |= {api_names.RESUMED_ANNOTATION: resumed_at} if resumed_at else {}
    return job


def by_the_manager() -> Manifest:
    job = a_suspended()
    job["metadata"]["annotations"][api_names.GRANTED_ANNOTATION] = "{}"
    return job


UNDONE = [("train", "resumed"), ("tell Job", "SuspensionUndone")]
CASES: dict[str, tuple[WorkerView, list[tuple[Any, ...]]]] = {
    "it runs": (a_view(a_job()), []),
    "somebody has suspended it": (a_view(a_suspended()), UNDONE),
    "again, after a while": (a_view(a_suspended(resumed_at=LONG_AGO)), UNDONE),
    "the time cannot be read": (a_view(a_suspended(resumed_at="soon")), UNDONE),
    "the time has no zone": (a_view(a_suspended(resumed_at="2026-01-31T11:59:40")), UNDONE),
    "the time is of the future": (a_view(a_suspended(resumed_at=FUTURE)), UNDONE),
    "the manager has suspended it": (a_view(by_the_manager()), []),
    "it has ended": (a_view(a_suspended(over="Failed")), []),
    "it is being deleted": (a_view(a_suspended(deleting=True)), []),
    "there is none": (a_view(None), []),
}


@pytest.mark.parametrize(("view", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_undone(view: WorkerView, expected: list[tuple[Any, ...]]) -> None:
    assert shorts(suspension.undo(view, now=NOW)) == expected


def test_who_suspends_it_again_and_again_waits_for_a_minute() -> None:
    soon = a_view(a_suspended(resumed_at=JUST_BEFORE))
    assert suspension.undo(soon, now=NOW) == []
    [again] = suspension.requeue_after(soon, now=NOW)
    assert again.delay_s == 40.0
    assert suspension.requeue_after(a_view(a_suspended(resumed_at=LONG_AGO)), now=NOW) == []
    [patch, told] = suspension.undo(a_view(a_suspended()), now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert isinstance(told, Emit)
    resumed = merge_patch(a_suspended(), patch.body)
    assert resumed["metadata"]["annotations"][api_names.RESUMED_ANNOTATION] == NOW
    assert resumed["spec"]["suspend"] is False


def test_a_repeated_suspension_is_told_to_the_manager_for_as_long_as_it_stays() -> None:
    job = a_suspended(resumed_at=JUST_BEFORE)
    [shown] = waiting.reconcile(a_view(job), now=NOW)
    assert isinstance(shown, Patch)
    assert isinstance(shown.body, dict)
    job = merge_patch(job, shown.body)
    assert waiting.reconcile(a_view(job), now=LATER) == []
    status = reconcile.status(a_view(job))
    assert status is not None
    assert status.waits
    assert (status.waits.reason, status.waits.since) == ("SuspendedOnWorker", NOW)
    assert "on the manager's cluster" in status.waits.message
    resumed = merge_patch(job, {"spec": {"suspend": False}})
    [over] = waiting.reconcile(a_view(resumed), now=LATER)
    assert isinstance(over, Patch)
    assert isinstance(over.body, dict)
    assert Waiting.from_manifest(merge_patch(resumed, over.body)) is None


def test_the_first_suspension_is_undone_and_no_reason_to_wait() -> None:
    assert waiting.reconcile(a_view(a_suspended()), now=NOW) == []
