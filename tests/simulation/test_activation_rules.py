"""Only a user starts a job anew whose end is unknown."""

from contextlib import nullcontext

import pytest

from simulation.activation_rules import ActivationRules
from simulation.violations import Violation
from slicebus.slices.api.api_names import END_KNOWN_CONDITION
from slicebus.slices.workload.workload import Slice


def slice_of(*, active: bool, unknown: bool = True) -> Slice:
    conditions = [{"type": END_KNOWN_CONDITION, "status": "False"}] if unknown else []
    return Slice.from_manifest(
        {
            "metadata": {"name": "job-a", "namespace": "team-a", "uid": "1"},
            "spec": {"active": active, "podSets": []},
            "status": {"conditions": conditions},
        }
    )


RUNS, SHOWN, STOPPED = slice_of(active=True, unknown=False), slice_of(active=True), slice_of(active=False)
PAUSED = slice_of(active=False, unknown=False)


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ((RUNS,), False),
        ((RUNS, SHOWN), True),
        ((RUNS, SHOWN, STOPPED), True),
        ((RUNS, SHOWN, STOPPED, SHOWN), False),
        ((RUNS, SHOWN, STOPPED, SHOWN, STOPPED), True),
        ((RUNS, PAUSED, RUNS, SHOWN), True),
        ((RUNS, SHOWN, STOPPED, SHOWN, RUNS, SHOWN), True),
    ],
    ids=["known", "just seen", "stopped", "started anew", "stopped again", "activated before", "vanished again"],
)
def test_an_end_is_unknown_until_a_user_starts_the_job_anew(changes: tuple[Slice, ...], unknown: bool) -> None:
    rules, old = ActivationRules(), None
    for slice in changes:
        with rules.user_activates("job-a") if slice.active else nullcontext():
            rules.see_slice(slice, old)
        old = slice
    assert rules.has_unknown_end(changes[-1]) is unknown


def test_nobody_but_a_user_activates_a_workload() -> None:
    rules = ActivationRules()
    with rules.user_activates("job-b"), pytest.raises(Violation, match="job-a was activated, and no user had done it"):
        rules.see_slice(SHOWN, STOPPED)
