"""The decisions of reconciling a job: requests, ungated pods, reports."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequest, PendingRequests
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Patch, PatchEach, Publish, Remember
from slicebus.proto.messages import JobPhase, JobRef, PodSetStatus, RequestKey, ScaleRequest
from slicebus.slices.api import kueue
from unit.agent.objects import EAST, REF, a_copy, a_job, a_pod, a_view, shorts

Manifest = dict[str, Any]
OTHER = JobRef("batch/v1", "Job", "team", "train", "other-uid")


def asked(wanted: int, *, uid: str = "worker-uid", generation: int = 1) -> PendingRequests:
    return PendingRequests(uid, generation, {"main": wanted})


LEFT = PendingRequest("gone", 1, {"main": 5})
REQUESTS: dict[str, tuple[WorkerView, int | None]] = {
    "no job": (a_view(None), None),
    "at the granted size": (a_view(a_job(1)), None),
    "at the granted size, and its status has changed": (a_view(a_job(1, generation=7)), None),
    "grown": (a_view(a_job(5)), 5),
    "shrunk": (a_view(a_job(1, granted=5)), 1),
    "to nothing": (a_view(a_job(0)), 0),
    "given another size by an order, and back at once": (a_view(a_job(1, baseline=4)), 1),
    "made by a version that noted no baseline": (a_view(a_job(1, baseline=None)), None),
    "asked already": (a_view(a_job(5, requested=asked(5))), None),
    "asked already, and edited otherwise since": (a_view(a_job(5, requested=asked(5), generation=4)), None),
    "asked for another size": (a_view(a_job(8, requested=asked(5))), 8),
    "back to the granted size while it waits": (a_view(a_job(1, requested=asked(5))), 1),
    "back to the granted size, asked already": (a_view(a_job(1, requested=asked(1))), None),
    "asked already, and overruled by the manager's size": (
        a_view(a_job(5, requested=structs.replace(asked(5), overruled=True), generation=4)),
        5,
    ),
    "asked already at an earlier generation than the request's, and overruled since": (
        a_view(
            a_job(
                1, granted=1, requested=structs.replace(asked(1, generation=5), made_at=4, overruled=True), generation=5
            )
        ),
        1,
    ),
    "overruled by the size that it has, at an earlier generation than the request's": (
        a_view(a_job(5, requested=structs.replace(asked(5, generation=5), made_at=4, overruled=True), generation=4)),
        None,
    ),
    "overruled by the size that it has": (a_view(a_job(5, requested=structs.replace(asked(5), overruled=True))), None),
    "granted what was asked": (a_view(a_job(5, granted=5, requested=asked(5))), None),
    "granted more than was asked, since another size came and went at the manager": (
        a_view(a_job(3, granted=5, requested=asked(3))),
        3,
    ),
    "asked by a worker object that is no more": (a_view(a_job(5, requested=asked(5, uid="gone"))), None),
    "written for a worker object that is gone, and not published": (
        a_view(a_job(5, requested=structs.replace(asked(5, uid="gone"), unanswered=(LEFT,)))),
        5,
    ),
    "at the granted size, asked for more by one that is no more": (a_view(a_job(1, requested=asked(5, uid="gone"))), 1),
    "nothing granted of what the manager's spec asks for": (a_view(a_job(5, baseline=5, granted=0)), None),
    "a part granted of what the manager's spec asks for": (a_view(a_job(5, baseline=5, granted=3)), 5),
    "more granted than the manager's spec asks for": (a_view(a_job(1, baseline=1, granted=5)), 1),
    "less granted than it has asked for": (a_view(a_job(5, baseline=1, granted=0)), 5),
    "suspended": (a_view(a_job(5, suspended=True)), None),
    "going": (a_view(a_job(5, deleting=True)), None),
    "succeeded": (a_view(a_job(5, over="Complete")), None),
    "failed": (a_view(a_job(5, over="Failed")), None),
    "not ours": (a_view(a_job(5, ours=False)), None),
    "its cluster is not there yet": (structs.replace(a_view(a_job(5)), scale_target=None), None),
}


def published_for(view: WorkerView) -> list[ScaleRequest]:
    """What is published when every step comes through."""
    published = []
    while steps := reconcile.request(view, EAST):
        for command in steps:
            if isinstance(command, Publish):
                assert isinstance(command.message, ScaleRequest)
                published.append(command.message)
            else:
                view = noted(view, command)
    return published


def noted(view: WorkerView, command: Command) -> WorkerView:
    """The view after a note on the job, or in the table of published requests."""
    if isinstance(command, Remember):
        assert (command.table, command.key) == (AgentTable.PUBLISHED, view.key)
        return structs.replace(view, published=command.value)
    assert isinstance(command, Patch)
    assert isinstance(command.body, dict)
    assert view.job is not None
    metadata = view.job["metadata"]
    job = view.job | {
        "metadata": metadata | {"annotations": metadata["annotations"] | command.body["metadata"]["annotations"]}
    }
    return structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job), scale_target=job)


@pytest.mark.parametrize(("view", "wanted"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_size_is_requested_once(view: WorkerView, wanted: int | None) -> None:
    assert [request.wanted for request in published_for(view)] == ([] if wanted is None else [{"main": wanted}])


def test_a_request_that_is_made_again_is_another_request() -> None:
    """Its worker object has not changed: the manager would take the same key for the same request."""
    [again] = published_for(a_view(a_job(3, granted=5, generation=1, requested=asked(3, generation=1))))
    assert again.worker_generation == 2
    [next_one] = published_for(a_view(a_job(4, granted=3, generation=2, requested=asked(3, generation=2))))
    assert next_one.worker_generation == 3


def test_a_request_knows_the_generation_that_it_was_made_for() -> None:
    first = PendingRequests.after(None, RequestKey("worker-uid", 4), wanted={"main": 2}, granted={"main": 4})
    second = PendingRequests.after(first, RequestKey("worker-uid", 4), wanted={"main": 1}, granted={"main": 2})
    third = second.renewed({"main": 1})
    assert [each.key.worker_generation for each in (first, second, third)] == [4, 5, 6]
    assert {each.made_for for each in (first, second, third)} == {RequestKey("worker-uid", 4)}


def test_a_request_has_the_scaler_the_wanted_and_the_granted_counts() -> None:
    assert published_for(a_view(a_job(5, generation=3))) == [
        ScaleRequest(
            job=REF,
            workload="w1",
            worker_uid="worker-uid",
            worker_generation=3,
            granted={"main": 1},
            wanted={"main": 5},
            why="parallelism changed",
        )
    ]


def test_a_request_is_written_before_it_is_published() -> None:
    view = a_view(a_job(5))
    [first] = reconcile.request(view, EAST)
    view = noted(view, first)
    [publish, published] = reconcile.request(view, EAST)
    assert isinstance(publish, Publish)
    assert isinstance(publish.message, ScaleRequest)
    assert reconcile.request(noted(view, published), EAST) == []


def test_an_unanswered_request_of_an_earlier_agent_is_published_once_more() -> None:
    unanswered = structs.replace(asked(5), unanswered=(annotations.PendingRequest("worker-uid", 2, {"main": 5}),))
    view = a_view(a_job(5, requested=unanswered))
    [again, published] = reconcile.request(view, EAST)
    assert isinstance(again, Publish)
    assert isinstance(again.message, ScaleRequest)
    assert again.message.wanted == {"main": 5}
    assert reconcile.request(noted(view, published), EAST) == []


def test_a_size_that_changes_before_its_request_is_published_is_the_one_requested() -> None:
    [first] = reconcile.request(a_view(a_job(5)), EAST)
    view = noted(a_view(a_job(5)), first)
    assert view.job is not None
    job = view.job | {"spec": view.job["spec"] | {"parallelism": 1}}
    job["metadata"]["generation"] += 1
    assert [request.wanted for request in published_for(structs.replace(view, job=job, scale_target=job))] == [
        {"main": 1}
    ]


def test_a_smaller_size_is_requested_when_its_pods_are_gone() -> None:
    stays, goes = a_pod("a"), a_pod("b")
    view = a_view(a_job(1, granted=2), pods=(stays, goes))
    assert reconcile.request(view, EAST) == []
    goes["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert reconcile.request(view, EAST) == []
    view = a_view(a_job(1, granted=2), pods=(stays,))
    assert [request.wanted for request in published_for(view)] == [{"main": 1}]


def test_a_smaller_request_lowers_the_grant_before_the_manager_knows() -> None:
    view = a_view(a_job(1, granted=2))
    [first] = reconcile.request(view, EAST)
    job = noted(view, first).job
    assert job is not None
    assert annotations.granted(job) == {"main": 1}


def gated(*names: str) -> tuple[Manifest, ...]:
    return tuple(a_pod(name, gated=True, phase="Pending") for name in names)


def owned(pod: Manifest, uid: str, *, kind: str = "Job", name: str = "train") -> Manifest:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": True}
    return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}}


FORMER, PRESENT, OTHERS = gated("a", "b", "c")
UNGATE: dict[str, tuple[WorkerView, list[str]]] = {
    "of this job, not of an earlier one of its name": (
        a_view(
            a_job(3, granted=3),
            pods=(owned(FORMER, "gone"), owned(PRESENT, "worker-uid"), owned(OTHERS, "gone", name="train-submitter")),
        ),
        ["b", "c"],
    ),
    "no job": (a_view(None, pods=gated("a")), []),
    "as many as granted": (a_view(a_job(3, granted=2), pods=gated("c", "b", "a")), ["a", "b"]),
    "what runs counts": (a_view(a_job(3, granted=2), pods=(a_pod("z"), *gated("b", "a"))), ["a"]),
    "what is over does not": (
        a_view(a_job(3, granted=1), pods=(a_pod("z", phase="Succeeded"), a_pod("y", phase="Failed"), *gated("a"))),
        ["a"],
    ),
    "nothing is granted": (a_view(a_job(1, granted=0), pods=gated("a")), []),
    "more runs than granted": (a_view(a_job(3, granted=1), pods=(a_pod("y"), a_pod("z"), *gated("a"))), []),
    "suspended": (a_view(a_job(suspended=True), pods=gated("a")), []),
    "going": (a_view(a_job(deleting=True), pods=gated("a")), []),
    "over": (a_view(a_job(over="Complete"), pods=gated("a")), []),
    "not ours": (a_view(a_job(ours=False), pods=gated("a")), []),
    "another pod set": (a_view(a_job(), pods=(a_pod("a", gated=True, pod_set="other"),)), []),
}


def ungating(view: WorkerView) -> Sequence[Patch]:
    """The patches that let pods start, in one command, where the copy of the job's slice is there."""
    commands = reconcile.ungate(structs.replace(view, copies=(a_copy(of=REF),)))
    assert all(isinstance(command, PatchEach) and command.lets_start for command in commands)
    return [patch for command in commands if isinstance(command, PatchEach) for patch in command.patches]


