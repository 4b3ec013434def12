"""`slicebus wait`: when a job is where a script needs it, and when it cannot be any more."""

from typing import Any

import pytest

from slicebus.cli.jobs.rows import JobRow
from slicebus.cli.jobs.waiting import Goal, is_reached, told
from slicebus.manager.state.shown_states import ShownState
from unit.cli.test_job_rows import named

_YES, _NO, _NOT_YET = True, False, None
REACHED: dict[ShownState, dict[Goal, bool | None]] = {
    ShownState.UNMANAGED: dict.fromkeys(Goal, _NOT_YET),
    ShownState.REFUSED: dict.fromkeys(Goal, _NOT_YET),
    ShownState.SUSPENDED: dict.fromkeys(Goal, _NOT_YET),
    ShownState.PENDING: dict.fromkeys(Goal, _NOT_YET),
    ShownState.EVICTING: dict.fromkeys(Goal, _NOT_YET),
    ShownState.ADMITTED: {**dict.fromkeys(Goal, _NOT_YET), Goal.ADMITTED: _YES},
    ShownState.RUNNING: {**dict.fromkeys(Goal, _YES), Goal.FINISHED: _NOT_YET},
    ShownState.RESIZING: {**dict.fromkeys(Goal, _NOT_YET), Goal.ADMITTED: _YES, Goal.RUNNING: _YES},
    ShownState.UNKNOWN: {**dict.fromkeys(Goal, _NOT_YET), Goal.ADMITTED: _YES},
    ShownState.SUCCEEDED: dict.fromkeys(Goal, _YES),
    ShownState.FAILED: {**dict.fromkeys(Goal, _NO), Goal.ADMITTED: _YES},
    ShownState.DELETING: dict.fromkeys(Goal, _NO),
}


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("state", ShownState)
def test_goals(state: ShownState, goal: Goal) -> None:
    assert is_reached(named("a", "a", state=state), goal) is REACHED[state][goal]


@pytest.mark.parametrize("goal", Goal)
def test_a_job_that_is_gone_reaches_nothing(goal: Goal) -> None:
    assert is_reached(None, goal) is False


@pytest.mark.parametrize(("ready", "reached"), [(1, None), (2, True), (None, None)])
def test_a_resize_is_over_when_its_pods_are_ready(ready: int | None, reached: bool | None) -> None:
    assert is_reached(named("a", "a", ready=ready), Goal.RESIZED) is reached


@pytest.mark.parametrize(("size", "reached"), [(2, True), (3, None), (None, True)])
def test_a_size_that_the_manager_has_yet_to_hear_of(size: int | None, reached: bool | None) -> None:
    assert is_reached(named("a", "a"), Goal.RESIZED, size) is reached


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (None, "Job/a/a is gone"),
        (named("a", "a"), "Job/a/a is Running on east, wants 2, granted 2, ready 2"),
        (
            named(
                "a", "a", state=ShownState.PENDING, cluster="", granted={}, ready=None, reason="Pending", message="x"
            ),
            "Job/a/a is Pending, wants 2, granted 0, ready ?: Pending: x",
        ),
    ],
)
def test_what_is_told(row: JobRow | None, text: Any) -> None:
    assert told("Job/a/a", row) == text
