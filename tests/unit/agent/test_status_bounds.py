"""A status always comes through, whatever the pods and the annotations of the worker's job say."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.job.inventory import is_too_large, item
from slicebus.agent.state import status_bounds
from slicebus.agent.state.status_bounds import bounded
from slicebus.proto.messages import RESOURCES_LEFT_OUT, ClusterName, JobPhase, PodProblem, PodSetStatus, Status, Waits
from unit.agent.objects import REF, a_job, a_pod, a_view

EAST = ClusterName("east")
SINCE = "2026-05-01T12:00:00Z"


def requesting(pod: dict[str, Any], resources: dict[str, str], *, node: str = "") -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": resources}}]
    return pod | {"spec": pod["spec"] | {"containers": containers} | ({"nodeName": node} if node else {})}


def many(number: int) -> dict[str, str]:
    return {f"a{index}.example.com/device-of-a-long-name": "1" for index in range(number)}


def told(*pods: dict[str, Any]) -> Status:
    view = a_view(a_job(), pods=pods)
    status = reconcile.status(view)
    assert status is not None
    assert len(msgspec.json.encode(status)) <= status_bounds.MOST_BYTES
    listed = item(view, EAST)
    assert listed is not None
    assert not is_too_large((listed, None)), "the job is in the inventory, too"
    assert listed.pods == {name: one.use for name, one in status.pods.items()}, "the manager compares them"
    return status


def test_a_pod_that_requests_thousands_of_resources_hides_nothing_that_is_on_a_node() -> None:
    """The manager refused the status as too large, for ever, and the job showed nothing any more."""
    works = requesting(a_pod("p1"), {"cpu": "1", "zz.example.com/gpu": "8"}, node="n1")
    status = told(works, requesting(a_pod("p2"), many(5000)))
    requests = status.pods["main"].requests
    assert (requests["cpu"], requests["zz.example.com/gpu"]) == ("1", "8")
    assert int(requests[RESOURCES_LEFT_OUT]) == 5002 - (len(requests) - 1)
    assert status.pods["main"].total == 2


def test_a_usual_number_of_resources_is_told_whole() -> None:
    status = told(requesting(a_pod("p1"), many(30)))
    assert status.pods["main"].requests == many(30)


def test_pods_of_too_many_pod_sets_are_told_as_of_none() -> None:
    own, others = a_pod("p", pod_set="main"), [a_pod(f"p{n}", pod_set=f"a{n}") for n in range(1000)]
    status = told(own, *others)
    assert len(status.pods) == status_bounds.MOST_POD_SETS
    assert status.pods["main"].total == 1
    assert sum(one.total for one in status.pods.values()) == 1001
    assert status.pods[""].requests == {"cpu": str(1001 - status_bounds.MOST_POD_SETS + 1)}


@pytest.mark.parametrize("text", ["x" * 100_000, "\x01" * 100_000, "\U0001f600" * 100_000], ids=["a", "nul", "wide"])
def test_the_longest_texts_are_cut(text: str) -> None:
    problem = PodProblem("A" + ":" * 1000 + "b", text[:500], SINCE)
    names = [f"{'n' * 60}{number}" for number in range(status_bounds.MOST_POD_SETS)]
    counts = {f"{'w' * 58}{number}": 2**31 - 1 for number in range(10_000)}
    status = Status(
        job=REF,
        workload=text,
        spec_version=1,
        phase=JobPhase.FAILED,
        message=text,
        job_status={"failed": 1, "text": "x" * 30_000},
        pods={name: PodSetStatus(1, 1, 1, problem=problem) for name in names},
        waits=Waits(wanted=counts, reason="SurplusPods", message=text, since=SINCE),
        gang=counts,
    )
    found = bounded(status)
    assert len(msgspec.json.encode(found)) <= 50 * 1024
    assert (found.phase, found.job_status, set(found.pods)) == (JobPhase.FAILED, {"failed": 1}, set(names))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Status) == found, "it is valid"


def test_a_status_that_fits_is_left_alone() -> None:
    status = Status(job=REF, workload="w1", spec_version=1, phase=JobPhase.RUNNING, message="m" * 5000, waits=UNSET)
    assert bounded(status) is status