@pytest.mark.parametrize(("view", "names"), UNGATE.values(), ids=UNGATE.keys())
def test_pods_start_up_to_what_is_granted(view: WorkerView, names: list[str]) -> None:
    assert [patch.target["metadata"]["name"] for patch in ungating(view)] == names


def test_only_our_gate_is_taken_away_and_only_if_it_is_still_there() -> None:
    [patch] = ungating(a_view(a_job(), pods=gated("a")))
    assert patch.body == [
        {"op": "test", "path": "/spec/schedulingGates/1/name", "value": kueue.ELASTIC_GATE},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    ]


def test_a_pod_counts_as_started_where_nobody_knows() -> None:
    [pod] = gated("a")
    [patch] = ungating(a_view(a_job(), pods=(pod,)))
    uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    assert patch.unless_answered == Remember(table=AgentTable.UNANSWERED, key=uid, value=version)


LINKS: dict[str, tuple[WorkerView, list[str]]] = {
    "a new copy": (a_view(a_job(), a_copy()), ["w1"]),
    "two": (a_view(a_job(), a_copy(), a_copy("w2")), ["w1", "w2"]),
    "linked": (a_view(a_job(), a_copy(linked="worker-uid")), []),
    "linked to one that is no more": (a_view(a_job(), a_copy(linked="gone")), ["w1"]),
    "of another job": (a_view(a_job(), a_copy(of=OTHER)), []),
    "no job": (a_view(None, a_copy()), []),
    "a job that is not ours": (a_view(a_job(ours=False), a_copy()), []),
}


