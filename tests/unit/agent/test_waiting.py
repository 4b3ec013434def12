"""Why a job waits: the annotation on the worker's job and on its RayCluster, and that it goes."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.agent.decide.cluster.reach import NOT_KNOWN, Unreached
from slicebus.agent.decide.job import reconcile, waiting
from slicebus.agent.decide.order import orders
from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequest, PendingRequests
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey, PodSetProblem, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember, Requeue
from slicebus.proto.messages import JobRef, Pending, PodProblem, Waits
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED, SURPLUS, Waiting
from unit.agent.objects import a_pod

Manifest = dict[str, Any]
SINCE, NOW, LATER = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z", "2026-01-31T13:01:00Z"
WORKERS = "workers"
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "i"}]}}
WANTED, GRANTED = {"head": 1, WORKERS: 5}, {"head": 1, WORKERS: 1}
WHY = "insufficient unused quota for cpu in flavor spot, 4 more needed"
REF = JobRef("ray.io/v1", "RayJob", "team", "train", "manager-uid")
SHOWN = Waiting.of(WANTED, GRANTED, reason="Pending", message=WHY, since=SINCE, would_admit="4 more cpu")
NOTICE = Pending(
    job=REF,
    workload="w2",
    worker_uid="uid-train-x7k2p",
    worker_generation=2,
    wanted=WANTED,
    reason="Pending",
    message=WHY,
    since=SINCE,
    would_admit="4 more cpu",
)


def an_object(kind: str, name: str, spec: Manifest, annotations: dict[str, str], **more: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "10", "generation": 2}
    found = {"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata | {"annotations": annotations}, "spec": spec}
    return found | more


def a_view(
    wanted: int = 5,
    granted: int = 1,
    *,
    on_job: str | None = None,
    on_child: str | None = None,
    running: int = 1,
    named: tuple[str, ...] = (),
    autoscales: bool = True,
    requested: bool = True,
    suspended: bool = False,
    **changes: Any,
) -> WorkerView:
    """A RayJob and its cluster: so many workers wanted, granted and running."""
    at = annotations.job_metadata(REF, workload="w1", version=1, grant={"head": 1, WORKERS: granted})
    last = PendingRequest("uid-train-x7k2p", 2, {"head": 1, WORKERS: wanted})
    request = PendingRequests(last.worker_uid, last.worker_generation, last.wanted, unanswered=(last,))
    asked = {api_names.REQUESTED_ANNOTATION: request.to_annotation()} if requested else {}
    spec = {"submissionMode": "HTTPMode", "rayClusterSpec": {}, "suspend": suspended}
    job = an_object("RayJob", "train", spec, at["annotations"] | asked | noted(on_job))
    job["metadata"]["labels"] = at["labels"]
    group = {"groupName": WORKERS, "replicas": wanted, "template": TEMPLATE}
    child = an_object(
        "RayCluster",
        "train-x7k2p",
        {
            "enableInTreeAutoscaling": autoscales,
            "headGroupSpec": {"template": TEMPLATE},
            "workerGroupSpecs": [group | {"scaleStrategy": {"workersToDelete": list(named)}}],
        },
        noted(on_child),
    )
    pods = [a_pod(f"w-{index}", pod_set=WORKERS) for index in range(running)]
    for pod in pods:
        pod["metadata"]["labels"] = {kueue.POD_SET_LABEL: WORKERS, api_names.MANAGER_UID_LABEL: REF.uid}
    return structs.replace(
        WorkerView(
            key=JobKey("RayJob", "team", "train"),
            job=job,
            reading=WorkerJobReading.from_manifest(job),
            scale_target=child,
            pods=tuple(map(Pod.from_manifest, pods)),
        ),
        **changes,
    )


def noted(text: str | None) -> dict[str, str]:
    return {api_names.WAITING_ANNOTATION: text} if text is not None else {}


TEXT = SHOWN.to_annotation()


def written(commands: Sequence[Command]) -> dict[str, Waiting | None]:
    """What is written onto each object; None for what is taken off."""
    found: dict[str, Waiting | None] = {}
    for command in commands:
        if isinstance(command, Patch):
            assert isinstance(command.body, dict)
            assert (command.subresource, command.body.keys()) == ("", {"metadata"}), "it would change the generation"
            text = command.body["metadata"]["annotations"][api_names.WAITING_ANNOTATION]
            found[command.target["kind"]] = Waiting.from_manifest(command.body) if text else None
    return found


def taken(view: WorkerView, notice: Pending = NOTICE) -> list[Command]:
    [step] = orders.pending(notice)
    return list(step.decide(view))


def events(commands: Sequence[Command]) -> list[tuple[str, str]]:
    return [(command.regarding["kind"], command.reason) for command in commands if isinstance(command, Emit)]


BOTH = [("RayJob", "Pending"), ("RayCluster", "Pending")]


def test_a_notice_is_written_onto_the_job_and_told_on_both() -> None:
    commands = taken(a_view())
    assert written(commands) == {"RayJob": SHOWN}
    assert events(commands) == BOTH


def test_a_notice_that_says_the_same_does_nothing() -> None:
    """A manager that starts again says it again; and other jobs come and go."""
    view = a_view(on_job=TEXT, on_child=TEXT)
    assert taken(view) == []
    assert taken(view, structs.replace(NOTICE, message=WHY.replace("4 more", "3 more"))) == []


def test_another_reason_is_written_and_told() -> None:
    commands = taken(a_view(on_job=TEXT, on_child=TEXT), structs.replace(NOTICE, reason="NoPlace", message="no room"))
    assert [shown.reason for shown in written(commands).values() if shown] == ["NoPlace"]
    assert events(commands) == [("RayJob", "NoPlace"), ("RayCluster", "NoPlace")]


LATE = {
    "an earlier request": a_view(),
    "no request": a_view(requested=False),
    "the job is suspended": a_view(suspended=True),
    "its cluster is not there": structs.replace(a_view(), scale_target=None),
}


@pytest.mark.parametrize("name", LATE)
def test_a_notice_about_another_request_is_an_event_only(name: str) -> None:
    notice = structs.replace(NOTICE, worker_generation=1) if name == "an earlier request" else NOTICE
    commands = taken(LATE[name], notice)
    assert written(commands) == {}
    assert events(commands)


def test_a_notice_that_comes_after_the_grant_does_nothing() -> None:
    assert taken(a_view(5, 5)) == []


def test_a_notice_about_another_job_does_nothing() -> None:
    assert taken(a_view(), structs.replace(NOTICE, job=structs.replace(REF, uid="other"))) == []


def test_the_cluster_of_a_rayjob_shows_what_the_job_shows() -> None:
    assert written(waiting.reconcile(a_view(on_job=TEXT), now=NOW)) == {"RayCluster": SHOWN}
    assert waiting.reconcile(a_view(on_job=TEXT, on_child=TEXT), now=NOW) == []


def test_present_counts_are_shown() -> None:
    found = written(waiting.reconcile(a_view(5, 3, on_job=TEXT, on_child=TEXT), now=NOW))
    assert list(found) == ["RayJob", "RayCluster"]
    for shown in found.values():
        assert shown is not None
        assert (shown.wanted[WORKERS], shown.granted[WORKERS], shown.since) == (5, 3, SINCE)


def asking_for(wanted: int, overruled: bool = False) -> dict[str, str]:
    request = PendingRequests("uid-train-x7k2p", 2, {"head": 1, WORKERS: wanted}, overruled=overruled or UNSET)
    return {api_names.REQUESTED_ANNOTATION: request.to_annotation()}


@pytest.mark.parametrize(
    ("asked", "shown"),
    [(asking_for(7), 7), (asking_for(3), None), (asking_for(7, overruled=True), None)],
    ids=["waits on", "for less by now", "overruled"],
)
def test_a_request_that_stands_is_shown_while_pods_past_a_smaller_size_go(
    asked: dict[str, str], shown: int | None
) -> None:
    """The same size may be wanted again before they have gone, and the manager says nothing twice."""
    view = a_view(3, 3, on_job=TEXT, on_child=TEXT)
    assert view.job is not None
    metadata = view.job["metadata"]
    job = view.job | {"metadata": metadata | {"annotations": metadata["annotations"] | asked}}
    view = structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job))
    found = written(waiting.reconcile(view, now=NOW))
    assert [each and each.wanted[WORKERS] for each in found.values()] == [shown, shown]


OVER = {
    "granted": a_view(5, 5, on_job=TEXT, on_child=TEXT),
    "no more is wanted": a_view(1, 1, on_job=TEXT, on_child=TEXT),
    "suspended": a_view(suspended=True, on_job=TEXT, on_child=TEXT),
    "nobody can read it": a_view(on_job="{", on_child="{}"),
    "empty": a_view(on_job="", on_child=""),
    "of a kind that nobody knows": a_view(on_job='["wanted"]', on_child=TEXT),
}


@pytest.mark.parametrize("view", OVER.values(), ids=OVER.keys())
def test_it_goes_from_both_when_it_is_over(view: WorkerView) -> None:
    assert written(waiting.reconcile(view, now=NOW)) == {"RayJob": None, "RayCluster": None}


def test_what_somebody_wrote_onto_the_cluster_means_nothing() -> None:
    assert written(waiting.reconcile(a_view(on_child=TEXT), now=NOW)) == {"RayCluster": None}
    forged = structs.replace(SHOWN, granted=WANTED).to_annotation()
    assert written(waiting.reconcile(a_view(on_job=TEXT, on_child=forged), now=NOW)) == {"RayCluster": SHOWN}


def test_what_somebody_wrote_onto_the_job_lets_nothing_start() -> None:
    forged = structs.replace(SHOWN, granted=WANTED).to_annotation()
    view = a_view(on_job=forged)
    assert reconcile.ungate(view) == []
    assert written(waiting.reconcile(view, now=NOW)) == {"RayJob": SHOWN, "RayCluster": SHOWN}


def test_a_job_that_is_gone_or_not_ours_is_left_alone() -> None:
    view = a_view(on_job=TEXT)
    assert waiting.reconcile(structs.replace(view, job=None, reading=None), now=NOW) == []
    assert waiting.reconcile(structs.replace(view, scale_target=None), now=NOW) == []


# --- pods that are no longer wanted ---------------------------------------------------------------------------------


def past_view(on_job: str | None = None, on_child: str | None = None, **how: Any) -> WorkerView:
    """A cluster that shall have one worker, and three run."""
    given: dict[str, Any] = {"running": 3, "requested": False}
    return a_view(1, 3, on_job=on_job, on_child=on_child, **(given | how))


PAST = Waiting.of(
    {"head": 1, WORKERS: 1},
    {"head": 1, WORKERS: 3},
    reason=SURPLUS,
    message="2 pods run that are no longer wanted; with the autoscaler on only it deletes them",
    since=NOW,
)


def test_pods_that_are_no_longer_wanted_are_timed_first() -> None:
    assert waiting.reconcile(past_view(), now=NOW) == [
        Remember(table=AgentTable.SURPLUS, key=past_view().key, value=NOW)
    ]
    assert waiting.requeue_after(past_view(), now=NOW) == []
    timed, soon = past_view(surplus_since=NOW), "2026-01-31T13:00:50Z"
    assert waiting.reconcile(timed, now=soon) == []
    assert waiting.requeue_after(timed, now=soon) == [Requeue(job=REF, delay_s=11.0)]
    assert waiting.requeue_after(timed, now=LATER) == []


def test_they_are_shown_and_told_once_when_nobody_deletes_them() -> None:
    commands = waiting.reconcile(past_view(surplus_since=NOW), now=LATER)
    assert written(commands) == {"RayJob": PAST, "RayCluster": PAST}
    assert events(commands) == [("RayJob", SURPLUS), ("RayCluster", SURPLUS)]
    text = PAST.to_annotation()
    assert waiting.reconcile(past_view(text, text, surplus_since=NOW), now=LATER) == []


def test_an_agent_that_starts_again_keeps_the_time_and_tells_nothing_again() -> None:
    text = PAST.to_annotation()
    assert waiting.reconcile(past_view(text, text), now=LATER) == []
    commands = waiting.reconcile(past_view(text, text, running=2), now=LATER)
    [one, *_] = written(commands).values()
    assert one is not None
    assert (one.since, one.message) == (
        NOW,
        "1 pod runs that is no longer wanted; with the autoscaler on only it deletes it",
    )
    assert events(commands) == []


NONE = {
    "they have gone": past_view(running=1),
    "they are named for deletion": past_view(named=("w-0", "w-1")),
    "KubeRay deletes by itself": past_view(autoscales=False),
    "suspended": past_view(suspended=True),
}


@pytest.mark.parametrize("view", NONE.values(), ids=NONE.keys())
def test_nothing_is_said_of_pods_that_go(view: WorkerView) -> None:
    assert waiting.reconcile(view, now=LATER) == []
    timed = structs.replace(view, surplus_since=NOW)
    assert waiting.reconcile(timed, now=LATER) == [Forget(table=AgentTable.SURPLUS, key=view.key)]


@pytest.mark.parametrize("how", [{"running": 1}, {"named": ("w-0", "w-1")}], ids=["gone", "named for deletion"])
def test_it_goes_when_somebody_deletes_them(how: Any) -> None:
    text = PAST.to_annotation()
    view = past_view(text, text, surplus_since=NOW, **how)
    assert written(waiting.reconcile(view, now=LATER)) == {"RayJob": None, "RayCluster": None}


def test_terminating_pods_are_on_their_way() -> None:
    view = past_view()
    going = tuple(structs.replace(pod, is_terminating=pod.name != "w-0") for pod in view.pods)
    assert waiting.reconcile(structs.replace(view, pods=going), now=NOW) == []


def test_a_lack_of_quota_is_shown_before_them() -> None:
    view = past_view(TEXT, TEXT, surplus_since=NOW)
    assert view.scale_target is not None
    more = {"groupName": "more", "replicas": 2, "template": TEMPLATE}
    spec = view.scale_target["spec"]
    child = view.scale_target | {"spec": spec | {"workerGroupSpecs": [*spec["workerGroupSpecs"], more]}}
    shown = written(waiting.reconcile(structs.replace(view, scale_target=child), now=LATER))
    assert {waits.reason for waits in shown.values() if waits} == {"Pending"}


def test_the_manager_is_told_of_them_only() -> None:
    told = reconcile.status(past_view(PAST.to_annotation()))
    assert told is not None
    assert told.waits == Waits(wanted=PAST.wanted, reason=SURPLUS, message=PAST.message, since=NOW)
    quota = reconcile.status(a_view(on_job=TEXT))
    assert quota is not None
    assert quota.waits is UNSET


def test_a_time_that_somebody_else_wrote_shows_nothing() -> None:
    for since in ("yesterday", "2026-01-31T13:00:00"):
        forged = structs.replace(PAST, since=since).to_annotation()
        assert written(waiting.reconcile(past_view(forged, forged), now=LATER)) == {"RayJob": None, "RayCluster": None}


def test_a_copy_does_not_take_the_managers_annotation_over() -> None:
    assert api_names.WAITING_ANNOTATION in api_names.AGENTS_OWN
    merged = merge_patch({"metadata": {}}, {"metadata": {"annotations": noted(TEXT)}})
    assert Waiting.from_manifest(merged) == SHOWN


# --- while nobody answers -------------------------------------------------------------------------------------------

AWAY = Unreached(MANAGER_NOT_REACHED, "nobody reads it", LATER)
UNHEARD = Waiting.of(WANTED, GRANTED, reason=MANAGER_NOT_REACHED, message=AWAY.message, since=LATER)
OF_EARLIER = Waiting.of({"head": 1, WORKERS: 3}, GRANTED, reason="Pending", message=WHY, since=SINCE)
SHOWN_UNHEARD: dict[str, tuple[dict[str, Any], Waiting | None]] = {
    "nothing is shown": ({}, UNHEARD),
    "an earlier request's reason": ({"on_job": OF_EARLIER.to_annotation()}, UNHEARD),
    "this request's reason": ({"on_job": TEXT, "on_child": TEXT}, None),
    "it is shown": ({"on_job": UNHEARD.to_annotation(), "on_child": UNHEARD.to_annotation()}, None),
    "no more is wanted than granted": ({"wanted": 1}, None),
    "the request is not even written": ({"requested": False}, UNHEARD),
    "it is suspended": ({"suspended": True}, None),
}


@pytest.mark.parametrize(("shape", "expected"), SHOWN_UNHEARD.values(), ids=SHOWN_UNHEARD.keys())
def test_a_request_that_nobody_answers_says_so_once(shape: dict[str, Any], expected: Waiting | None) -> None:
    commands = waiting.show_unreached(a_view(**shape), AWAY)
    both = {"RayJob": expected, "RayCluster": expected} if expected is not None else {}
    assert written(commands) == both
    assert [reason for _, reason in events(commands)] == [MANAGER_NOT_REACHED] * len(both)
    assert waiting.show_unreached(a_view(**shape), None) == []


def test_it_stands_while_the_manager_is_away_and_goes_when_it_is_back() -> None:
    text = UNHEARD.to_annotation()
    view = a_view(on_job=text, on_child=text)
    assert waiting.reconcile(view, now=LATER, unreached=AWAY) == []
    assert written(waiting.reconcile(view, now=LATER)) == {"RayJob": None, "RayCluster": None}


def test_an_answer_takes_its_place() -> None:
    text = UNHEARD.to_annotation()
    view = a_view(on_job=text, on_child=text)
    assert written(taken(view, NOTICE))["RayJob"] == SHOWN


PODS = {WORKERS: PodProblem(reason="Unschedulable", message="no room", since=SINCE)}


def test_what_is_said_of_pods_stays_beside_it() -> None:
    """And the step that looks at the pods has nothing to write after the one that does not."""
    before = structs.replace(OF_EARLIER, pods=PODS)
    commands = waiting.show_unreached(a_view(on_job=before.to_annotation()), AWAY)
    assert written(commands)["RayJob"] == structs.replace(UNHEARD, pods=PODS)
    text = structs.replace(UNHEARD, pods=PODS).to_annotation()
    settled = {WORKERS: PodSetProblem(PODS[WORKERS], said_since=SINCE)}
    view = a_view(on_job=text, on_child=text, pod_problems=settled)
    assert waiting.show_unreached(view, AWAY) == waiting.reconcile(view, now=LATER, unreached=AWAY) == []


def test_an_agent_that_begins_in_the_outage_keeps_what_is_shown() -> None:
    """It has looked for a shorter time, and tells nobody twice."""
    text = UNHEARD.to_annotation()
    view = a_view(on_job=text, on_child=text)
    assert waiting.reconcile(view, now=LATER, unreached=NOT_KNOWN) == []
    assert waiting.reconcile(a_view(), now=LATER, unreached=NOT_KNOWN) == []
    later = structs.replace(AWAY, since="2026-01-31T13:05:00Z")
    assert waiting.show_unreached(view, later) == waiting.reconcile(view, now=LATER, unreached=later) == []


def test_another_size_in_the_outage_is_no_second_event() -> None:
    text = UNHEARD.to_annotation()
    commands = waiting.show_unreached(a_view(7, on_job=text, on_child=text), AWAY)
    assert [shown.wanted[WORKERS] for shown in written(commands).values() if shown] == [7, 7]
    assert events(commands) == []


def test_another_reason_is_another_event() -> None:
    text = UNHEARD.to_annotation()
    broker = Unreached(BROKER_NOT_REACHED, "no connection", LATER)
    commands = waiting.reconcile(a_view(on_job=text, on_child=text), now=LATER, unreached=broker)
    assert [reason for _, reason in events(commands)] == [BROKER_NOT_REACHED] * 2


def test_the_manager_is_not_told_that_it_is_away() -> None:
    view = a_view(on_job=UNHEARD.to_annotation())
    assert view.reading is not None
    assert waiting.reported(view, view.reading) is UNSET


def test_what_was_said_of_an_earlier_request_is_not_said_of_the_next() -> None:
    """The manager says it anew, or something else."""
    text = OF_EARLIER.to_annotation()
    assert waiting.reconcile(a_view(on_job=text, on_child=text), now=LATER) == []
