"""Granted pods that do not run on their worker: the manager's job says why, with one Event for each reason."""

import msgspec
import pytest
from msgspec import structs

from slicebus.decisions.commands import Emit, Forget, Patch, Remember, Requeue
from slicebus.manager.decide.explain import explain
from slicebus.manager.decide.job import waiting
from slicebus.manager.decide.messages.inventory import status_differs
from slicebus.manager.state.outbox import NO_REQUEST, Dispatch
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView, ReportedPods
from slicebus.proto.messages import (
    ClusterName,
    InventoryItem,
    JobPhase,
    Manifest,
    PodProblem,
    PodSetStatus,
    Status,
    Waits,
)
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import status_hash
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING, PODS_REFUSED, SURPLUS, Waiting
from unit.manager.objects import CONTENT, NOW, REF, a_job, a_view, a_workload
from unit.manager.test_explain import a_store
from unit.manager.test_waiting import EAST, OLD, a_wait, shown, told, written
from unit.manager.test_waiting import SHOWN as LACKS_QUOTA

NO_NODE = PodProblem("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", NOW)
NO_IMAGE = PodProblem("ImagePullBackOff", "image i of container c cannot be pulled", NOW)
REPORTED = ReportedPods(1, {"main": NO_NODE})
SHOWN = Waiting(
    wanted={"main": 1},
    granted={"main": 1},
    reason=PODS_NOT_RUNNING,
    message=f"pods of main do not run: Unschedulable: {NO_NODE.message}",
    since=NOW,
    pods={"main": NO_NODE},
)


def a_report(problem: PodProblem | None = NO_NODE, *, name: str = "main", **changes: object) -> Status:
    pods = PodSetStatus(total=1, problem=problem or msgspec.UNSET)
    report = Status(
        job=a_view(a_job(), OLD).ref, workload="w1", spec_version=1, phase=JobPhase.RUNNING, pods={name: pods}
    )
    return structs.replace(report, **changes)


def after(view: JobView) -> Manifest:
    """The job with what a reconcile shows on it."""
    assert view.job is not None
    job = view.job
    for command in waiting.reconcile(view):
        if isinstance(command, Patch):
            job = dict(merge_patch(job, command.body))
    return job


def events(view: JobView) -> list[tuple[str, str]]:
    return [(command.reason, command.note) for command in waiting.reconcile(view) if isinstance(command, Emit)]


def test_a_report_is_remembered_and_shown_with_one_event() -> None:
    view = a_view(a_job(), OLD)
    remember, requeue = waiting.take_report(view, a_report(), EAST)
    assert remember == Remember(table=ManagerTable.REPORTED_PODS, key=view.ref, value=REPORTED)
    assert isinstance(requeue, Requeue)
    known = a_view(a_job(), OLD, reported_pods=REPORTED)
    assert waiting.take_report(known, a_report(), EAST) == []
    assert written(waiting.reconcile(known)) == [SHOWN]
    assert events(known) == [(PODS_NOT_RUNNING, SHOWN.message)]
    assert told(waiting.reconcile(known)) == [], "its worker knows"


def test_it_is_written_once_whatever_the_numbers() -> None:
    job = shown(a_job(), SHOWN)
    assert waiting.reconcile(a_view(job, OLD, reported_pods=REPORTED)) == []
    more = ReportedPods(1, {"main": structs.replace(NO_NODE, message=NO_NODE.message.replace("3", "5"))})
    assert waiting.reconcile(a_view(job, OLD, reported_pods=more)) == []


def test_only_a_new_reason_is_an_event() -> None:
    job = shown(a_job(), SHOWN)
    other_words = ReportedPods(1, {"main": structs.replace(NO_NODE, message="3 node(s) had a taint")})
    view = a_view(job, OLD, reported_pods=other_words)
    assert written(waiting.reconcile(view))[0].pods == other_words.problems
    assert events(view) == []
    other = a_view(job, OLD, reported_pods=ReportedPods(1, {"main": NO_IMAGE}))
    assert events(other) == [(PODS_NOT_RUNNING, f"pods of main do not run: ImagePullBackOff: {NO_IMAGE.message}")]
    assert events(a_view(after(other), OLD, reported_pods=ReportedPods(1, {"main": NO_IMAGE}))) == []


def test_it_goes_when_the_pods_run() -> None:
    known = a_view(shown(a_job(), SHOWN), OLD, reported_pods=REPORTED)
    forget, patch, requeue = waiting.take_report(known, a_report(None), EAST)
    assert forget == Forget(table=ManagerTable.REPORTED_PODS, key=known.ref)
    assert written([patch]) == [None]
    assert isinstance(requeue, Requeue)


def test_a_lack_of_quota_is_shown_beside_it() -> None:
    view = a_wait(reported_pods=REPORTED)
    [found] = written(waiting.reconcile(view))
    assert found == structs.replace(LACKS_QUOTA, pods={"main": NO_NODE})
    assert events(view) == [(PODS_NOT_RUNNING, SHOWN.message)]
    both = a_wait(after(view), reported_pods=REPORTED)
    assert written(waiting.reconcile(both)) == []
    cleared = waiting.take_report(both, a_report(None), EAST)
    assert written(cleared) == [LACKS_QUOTA]
    granted = a_view(shown(a_job(), found), OLD, reported_pods=REPORTED)
    assert written(waiting.reconcile(granted)) == [SHOWN]
    assert events(granted) == [], "it was told"