@pytest.mark.parametrize(("view", "names"), LINKS.values(), ids=LINKS.keys())
def test_copies_are_linked_to_their_job(view: WorkerView, names: list[str]) -> None:
    assert [name for name, *_ in shorts(reconcile.link_copies(view))] == names


PHASES: dict[str, tuple[WorkerView, JobPhase | None]] = {
    "runs": (a_view(a_job()), JobPhase.RUNNING),
    "suspended": (a_view(a_job(suspended=True)), JobPhase.RUNNING),
    "succeeded": (a_view(a_job(over="Complete")), JobPhase.SUCCEEDED),
    "failed": (a_view(a_job(over="Failed")), JobPhase.FAILED),
    "going": (a_view(a_job(deleting=True)), None),
    "not ours": (a_view(a_job(ours=False)), None),
    "no job": (a_view(None), None),
}


@pytest.mark.parametrize(("view", "phase"), PHASES.values(), ids=PHASES.keys())
def test_what_is_reported(view: WorkerView, phase: JobPhase | None) -> None:
    status = reconcile.status(view)
    assert (status.phase if status else None) == phase


def test_a_report_counts_the_pods_that_are_not_over() -> None:
    pods = (
        a_pod("a", ready=True),
        a_pod("b"),
        *gated("c"),
        a_pod("d", phase="Failed"),
        a_pod("e", ready=True, pod_set="head"),
    )
    status = reconcile.status(a_view(a_job(version=4, workload="w2"), pods=pods))
    assert status is not None
    assert status.pods == {
        "head": PodSetStatus(ready=1, gated=0, total=1, requests={"cpu": "1"}),
        "main": PodSetStatus(ready=1, gated=1, total=3, requests={"cpu": "2"}),
    }
    assert (status.job, status.workload, status.spec_version) == (REF, "w2", 4)


