"""Granted pods that are there and do not run: since when that is told, in which words, and that it goes."""

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, structs

from slicebus.agent.decide import catalog
from slicebus.agent.decide.job import inventory, reconcile, waiting
from slicebus.agent.decide.pods import pod_problems
from slicebus.agent.state.pod_shape import fitted_pod
from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import PodSetProblem, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Forget, Patch, Publish, Remember, Requeue
from slicebus.kube.resources import JOBS, PODS
from slicebus.proto.messages import JobPhase, PodProblem, Status
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from slicebus.slices.api.fingerprints import status_hash
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING, Waiting
from unit.agent import test_waiting as of_rayjob
from unit.agent.objects import EAST, KEY, a_job, a_pod, a_view
from unit.properties.changes import edited

Manifest = dict[str, Any]
NOW = "2026-01-31T12:00:00Z"
NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."
NOT_FOUND = "image reg/i:9 of container c cannot be pulled: not found"


def at(seconds: float) -> str:
    return (datetime.fromisoformat(NOW) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def stuck(name: str = "train-1", status: Manifest | None = None, *, pod_set: str = "main") -> Manifest:
    pod = a_pod(name, pod_set=pod_set)
    return pod | {"status": unscheduled() if status is None else status}


def unscheduled(message: str = NO_NODE) -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def not_pulled(message: str | None = None, reason: str = "ImagePullBackOff") -> Manifest:
    waiting = {"reason": reason, "message": message or 'Back-off pulling image "reg/i:9"'}
    return {"phase": "Pending", "containerStatuses": [{"name": "c", "image": "reg/i:9", "state": {"waiting": waiting}}]}


def crashed(started: str = "") -> Manifest:
    state = {"running": {"startedAt": started}} if started else {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    entry = {"name": "c", "image": "i", "restartCount": 3, "state": state, "lastState": last}
    return {"phase": "Running", "containerStatuses": [entry]}


def view(*pods: Manifest, job: Manifest | None = None, known: dict[str, PodSetProblem] | None = None) -> WorkerView:
    found = a_view(job or a_job(2, granted=2), pods=pods)
    return structs.replace(found, pod_problems=known or {})


def known_after(found: WorkerView, now: str) -> dict[str, PodSetProblem]:
    """What is remembered after a reconcile."""
    for command in pod_problems.reconcile(found, now=now):
        match command:
            case Remember(table=AgentTable.POD_PROBLEMS, key=key, value=value):
                assert key == KEY
                return dict(value)
            case Forget(table=AgentTable.POD_PROBLEMS, key=key):
                return {}
    return dict(found.pod_problems)


def entry(reason: str, message: str, since: str = NOW, said: str | None = None) -> PodSetProblem:
    return PodSetProblem(PodProblem(reason, message, since), said_since=said or since)


KNOWN = {"main": entry("Unschedulable", NO_NODE)}


def test_a_pod_that_is_only_starting_says_nothing_for_some_seconds() -> None:
    known = known_after(view(stuck()), NOW)
    assert known == KNOWN
    seen = view(stuck(), known=known)
    assert pod_problems.reconcile(seen, now=at(5)) == []
    assert pod_problems.settled(seen, now=at(9)) == {}
    assert pod_problems.settled(seen, now=at(10)) == {"main": PodProblem("Unschedulable", NO_NODE, NOW)}
    [requeue] = pod_problems.requeue_after(seen, now=at(4))
    assert isinstance(requeue, Requeue)
    assert requeue.delay_s == 7.0


def test_it_is_forgotten_when_the_pods_run() -> None:
    assert pod_problems.reconcile(view(a_pod("train-1", ready=True), known=KNOWN), now=at(20)) == [
        Forget(table=AgentTable.POD_PROBLEMS, key=KEY)
    ]
    assert pod_problems.reconcile(view(a_pod("train-1", ready=True)), now=NOW) == []
    assert pod_problems.requeue_after(view(a_pod("train-1", ready=True)), now=NOW) == []


NOT_TOLD: dict[str, WorkerView] = {
    "its gate holds it": view(a_pod("train-1", gated=True) | {"status": unscheduled()}),
    "it has ended": view(stuck(status=unscheduled() | {"phase": "Failed"})),
    "it goes": view(stuck() | {"metadata": stuck()["metadata"] | {"deletionTimestamp": NOW}}),
    "nothing is granted": view(stuck(), job=a_job(2, granted=0)),
    "its label names no pod set": view(stuck(pod_set="other")),
    "the job is suspended": view(stuck(), job=a_job(2, granted=2, suspended=True)),
    "the job has ended": view(stuck(), job=a_job(2, granted=2, over="Complete")),
}


@pytest.mark.parametrize("found", NOT_TOLD.values(), ids=NOT_TOLD.keys())
def test_only_granted_pods_that_may_run_say_why(found: WorkerView) -> None:
    assert pod_problems.reconcile(found, now=NOW) == []
    assert pod_problems.reconcile(structs.replace(found, pod_problems=KNOWN), now=NOW) == [
        Forget(table=AgentTable.POD_PROBLEMS, key=KEY)
    ]


def test_each_pod_set_says_its_worst() -> None:
    job = a_job(2, granted=2)
    granted = {"main": 2, "head": 1}
    pods = (stuck("a"), stuck("b", not_pulled("not found", "ErrImagePull")), stuck("c", pod_set="head"))
    found = view(*pods, job=job)
    reading = WorkerJobReading.from_manifest(job)
    assert reading is not None
    found = structs.replace(found, reading=structs.replace(reading, granted=granted))
    known = known_after(found, NOW)
    assert {name: one.problem.reason for name, one in known.items()} == {
        "main": "ImagePullBackOff",
        "head": "Unschedulable",
    }
    assert list(pod_problems.settled(structs.replace(found, pod_problems=known), now=at(20))) == ["main", "head"]


def test_the_words_are_the_same_whichever_pod_comes_first() -> None:
    pods = [stuck("a", unscheduled("3 Insufficient memory")), stuck("b", unscheduled("2 Insufficient cpu"))]
    assert known_after(view(*pods), NOW) == known_after(view(*pods[::-1]), NOW)


SAME = {
    "other numbers": unscheduled(NO_NODE.replace("3", "4")),
    "nothing at all": unscheduled(""),
    "other words a moment later": unscheduled("0/3 nodes are available: 3 node(s) had a taint."),
}


@pytest.mark.parametrize("status", SAME.values(), ids=SAME.keys())
def test_the_words_stay_as_they_were_said(status: Manifest) -> None:
    assert pod_problems.reconcile(view(stuck(status=status), known=KNOWN), now=at(29)) == []


def test_other_words_are_taken_after_a_while() -> None:
    other = unscheduled("0/3 nodes are available: 3 node(s) had a taint.")
    known = known_after(view(stuck(status=other), known=KNOWN), at(30))
    text = "0/3 nodes are available: 3 node(s) had a taint."
    assert known == {"main": entry("Unschedulable", text, NOW, at(30))}
    [requeue] = pod_problems.requeue_after(view(stuck(), known=KNOWN), now=at(15))
    assert isinstance(requeue, Requeue)
    assert requeue.delay_s == 16.0, "the words may be others by then"


def test_a_pause_between_two_pulls_says_no_less_than_the_error_before() -> None:
    known = known_after(view(stuck(status=not_pulled("not found", "ErrImagePull"))), NOW)
    assert known == {"main": entry("ImagePullBackOff", NOT_FOUND)}
    assert pod_problems.reconcile(view(stuck(status=not_pulled()), known=known), now=at(300)) == []
    of_newer = not_pulled('Back-off pulling image "reg/i:9": ErrImagePull: not found')
    assert pod_problems.reconcile(view(stuck(status=of_newer), known=known), now=at(300)) == []


def test_a_pause_alone_says_more_as_soon_as_more_is_known() -> None:
    known = known_after(view(stuck(status=not_pulled())), NOW)
    assert known["main"].problem.message == "image reg/i:9 of container c cannot be pulled"
    [remember] = pod_problems.reconcile(
        view(stuck(status=not_pulled("not found", "ErrImagePull")), known=known), now=at(40)
    )
    assert isinstance(remember, Remember)
    assert remember.value["main"].problem.message == NOT_FOUND


def test_another_reason_is_told_at_once_where_one_was_told_before() -> None:
    found = view(stuck(status=not_pulled()), known=KNOWN)
    known = known_after(found, at(40))
    assert known["main"].problem.since == NOW, "the pods do not run since then"
    assert pod_problems.settled(structs.replace(found, pod_problems=known), now=at(40)) == {
        "main": PodProblem("ImagePullBackOff", "image reg/i:9 of container c cannot be pulled", NOW)
    }


def test_a_container_that_ends_again_and_again_does_not_run_in_between() -> None:
    known = known_after(view(stuck(status=crashed())), NOW)
    runs = view(stuck(status=crashed(at(100))), known=known)
    assert pod_problems.reconcile(runs, now=at(159)) == []
    [requeue] = pod_problems.requeue_after(runs, now=at(150))
    assert isinstance(requeue, Requeue)
    assert requeue.delay_s == 11.0
    assert known_after(runs, at(160)) == {}


# --- what is shown and reported -------------------------------------------------------------------------------------

SETTLED = {"main": PodProblem("Unschedulable", NO_NODE, NOW)}
SHOWN = Waiting(
    wanted={"main": 2},
    granted={"main": 2},
    reason=PODS_NOT_RUNNING,
    message=f"pods of main do not run: Unschedulable: {NO_NODE}",
    since=NOW,
    pods=SETTLED,
)


def shows(job: Manifest, shown: Waiting) -> Manifest:
    body = {"metadata": {"annotations": {"slicebus.dev/waiting": shown.to_annotation()}}}
    return dict(merge_patch(job, body))


def written(commands: Sequence[Command]) -> list[Waiting | None]:
    patches = [command for command in commands if isinstance(command, Patch)]
    assert len(patches) == len(commands), "no Event: the pods say it themselves"
    return [Waiting.from_manifest(patch.body) if isinstance(patch.body, dict) else None for patch in patches]


def test_the_workers_job_shows_it_and_the_status_reports_it() -> None:
    assert waiting.reconcile(view(stuck(), known=KNOWN), now=at(9)) == []
    assert written(waiting.reconcile(view(stuck(), known=KNOWN), now=at(11))) == [SHOWN]
    shown = view(stuck(), job=shows(a_job(2, granted=2), SHOWN), known=KNOWN)
    assert waiting.reconcile(shown, now=at(60)) == []
    status = reconcile.status(shown)
    assert status is not None
    assert status.waits is UNSET
    assert status.problems == SETTLED
    assert status.summary().endswith(", main: Unschedulable")


def test_an_inventory_tells_the_reason() -> None:
    """An agent may have ended between what its job shows and the report of that."""
    found = inventory.item(view(stuck(), job=shows(a_job(2, granted=2), SHOWN)), EAST)
    assert found is not None
    assert found.status_hash == status_hash({}, JobPhase.RUNNING, False, problems={"main": "Unschedulable"})


def test_it_goes_when_the_pods_run() -> None:
    job = shows(a_job(2, granted=2), SHOWN)
    assert written(waiting.reconcile(view(a_pod("train-1", ready=True), job=job), now=at(60))) == [None]


def test_a_status_of_a_job_whose_pods_start_is_as_before() -> None:
    with_problem, without = reconcile.status(view(stuck(), known=KNOWN)), reconcile.status(view(stuck()))
    assert with_problem == without, "nothing is said before it is shown"


def test_an_agent_that_starts_again_goes_on_with_what_is_shown() -> None:
    earlier = view(stuck(status=unscheduled(NO_NODE.replace("3", "5"))), job=shows(a_job(2, granted=2), SHOWN))
    known = known_after(earlier, at(3600))
    assert known == KNOWN
    assert waiting.reconcile(structs.replace(earlier, pod_problems=known), now=at(3600)) == []


def test_a_time_to_come_that_somebody_wrote_does_not_hide_it() -> None:
    forged = structs.replace(SHOWN, pods={"main": PodProblem("Other", "x", "2096-01-31T12:00:00Z")})
    known = known_after(view(stuck(), job=shows(a_job(2, granted=2), forged)), NOW)
    assert known["main"].problem.since == NOW


# --- pods of any shape ----------------------------------------------------------------------------------------------

WHOLE: Manifest = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False", "reason": "x"}],
    "containerStatuses": [
        {
            "name": "c",
            "image": "i",
            "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "m"}},
        },
        {"name": "d", "image": "i", "restartCount": 3, "state": {"running": {"startedAt": NOW}}},
    ],
    "initContainerStatuses": [{"name": "e", "image": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}],
}


@hypothesis.seed(0)
@settings(max_examples=150, database=None, deadline=None)
@given(data=st.data())
def test_no_status_of_a_pod_raises(data: st.DataObject) -> None:
    """Whatever its fields hold: the pod is read, decided about, and reported."""
    part = data.draw(st.sampled_from([WHOLE, unscheduled()]))
    pod = data.draw(edited(stuck(status=copy.deepcopy(part)), under="status"))
    store = AgentStore()
    store.configure(AgentDecisionSettings(cluster=EAST))
    jobs, pods = store.cache_of(JOBS), store.cache_of(PODS)
    assert jobs is not None
    assert pods is not None
    jobs.put(a_job(2, granted=2))
    pods.put(pod)
    said: list[Status] = []
    for now in (NOW, at(15), at(90)):
        for _ in range(9):
            work = catalog.reconcile_job(store, key=KEY, fenced=False, now_s=0.0, now=now)
            for command in work.commands:
                match command:
                    case Remember(table=table, key=key, value=value):
                        store.tables()[table][key] = value
                    case Forget(table=table, key=key):
                        store.tables()[table].pop(key, None)
                    case Patch(target=target, body=body) if target["kind"] == "Job" and isinstance(body, dict):
                        version = str(int(target["metadata"]["resourceVersion"]) + 1)
                        changed = dict(merge_patch(target, body))
                        jobs.put(changed | {"metadata": changed["metadata"] | {"resourceVersion": version}})
                    case Publish(message=Status() as status):
                        said.append(status)
            if work.then is not catalog.Continuation.AGAIN:
                break
    assert said


def test_a_status_of_the_right_shape_is_kept_as_it_is() -> None:
    pod = stuck(status=copy.deepcopy(WHOLE))
    assert fitted_pod(pod) is pod
    assert Pod.from_manifest(fitted_pod(pod | {"status": 7})).cause is None
    assert kueue.POD_SET_LABEL in pod["metadata"]["labels"]


# --- of a RayJob ----------------------------------------------------------------------------------------------------

OF_RAY = structs.replace(SHOWN, wanted={"head": 1, "workers": 1}, granted={"head": 1, "workers": 1})


def of_a_cluster(before: Waiting, **changes: Any) -> WorkerView:
    """A RayJob whose job and cluster show this."""
    text = before.to_annotation()
    return of_rayjob.a_view(on_job=text, on_child=text, **changes)


def test_a_cluster_that_is_made_anew_has_no_pods_yet() -> None:
    gone = structs.replace(of_a_cluster(OF_RAY), scale_target=None)
    assert written(waiting.reconcile(gone, now=at(60))) == [None]
    beside = structs.replace(of_rayjob.SHOWN, pods=SETTLED)
    left = written(waiting.reconcile(structs.replace(of_a_cluster(beside), scale_target=None), now=at(60)))
    assert left == [of_rayjob.SHOWN], "its request waits as before"


def test_a_request_that_waits_is_shown_beside_it() -> None:
    known = {"workers": entry("Unschedulable", NO_NODE)}
    problems = {"workers": known["workers"].problem}
    text = of_rayjob.SHOWN.to_annotation()
    found = structs.replace(of_rayjob.a_view(on_job=text, on_child=text), pod_problems=known)
    assert written(waiting.reconcile(found, now=at(60))) == [structs.replace(of_rayjob.SHOWN, pods=problems)] * 2


def test_a_notice_that_says_the_same_does_nothing() -> None:
    beside = structs.replace(of_rayjob.SHOWN, pods=SETTLED)
    assert of_rayjob.taken(of_a_cluster(beside)) == []
