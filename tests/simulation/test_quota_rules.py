"""More of a job than it is charged for is noticed, but not where it had ended and its cluster was given up."""

from contextlib import nullcontext

import msgspec
import pytest

from simulation.quota_rules import QuotaRules
from simulation.violations import Violation
from slicebus.kube.resources import PODS
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import a_slice, admitted

POD = {
    "metadata": {"name": "submitter", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"phase": "Running"},
}


def over(slice: Slice, *, finished: bool = True, reason: str = EvictionReason.CLUSTER_LOST) -> Slice:
    """The slice when it is evicted for this reason, and has given its quota back."""
    evicted = {"status": "True", "reason": reason}
    left = slice if finished else msgspec.structs.replace(slice, admission=None)
    return msgspec.structs.replace(left, finished=finished, evicted=True, conditions={Condition.EVICTED: evicted})


HELD = admitted(a_slice("a", job_uid="job-a"), flavor="", cluster="east")


@pytest.mark.parametrize(
    ("ended", "breaks"),
    [
        (over(HELD), False),
        (over(HELD, finished=False), True),
        (over(HELD, reason=EvictionReason.PREEMPTED), True),
        (msgspec.structs.replace(HELD, finished=True), True),
    ],
    ids=["given up", "it runs elsewhere", "preempted", "ended"],
)
def test_a_pod_that_nobody_is_charged_for(ended: Slice, breaks: bool) -> None:
    slices = {HELD.key: HELD}
    rules = QuotaRules(slices)
    rules.see_pod("east", HistoryEntry(1, "ADDED", (PODS.group, PODS.plural, "team", "submitter"), POD, None), "job-a")
    slices[ended.key] = ended
    rules.leave("job-a", ())
    with pytest.raises(Violation, match=r"^rule 1: of ") if breaks else nullcontext():
        rules.check_running("job-a")