def test_an_end_is_reported_when_no_pod_runs_any_more() -> None:
    over, going = a_job(over="Failed"), a_pod("a")
    going["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    assert reconcile.status(a_view(over, pods=(going, *gated("b")))) is None
    status = reconcile.status(a_view(over, pods=(a_pod("a", phase="Failed"), *gated("b"))))
    assert status is not None
    assert (status.message, status.job_status["conditions"][-1]["type"]) == ("so it ended", "Failed")


GONE: dict[str, tuple[WorkerView, bool]] = {
    "a copy that knew the job": (a_view(None, a_copy(linked="worker-uid", version=3)), True),
    "one that never knew it": (a_view(None, a_copy()), False),
    "one of two knew it": (a_view(None, a_copy(), a_copy("w2", linked="worker-uid", version=3)), True),
    "two knew it": (
        a_view(None, a_copy(linked="worker-uid", version=2), a_copy("w2", linked="worker-uid", version=3)),
        True,
    ),
    "no copy": (a_view(None), False),
}


@pytest.mark.parametrize(("view", "expected"), GONE.values(), ids=GONE.keys())
def test_a_missing_job_is_gone_when_a_copy_was_linked_to_it(view: WorkerView, expected: bool) -> None:
    gone = reconcile.gone_report(view, departed={})
    assert (gone is not None) is expected
    if gone is not None:
        assert (gone.job, gone.phase, gone.spec_version, gone.seen) == (REF, JobPhase.GONE, 3, False)


def test_a_report_does_not_change_when_nothing_has() -> None:
    pods = (a_pod("a", ready=True), *gated("b"))
    assert reconcile.status(a_view(a_job(), pods=pods)) == reconcile.status(a_view(a_job(), pods=pods[::-1]))
    assert reconcile.status(a_view(a_job(), pods=pods)) != reconcile.status(a_view(a_job(), pods=pods[:1]))