def test_refused_pods_are_shown_beside_those_that_do_not_run() -> None:
    refused = Waits(wanted={"main": 1}, reason=PODS_REFUSED, message="exceeded quota", since=NOW)
    view = a_view(a_job(), OLD, waits=refused, reported_pods=REPORTED)
    [found] = written(waiting.reconcile(view))
    assert (found.reason, found.pods) == (PODS_REFUSED, {"main": NO_NODE})
    assert {reason for reason, _ in events(view)} == {PODS_REFUSED, PODS_NOT_RUNNING}
    known = structs.replace(a_view(after(view), OLD), waits=refused, reported_pods=REPORTED)
    [left] = written(waiting.take_report(known, a_report(), EAST))
    assert (left.reason, left.pods) == (PODS_NOT_RUNNING, {"main": NO_NODE})


def test_what_an_earlier_manager_has_shown_stays_until_a_report() -> None:
    view = a_view(shown(a_job(), SHOWN), OLD)
    assert waiting.reconcile(view) == []
    assert written(waiting.take_report(view, a_report(None), EAST)) == [None]


def anew(workload: Manifest) -> Manifest:
    """A Workload whose job runs anew since version 3."""
    dispatch = structs.replace(Dispatch(3, CONTENT, NO_REQUEST), since=3)
    body = {"metadata": {"annotations": {api_names.DISPATCHED_ANNOTATION: dispatch.to_annotation()}}}
    return dict(merge_patch(workload, body))


STRANGE: dict[str, JobView] = {
    "of an earlier run": a_view(shown(a_job(), SHOWN), anew(OLD), reported_pods=REPORTED),
    "nothing is granted": a_view(shown(a_job(), SHOWN), a_workload(), reported_pods=REPORTED),
    "the job has ended": a_view(shown(a_job(over="Complete"), SHOWN), OLD, reported_pods=REPORTED),
}


@pytest.mark.parametrize("view", STRANGE.values(), ids=STRANGE.keys())
def test_it_is_of_the_pods_that_are_granted_now(view: JobView) -> None:
    assert [found for found in written(waiting.reconcile(view)) if found and found.pods] == []
    assert SHOWN not in written(waiting.reconcile(view))
    assert None in written(waiting.reconcile(view))


@pytest.mark.parametrize(
    ("report", "cluster"),
    [
        (a_report(name="A_b"), EAST),
        (a_report(name="other"), EAST),
        (a_report(phase=JobPhase.GONE), EAST),
        (a_report(), ClusterName("west")),
    ],
    ids=["a label that is no pod set", "another pod set", "gone", "of another cluster"],
)
def test_other_reports_say_nothing_of_it(report: Status, cluster: ClusterName) -> None:
    assert waiting.take_report(a_view(a_job(), OLD), report, cluster) == []


def test_a_report_of_one_thing_leaves_the_other() -> None:
    surplus = Waiting.of({"main": 1}, {"main": 1}, reason=SURPLUS, message="2 pods run", since=NOW)
    job = shown(a_job(), structs.replace(surplus, pods={"main": NO_NODE}))
    said = Waits(wanted={"main": 1}, reason=SURPLUS, message="2 pods run", since=NOW)
    view = a_view(job, OLD, waits=said, reported_pods=REPORTED)
    assert written(waiting.take_report(view, a_report(None, waits=said), EAST)) == [surplus]


def test_what_stood_on_the_workers_job_is_said_again_when_the_workers_own_reason_is_over() -> None:
    """It took the place of the manager's notice there, which nobody else repeats."""
    said = Waits(wanted={"main": 1}, reason=SURPLUS, message="2 pods run", since=NOW)
    forget = Forget(table=ManagerTable.NOTICES, key=a_view(a_job(), OLD).ref)
    over = a_view(a_job(), OLD, waits=said, last_notice="w2 Pending")
    assert forget in waiting.take_report(over, a_report(None), EAST)
    assert forget not in waiting.take_report(over, a_report(None, waits=said), EAST)
    assert forget not in waiting.take_report(structs.replace(over, waits=None), a_report(), EAST)


INVENTORIES: dict[str, tuple[JobView, dict[str, str], bool]] = {
    "it runs on both sides": (a_view(a_job(), OLD), {}, False),
    "the report was lost": (a_view(a_job(), OLD), {"main": "Unschedulable"}, True),
    "reported": (a_view(a_job(), OLD, reported_pods=REPORTED), {"main": "Unschedulable"}, False),
    "reported to an earlier manager": (a_view(shown(a_job(), SHOWN), OLD), {"main": "Unschedulable"}, False),
    "another reason": (a_view(shown(a_job(), SHOWN), OLD), {"main": "ImagePullBackOff"}, True),
    "it is over": (a_view(shown(a_job(), SHOWN), OLD), {}, True),
}


@pytest.mark.parametrize(("view", "there", "differs"), INVENTORIES.values(), ids=INVENTORIES.keys())
def test_an_inventory_finds_what_was_not_reported(view: JobView, there: dict[str, str], differs: bool) -> None:
    status = status_hash({}, JobPhase.RUNNING, None, problems=there)
    item = InventoryItem("Job", "team", "train", view.ref.uid, 1, "spec", status)
    assert status_differs(view, item) is differs


def test_explain_says_it_of_each_pod_set() -> None:
    store = a_store(shown(a_job(), SHOWN), OLD)
    assert f"pods of main do not run: Unschedulable: {NO_NODE.message} (since {NOW})" in explain(store, REF).problems
    assert not any(problem.startswith(PODS_NOT_RUNNING) for problem in explain(store, REF).problems)
