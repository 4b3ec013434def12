"""More of a job than it is charged for is noticed, but not where it had ended and its cluster was given up."""

from contextlib import nullcontext

import msgspec
import pytest

from simulation.quota_rules import QuotaRules
from simulation.violations import Violation
from slicebus.kube.resources import PODS, WORKERCLUSTERS
from slicebus.manager.state.worker_clusters import CONNECTED
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import a_slice, admitted

POD = {
    "metadata": {"name": "submitter", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"phase": "Running"},
}


def over(slice: Slice, *, finished: bool = True, evicted: bool = True) -> Slice:
    """The slice when it has given its quota back."""
    left = slice if finished else msgspec.structs.replace(slice, admission=None)
    return msgspec.structs.replace(left, finished=finished, evicted=evicted)


def worker_cluster(*, connected: bool) -> HistoryEntry:
    conditions = [{"type": CONNECTED, "status": str(connected)}]
    manifest = {"metadata": {"name": "east"}, "status": {"conditions": conditions}}
    return HistoryEntry(1, "MODIFIED", (WORKERCLUSTERS.group, WORKERCLUSTERS.plural, "", "east"), manifest, None)


HELD = admitted(a_slice("a", job_uid="job-a"), flavor="", cluster="east")


@pytest.mark.parametrize(
    ("ended", "given_up", "breaks"),
    [
        (over(HELD), True, False),
        (over(HELD), False, True),
        (over(HELD, finished=False), True, True),
        (over(HELD, evicted=False), True, True),
    ],
    ids=["given up", "its cluster speaks", "it runs elsewhere", "ended"],
)
def test_a_pod_that_nobody_is_charged_for(ended: Slice, given_up: bool, breaks: bool) -> None:
    slices = {HELD.key: HELD}
    rules = QuotaRules(slices)
    rules.see_cluster(worker_cluster(connected=not given_up))
    rules.see_pod("east", HistoryEntry(1, "ADDED", (PODS.group, PODS.plural, "team", "submitter"), POD, None), "job-a")
    slices[ended.key] = ended
    rules.leave("job-a", ())
    with pytest.raises(Violation, match=r"^rule 1: of ") if breaks else nullcontext():
        rules.check_running("job-a")
