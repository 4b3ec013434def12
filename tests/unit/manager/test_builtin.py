"""What the manager does for a job: every state of the job with every state of its chain, then the single rules."""

import copy
from typing import Any

import pytest

from slicebus.decisions.commands import Create, Emit, Patch, Publish, Requeue
from slicebus.manager.decide.admission import admitting, refusals
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import unmanaged
from slicebus.manager.decide.modes import Builtin
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.requirements import is_managed
from slicebus.proto.messages import ClusterName, Relabel, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import ACCEPTED_CONDITION, RESIZABLE_CONDITION, UNHEEDED_ANNOTATION
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.jobs import Problem
from unit.manager.objects import (
    NOW,
    REF,
    a_job,
    a_view,
    a_workload,
    asking,
    condition,
    requested,
    short,
    shorts,
    withdrawn,
)

Manifest = dict[str, Any]
FINISHED = (condition("Finished"),)


def holding(name: str = "w1", count: int = 1, *, job_count: int = 1, version: int = 1, **how: Any) -> Manifest:
    """An admitted slice that its worker shall hold."""
    content = spec_hash(ClusterName("east"), name, {"main": count}, {"main": job_count})
    return a_workload(name, count, admitted=count, dispatched=version, hash=content, **how)


JOBS: dict[str, Manifest | None] = {
    "gone": None,
    "deleting": a_job(deleting=True),
    "opted out": a_job(managed=False),
    "opted out, succeeded": a_job(managed=False, over="Complete"),
    "running": a_job(),
    "succeeded": a_job(over="Complete"),
    "failed": a_job(over="Failed"),
}
CHAINS: dict[str, tuple[list[Manifest], int]] = {
    "none": ([], 0),
    "pending": ([a_workload()], 0),
    "admitted": ([a_workload(admitted=1)], 0),
    "written, not published": ([holding()], 0),
    "published": ([holding()], 1),
    "applied": ([holding(applied=1)], 0),
    "withdrawing": ([withdrawn(applied=1)], 2),
    "withdrawing, after a restart": ([withdrawn(applied=1)], 0),
    "withdrawn": ([withdrawn()], 0),
    "deleted while pending": ([a_workload(deleting=True)], 0),
    "deleted while applied": ([holding(applied=1, deleting=True)], 0),
    "finished": ([holding(applied=1, conditions=FINISHED)], 0),
    "finished and withdrawn": ([withdrawn(conditions=FINISHED)], 0),
    "finished and let go": ([withdrawn(conditions=FINISHED, held=False)], 0),
}
"""Workloads, and the version that this process has published."""

CREATE = [("create Workload", {"main": 1}, None), ("event Job", "CreatedWorkload")]
LET_GO = [("w1", "release")]
WITHDRAW = [("w1", "version 2 is absent"), ("delete to east", 2)]
WITHDRAW_AGAIN = [("delete to east", 2)]
REMEMBER = [("train", "version 2 is absent", api_names.APPLIED_ANNOTATION)]
HOLD_ANEW = [("w1", "version 3 is held"), ("workload-spec to east", 3)]
SHRUNK = [("w1", "counts", {"main": 3}, "version 2 is held"), ("workload-spec to east", 2)]
SUCCEEDED = [("w1", "Finished=True Succeeded")]
FAILED = [("w1", "Finished=True Failed")]

DECISIONS: dict[str, dict[str, list[tuple[Any, ...]]]] = {
    "gone": {
        "none": [],
        "pending": LET_GO,
        "admitted": LET_GO,
        "written, not published": WITHDRAW,
        "published": WITHDRAW,
        "applied": WITHDRAW,
        "withdrawing": [],
        "withdrawing, after a restart": WITHDRAW_AGAIN,
        "withdrawn": LET_GO,
        "deleted while pending": LET_GO,
        "deleted while applied": WITHDRAW,
        "finished": WITHDRAW,
        "finished and withdrawn": LET_GO,
        "finished and let go": [],
    },
    "deleting": {
        "none": [],
        "pending": LET_GO,
        "admitted": LET_GO,
        "written, not published": WITHDRAW,
        "published": WITHDRAW,
        "applied": WITHDRAW,
        "withdrawing": [],
        "withdrawing, after a restart": WITHDRAW_AGAIN,
        "withdrawn": REMEMBER + LET_GO,
        "deleted while pending": LET_GO,
        "deleted while applied": WITHDRAW,
        "finished": WITHDRAW,
        "finished and withdrawn": REMEMBER + LET_GO,
        "finished and let go": [],
    },
    "running": {
        "none": CREATE,
        "pending": [],
        "admitted": [("w1", "version 1 is held"), ("workload-spec to east", 1)],
        "written, not published": [("workload-spec to east", 1)],
        "published": [],
        "applied": [],
        "withdrawing": [],
        "withdrawing, after a restart": WITHDRAW_AGAIN,
        "withdrawn": HOLD_ANEW,
        "deleted while pending": LET_GO,
        "deleted while applied": WITHDRAW,
        "finished": CREATE,
        "finished and withdrawn": CREATE,
        "finished and let go": CREATE,
    },
    "succeeded": {
        "none": [],
        "pending": SUCCEEDED,
        "admitted": SUCCEEDED,
        "written, not published": SUCCEEDED,
        "published": SUCCEEDED,
        "applied": SUCCEEDED,
        "withdrawing": [],
        "withdrawing, after a restart": WITHDRAW_AGAIN,
        "withdrawn": SUCCEEDED,
        "deleted while pending": SUCCEEDED,
        "deleted while applied": SUCCEEDED,
        "finished": WITHDRAW,
        "finished and withdrawn": REMEMBER + LET_GO,
        "finished and let go": [],
    },
}
DECISIONS["opted out"] = DECISIONS["running"] | {"none": [], "finished and let go": []}
DECISIONS["opted out, succeeded"] = DECISIONS["succeeded"]
DECISIONS["failed"] = {
    chain: FAILED if expected == SUCCEEDED else expected for chain, expected in DECISIONS["succeeded"].items()
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("job", JOBS)
def test_every_job_with_every_chain(job: str, chain: str) -> None:
    workloads, published = CHAINS[chain]
    assert shorts(reconcile(a_view(JOBS[job], *workloads, published=published), NOW)) == DECISIONS[job][chain]


S1 = holding(applied=1)
ASKED = requested({"main": 5}).key
HELD_BACK = requested({"main": 5}, baseline=5, granted={"main": 2})
"""The worker had requested 2 before, and runs no more until its last request is answered."""
RESIZES: dict[str, tuple[Manifest, list[Manifest], list[tuple[Any, ...]]]] = {
    "the worker wants more": (
        asking(1, 5),
        [S1],
        [("create Workload", {"main": 5}, "team/w1"), ("event Job", "CreatedWorkload")],
    ),
    "the manager's spec wants more": (
        a_job(5, generation=2),
        [S1],
        [
            ("create Workload", {"main": 5}, "team/w1"),
            ("event Job", "CreatedWorkload"),
            ("w1", "version 2 is held"),
            ("workload-spec to east", 2),
        ],
    ),
    "more still, while the first request waits": (
        asking(1, 8),
        [S1, a_workload("w2", 5, replaces="w1")],
        [("w2", "counts", {"main": 8})],
    ),
    "the request is withdrawn": (
        asking(1, 1),
        [S1, a_workload("w2", 5, replaces="w1")],
        [("w2", "Finished=True OutOfSync")],
    ),
    "the request waits": (asking(1, 5), [S1, a_workload("w2", 5, replaces="w1")], []),
    "the request is admitted": (
        asking(1, 5),
        [S1, a_workload("w2", 5, admitted=5, replaces="w1")],
        [
            ("w1", "Finished=True WorkloadSliceReplaced"),
            ("w2", "version 2 is held"),
            ("workload-spec to east", 2),
            ("relabel to east", 2),
            ("event Workload", "WorkloadSliceReplaced"),
        ],
    ),
    "the request is admitted, the old slice has ended": (
        asking(1, 5),
        [
            holding(applied=1, conditions=FINISHED),
            holding("w2", 5, version=2, applied=2, answers=ASKED, replaces="w1"),
        ],
        [("w1", "release")],
    ),
    "relabelled, and published again without the relabel": (
        asking(1, 5),
        [
            holding(applied=1, conditions=FINISHED, held=False),
            holding("w2", 5, version=3, applied=2, answers=ASKED, replaces="w1"),
        ],
        [("workload-spec to east", 3)],
    ),
    "the worker wants less": (
        asking(5, 3),
        [holding(count=5, job_count=5, applied=1)],
        SHRUNK,
    ),
    "the worker wanted less, and was answered, before the spec was for more for a while": (
        asking(5, 3),
        [holding(count=5, job_count=5, version=2, applied=2, answers=ASKED)],
        [],
    ),
    "an edit here is less: the worker shrinks first, and asks for it": (
        a_job(3, generation=2),
        [holding(count=5, job_count=5, applied=1)],
        [("w1", "version 2 is held"), ("workload-spec to east", 2)],
    ),
    "an edit here is as much less as the worker has asked for already": (
        a_job(3, annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 3}, baseline=5).to_annotation()}),
        [holding(count=5, job_count=5, applied=1)],
        SHRUNK,
    ),
    "an edit here is less than the worker has asked for already": (
        a_job(2, annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 3}, baseline=5).to_annotation()}),
        [holding(count=5, job_count=5, applied=1)],
        SHRUNK,
    ),
    "an edit here is less, and what the worker asked for before was answered": (
        a_job(3, annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 3}, baseline=5).to_annotation()}),
        [holding(count=5, job_count=5, version=2, applied=2, answers=requested({}).key)],
        [("w1", "version 3 is held"), ("workload-spec to east", 3)],
    ),
    "an edit here is less, and nobody knows what was answered": (
        a_job(3, annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 3}, baseline=5).to_annotation()}),
        [a_workload(count=5, admitted=5, dispatched=2, hash=LOST, applied=2)],
        [("w1", "version 3 is held"), ("workload-spec to east", 3)],
    ),
    "an edit here is less of a slice that waits": (
        a_job(3, generation=2),
        [a_workload(count=5)],
        [("w1", "counts", {"main": 3})],
    ),
    "the worker took back that it wants less": (
        a_job(5, annotations={api_names.REQUESTED_ANNOTATION: HELD_BACK.to_annotation()}),
        [holding(count=5, job_count=5, applied=1)],
        [("w1", "version 2 is held"), ("workload-spec to east", 2)],
    ),
    "the worker took back that it wants less, and knows that this is known": (
        a_job(5, annotations={api_names.REQUESTED_ANNOTATION: HELD_BACK.to_annotation()}),
        [holding(count=5, job_count=5, version=2, applied=2, answers=HELD_BACK.key)],
        [],
    ),
    "it has shrunk, the worker has to hear it": (
        asking(5, 3),
        [a_workload(count=3, admitted=5, dispatched=1, applied=1)],
        [("w1", "version 2 is held"), ("workload-spec to east", 2)],
    ),
    "an edit here is newer than the worker's request": (
        a_job(2, annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 5}, baseline=1).to_annotation()}),
        [holding(count=2, job_count=2, applied=1, answers=ASKED)],
        [],
    ),
    "a request that nobody can read": (a_job(annotations={api_names.REQUESTED_ANNOTATION: "{"}), [S1], []),
}


@pytest.mark.parametrize(("job", "workloads", "expected"), RESIZES.values(), ids=RESIZES.keys())
def test_a_resize(job: Manifest, workloads: list[Manifest], expected: list[tuple[Any, ...]]) -> None:
    assert shorts(reconcile(a_view(job, *workloads), NOW)) == expected


MANAGED = {
    "as it shall be": (a_job(), True),
    "no queue": (a_job(managed=False), False),
    "not elastic": (a_job(annotations={kueue.ELASTIC_ANNOTATION: "false"}), False),
    "somebody else's": (a_job() | {"spec": {"managedBy": "example.com/other"}}, False),
    "nobody's": (a_job() | {"spec": {}}, False),
    "bare": ({"metadata": {}, "spec": {}}, False),
}


@pytest.mark.parametrize(("job", "expected"), MANAGED.values(), ids=MANAGED.keys())
def test_which_jobs_are_ours(job: Manifest, expected: bool) -> None:
    assert is_managed(job, fixed_jobs=False) is expected


def test_a_new_slice_is_the_jobs_in_every_way() -> None:
    [create, _] = reconcile(a_view(a_job(3, generation=4)), NOW)
    assert isinstance(create, Create)
    metadata, spec = create.manifest["metadata"], create.manifest["spec"]
    assert metadata["name"].startswith("job-train-")
    assert metadata["labels"] == {kueue.JOB_UID_LABEL: "uid-train"}
    assert metadata["annotations"] == {
        kueue.ELASTIC_ANNOTATION: "true",
        api_names.JOB_ANNOTATION: "Job/train",
        api_names.REQUESTED_ANNOTATION: "{}",
        kueue.SLICE_NAME_ANNOTATION: metadata["name"],
    }
    assert metadata["finalizers"] == [kueue.RESOURCE_IN_USE_FINALIZER]
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid-train",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert (spec["queueName"], spec["active"]) == ("queue", True)
    assert [(p["name"], p["count"]) for p in spec["podSets"]] == [("main", 3)]


def test_a_later_slice_knows_the_first_one() -> None:
    [create, _] = reconcile(a_view(asking(1, 5), S1), NOW)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["annotations"][kueue.SLICE_NAME_ANNOTATION] == "w1"


def test_slices_of_a_job_that_takes_a_part_may_be_granted_in_part() -> None:
    job = asking(1, 5)
    job["metadata"]["annotations"][api_names.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    [create, _] = reconcile(a_view(job, S1), NOW)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["annotations"][api_names.PARTIAL_SCALE_UP_ANNOTATION] == "true"


def names_of(*jobs_and_workloads: tuple[Manifest, list[Manifest]]) -> list[str]:
    made = [reconcile(a_view(job, *workloads), NOW)[0] for job, workloads in jobs_and_workloads]
    return [command.manifest["metadata"]["name"] for command in made if isinstance(command, Create)]


def test_one_request_names_one_slice_even_after_a_crash() -> None:
    again = names_of((a_job(), []), (a_job(), []), (a_job(generation=2), []), (asking(1, 5), [S1]))
    assert again[0] == again[1]
    assert len(set(again)) == 3


def test_a_repeated_request_does_not_reuse_the_name_of_its_ended_slice() -> None:
    [first] = names_of((asking(1, 5), [S1]))
    ended = a_workload(first, 5, replaces="w1", conditions=FINISHED)
    ended["metadata"]["creationTimestamp"] = "2026-01-01T00:00:02Z"
    [second] = names_of((asking(1, 5), [S1, ended]))
    assert second != first
    assert len(second) <= 63


def test_the_rest_of_a_request_does_not_reuse_the_name_of_its_part() -> None:
    [first] = names_of((asking(1, 5), [S1]))
    part = a_workload(first, 5, admitted=3)
    [second] = names_of((asking(1, 5), [part]))
    assert second != first


BAD = a_job(annotations={kueue.MIN_PARALLELISM_ANNOTATION: "1"})


def test_a_job_that_cannot_be_taken_gets_one_event() -> None:
    commands = reconcile(a_view(BAD), NOW)
    assert shorts(commands) == [
        ("train", f"{ACCEPTED_CONDITION}=False PartialAdmissionNotSupported"),
        ("warn Job", "PartialAdmissionNotSupported"),
    ]
    [patch, _] = commands
    assert isinstance(patch, Patch)
    shown = BAD | {"status": patch.body["status"]}
    assert reconcile(a_view(shown), NOW) == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Job", {"succeeded": 2, "startTime": NOW}),
        ("RayCluster", {"state": "suspended", "head": {"podIP": "10.0.0.1"}}),
    ],
)
def test_a_refused_job_keeps_the_rest_of_its_status(kind: str, status: Manifest) -> None:
    job = a_job() | {"kind": kind, "status": status}
    [patch, _] = refusals.refuse(job, [Problem("InvalidQuantity", "not a quantity")], now=NOW)
    assert isinstance(patch, Patch)
    shown = merge_patch(job, patch.body)
    assert shown["status"] | status == shown["status"]
    assert refusals.refuse(shown, [Problem("InvalidQuantity", "not a quantity")], now="later") == []


@pytest.mark.parametrize("of", ["the pod", "a container"])
def test_a_job_that_claims_devices_is_refused_by_their_names(of: str) -> None:
    job = a_job()
    pod = copy.deepcopy(job["spec"]["template"]["spec"])
    if of == "the pod":
        pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    else:
        pod["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    job["spec"]["template"] = {"spec": pod}
    commands = reconcile(a_view(job), NOW)
    assert shorts(commands) == [
        ("train", f"{ACCEPTED_CONDITION}=False DeviceClaimsNotCharged"),
        ("warn Job", "DeviceClaimsNotCharged"),
    ]
    assert isinstance(commands[1], Emit)
    assert commands[1].note.startswith("pod set main claims devices that no quota covers: gpu.")


URGENT = a_job(labels={kueue.PRIORITY_CLASS_LABEL: "urgent"})
URGENT_REF = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}


def test_a_slice_has_the_priority_of_its_jobs_class() -> None:
    [create, _] = reconcile(a_view(URGENT, priority_classes={"urgent": 100}), NOW)
    assert isinstance(create, Create)
    assert create.manifest["spec"]["priority"] == 100
    assert create.manifest["spec"]["priorityClassRef"] == URGENT_REF


DEFAULT = {"priority": 50, "priorityClassRef": URGENT_REF | {"name": "default"}}


def test_a_job_that_names_no_class_gets_the_one_named_default() -> None:
    [create, _] = reconcile(a_view(a_job(), priority_classes={"default": 50, "urgent": 100}), NOW)
    assert isinstance(create, Create)
    assert DEFAULT.items() <= create.manifest["spec"].items()
    [create, _] = reconcile(a_view(URGENT, priority_classes={"default": 50, "urgent": 100}), NOW)
    assert isinstance(create, Create)
    assert create.manifest["spec"]["priority"] == 100


def with_class(name: str, value: int) -> Manifest:
    return S1 | {"spec": S1["spec"] | {"priority": value, "priorityClassRef": URGENT_REF | {"name": name}}}


OF_A_CLASS: dict[str, tuple[Manifest, dict[str, int], Manifest | None]] = {
    "the class came later": (S1, {"default": 50}, None),
    "it has it": (with_class("default", 50), {"default": 50}, None),
    "the class has another value": (with_class("default", 7), {"default": 50}, DEFAULT),
    "the class has gone": (with_class("default", 7), {}, None),
    "its label has gone": (with_class("urgent", 100), {"default": 50, "urgent": 100}, DEFAULT),
}


@pytest.mark.parametrize(("workload", "classes", "written"), OF_A_CLASS.values(), ids=OF_A_CLASS.keys())
def test_the_default_class_is_that_of_new_jobs(
    workload: Manifest, classes: dict[str, int], written: Manifest | None
) -> None:
    commands = reconcile(a_view(a_job(), workload, priority_classes=classes), NOW)
    specs = [c.body["spec"] for c in commands if isinstance(c, Patch) and isinstance(c.body, dict) and "spec" in c.body]
    assert specs == ([written] if written else [])


def test_a_job_of_a_missing_priority_class_waits_and_gets_an_event() -> None:
    [_, event] = reconcile(a_view(URGENT, priority_classes={"other": 1}), NOW)
    assert isinstance(event, Emit)
    assert (event.reason, event.note) == ("PriorityClassNotFound", "WorkloadPriorityClass urgent doesn't exist")


def test_another_class_or_value_is_another_priority_of_what_runs_and_waits() -> None:
    waiting = a_workload("w2", 5, replaces="w1")
    changed = reconcile(a_view(URGENT, S1, waiting, priority_classes={"urgent": 7}), NOW)
    assert [(patch.target["metadata"]["name"], patch.body) for patch in changed if isinstance(patch, Patch)] == [
        (name, {"spec": {"priority": 7, "priorityClassRef": URGENT_REF}}) for name in ("w1", "w2")
    ]
    [back] = reconcile(
        a_view(a_job(), S1 | {"spec": S1["spec"] | {"priority": 7, "priorityClassRef": URGENT_REF}}), NOW
    )
    assert isinstance(back, Patch)
    assert back.body == {"spec": {"priority": 0, "priorityClassRef": None}}


@pytest.mark.parametrize(("said", "copied"), [("true", "true"), (None, None)], ids=["said", "unsaid"])
def test_a_scale_up_that_waits_accepts_a_part_as_its_job_says_by_now(said: str | None, copied: str | None) -> None:
    partial = api_names.PARTIAL_SCALE_UP_ANNOTATION
    job, waiting = a_job(5, annotations={partial: said} if said else {}), a_workload("w2", 5, replaces="w1")
    if not said:
        waiting["metadata"]["annotations"][partial] = "true"
    changes = [command.body for command in reconcile(a_view(job, S1, waiting), NOW) if isinstance(command, Patch)]
    assert changes
    assert all(isinstance(body, dict) and body["metadata"]["annotations"][partial] == copied for body in changes)


@pytest.mark.parametrize(
    ("has", "classes", "is_told"),
    [("urgent", {}, False), ("other", {}, True), ("", {"other": 1}, True), ("other", {"urgent": 1}, False)],
    ids=["deleted", "edited to one that is missing", "named later", "edited to one that is there"],
)
def test_a_class_that_is_missing_is_told_of_a_job_that_has_another(
    has: str, classes: dict[str, int], is_told: bool
) -> None:
    spec = {"priority": 7} | ({"priorityClassRef": URGENT_REF | {"name": has}} if has else {})
    for slice in (S1, a_workload(count=2)):
        view = a_view(URGENT, slice | {"spec": slice["spec"] | spec}, priority_classes=classes)
        events = [each for each in unmanaged.run_on(view, URGENT) if isinstance(each, Emit)]
        told = ["it keeps priority 7: WorkloadPriorityClass urgent doesn't exist"] * is_told
        assert [(each.reason, each.note) for each in events] == [("PriorityClassNotFound", text) for text in told]


def test_what_runs_keeps_the_priority_of_a_class_that_was_deleted() -> None:
    running = S1 | {"spec": S1["spec"] | {"priority": 7, "priorityClassRef": URGENT_REF}}
    job = URGENT | {"spec": URGENT["spec"] | {"parallelism": 5}}
    [create, *_] = reconcile(a_view(job, running), NOW)
    assert isinstance(create, Create)
    assert (create.manifest["spec"]["priority"], create.manifest["spec"]["priorityClassRef"]) == (7, URGENT_REF)


def test_a_job_that_runs_already_is_not_refused() -> None:
    assert reconcile(a_view(BAD, S1), NOW) == []


STRUCTURAL = a_job(annotations={api_names.REQUESTED_ANNOTATION: requested({"main": 1, "extra": 1}).to_annotation()})


def test_a_change_of_the_pod_sets_is_refused_once() -> None:
    [patch, event] = reconcile(a_view(STRUCTURAL, S1), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert shorts([patch, event]) == [
        ("w1", f"{RESIZABLE_CONDITION}=False StructuralChange"),
        ("warn Job", "StructuralChange"),
    ]
    assert reconcile(a_view(STRUCTURAL, S1 | {"status": S1["status"] | patch.body["status"]}), NOW) == []


def test_the_refusal_goes_when_the_pod_sets_are_right_again() -> None:
    refused = holding(applied=1, conditions=(condition(RESIZABLE_CONDITION, False),))
    assert shorts(reconcile(a_view(a_job(), refused), NOW)) == [("w1", f"{RESIZABLE_CONDITION}=True Resizable")]


def test_a_spec_and_its_relabel_belong_to_the_workers_request() -> None:
    commands = reconcile(a_view(asking(1, 5), S1, a_workload("w2", 5, admitted=5, replaces="w1")), NOW)
    spec, relabel = (command for command in commands if isinstance(command, Publish))
    assert isinstance(spec.message, WorkloadSpec)
    assert isinstance(relabel.message, Relabel)
    assert spec.correlation == relabel.correlation == "chain-1"
    assert (relabel.message.from_workload, relabel.message.to_workload) == ("w1", "w2")
    assert spec.message.granted == relabel.message.granted == {"main": 5}


RAY_JOB: Manifest = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": BAD["metadata"],
    "spec": {
        "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
        "rayClusterSpec": {"headGroupSpec": {"template": a_job()["spec"]["template"]}},
    },
}


def test_a_rayjob_that_cannot_be_taken_gets_one_event_without_conditions() -> None:
    [patch, event] = reconcile(a_view(RAY_JOB), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert patch.body["status"].keys() == {"message", "reason"}
    assert reconcile(a_view(RAY_JOB | {"status": patch.body["status"]}), NOW) == []


OTHER = {kueue.QUEUE_NAME_LABEL: "other"}
EVICTED = (condition("Evicted"),)


@pytest.mark.parametrize("conditions", [(), EVICTED], ids=["pending", "evicted"])
def test_what_waits_moves_to_another_queue(conditions: tuple[Manifest, ...]) -> None:
    [patch] = reconcile(a_view(a_job(labels=OTHER), a_workload(conditions=conditions)), NOW)
    assert isinstance(patch, Patch)
    assert patch.body == {"spec": {"queueName": "other"}}


def test_what_has_quota_stays_in_its_queue_and_grows_there() -> None:
    job = a_job(5, generation=2, labels=OTHER)
    create, *_ = reconcile(a_view(job, holding(applied=1)), NOW)
    assert isinstance(create, Create)
    assert create.manifest["spec"]["queueName"] == "queue"
    grown = a_workload("w2", 5, replaces="w1")
    assert shorts(reconcile(a_view(job, holding(applied=1), grown), NOW)) == shorts(
        reconcile(a_view(job | {"metadata": a_job(generation=2)["metadata"]}, holding(applied=1), grown), NOW)
    ), "what it grows by stays there too"


def test_a_job_that_opted_out_grows_in_the_queue_that_it_was_taken_in() -> None:
    opted_out = asking(1, 5)
    del opted_out["metadata"]["labels"][kueue.QUEUE_NAME_LABEL]
    create, *_ = reconcile(a_view(opted_out, holding(applied=1)), NOW)
    assert isinstance(create, Create)
    assert create.manifest["spec"]["queueName"] == "queue"


EU = {api_names.CLUSTER_SELECTOR_ANNOTATION: "region=eu"}


def test_a_slice_has_the_cluster_selector_of_its_job() -> None:
    [create, _] = reconcile(a_view(a_job(annotations=EU)), NOW)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["annotations"][api_names.CLUSTER_SELECTOR_ANNOTATION] == "region=eu"


def test_another_cluster_selector_counts_for_what_waits() -> None:
    [patch] = reconcile(a_view(a_job(annotations=EU), a_workload()), NOW)
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": EU | {api_names.SCHEDULER_LABEL: None}}}


def test_another_scheduler_counts_for_what_waits() -> None:
    [patch] = reconcile(a_view(a_job(labels={api_names.SCHEDULER_LABEL: "kai"}), a_workload()), NOW)
    assert isinstance(patch, Patch)
    assert patch.body["metadata"]["annotations"][api_names.SCHEDULER_LABEL] == "kai"


def test_a_slice_names_the_scheduler_of_its_job() -> None:
    [create, _] = reconcile(a_view(a_job(labels={api_names.SCHEDULER_LABEL: "kai"})), NOW)
    assert isinstance(create, Create)
    assert create.manifest["metadata"]["annotations"][api_names.SCHEDULER_LABEL] == "kai"


def test_an_invalid_cluster_selector_is_shown_on_the_job() -> None:
    wrong = {api_names.CLUSTER_SELECTOR_ANNOTATION: "region=eu=us"}
    [_, event] = reconcile(a_view(a_job(annotations=wrong)), NOW)
    assert isinstance(event, Emit)
    assert event.reason == "InvalidClusterSelector"
    assert "unable to parse requirement" in event.note


def with_cpu(job: Manifest, cpu: str) -> Manifest:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return job | {"spec": job["spec"] | {"template": template}}


def requested_cpu(manifest: Manifest) -> list[str]:
    pod_sets = manifest["spec"]["podSets"]
    return [pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod_set in pod_sets]


def test_a_slice_of_which_nothing_can_run_yet_takes_over_other_pods() -> None:
    [patch] = reconcile(a_view(with_cpu(a_job(), "64"), a_workload()), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert requested_cpu(patch.body) == ["64"]


def of_another_pod_set(workload: Manifest) -> Manifest:
    """The Workload of a job whose one pod set had another name."""
    [pod_set] = workload["spec"]["podSets"]
    return workload | {"spec": workload["spec"] | {"podSets": [pod_set | {"name": "former"}]}}


def test_a_job_that_waits_with_other_pod_sets_gets_a_slice_of_those() -> None:
    """With the former ones it would have quota for pods that nobody makes."""
    former = of_another_pod_set(a_workload())
    view = a_view(a_job(), former)
    assert shorts(reconcile(view, NOW)) == [("w1", "Finished=True OutOfSync")]
    assert admitting.comes_too_early(view)
    finished = of_another_pod_set(a_workload(conditions=(condition("Finished"),), held=False))
    [made, _, *_] = reconcile(a_view(a_job(), finished), NOW)
    assert isinstance(made, Create)
    assert [pod_set["name"] for pod_set in made.manifest["spec"]["podSets"]] == ["main"]


def test_a_job_with_quota_or_a_copy_keeps_its_pod_sets() -> None:
    for workload in (holding(applied=1), a_workload(dispatched=1, applied=1)):
        commands = reconcile(a_view(a_job(), of_another_pod_set(workload)), NOW)
        assert ("w1", "Finished=True OutOfSync") not in shorts(commands)
        assert ("w1", f"{RESIZABLE_CONDITION}=False StructuralChange") in shorts(commands)


def test_a_job_that_waits_and_was_made_impossible_is_refused_until_it_is_mended() -> None:
    """It would be admitted with its old pods, and hold quota that nothing uses."""
    job = with_cpu(a_job(), "no number")
    assert shorts(reconcile(a_view(job, a_workload()), NOW)) == [("w1", "Finished=True OutOfSync")]
    finished = a_workload(conditions=(condition("Finished"),), held=False)
    assert shorts(reconcile(a_view(job, finished), NOW)) == [
        ("train", f"{ACCEPTED_CONDITION}=False InvalidQuantity"),
        ("warn Job", "InvalidQuantity"),
    ]
    [made, _] = reconcile(a_view(a_job(), finished), NOW)
    assert isinstance(made, Create)


def test_a_job_that_runs_and_was_made_impossible_runs_on_and_says_so() -> None:
    view = a_view(with_cpu(a_job(), "no number"), holding(applied=1))
    assert not [command for command in reconcile(view, NOW) if isinstance(command, Create | Publish)]
    shown, event = unmanaged.run_on(view, view.job or {})
    text = "it runs on as it was: pod set main: not a quantity: 'no number'"
    assert short(shown) == ("train", (UNHEEDED_ANNOTATION, text))
    assert short(event) == ("warn Job", "InvalidQuantity")


def test_a_job_that_runs_keeps_its_pods_and_shows_why() -> None:
    """Its next slice is charged for the pods that there are."""
    view = a_view(with_cpu(asking(1, 5), "64"), holding(applied=1))
    commands = reconcile(view, NOW)
    [made] = [command for command in commands if isinstance(command, Create)]
    assert requested_cpu(made.manifest) == requested_cpu(holding())
    assert ("w1", f"{RESIZABLE_CONDITION}=False StructuralChange") in shorts(commands)
    [event] = [command for command in commands if isinstance(command, Emit) and command.warning]
    assert event.note == "A job that runs keeps its pods: what main requests is changed when it is made anew"


def with_pod(job: Manifest, **changed: Any) -> Manifest:
    """The job with these fields in its pods' spec."""
    template = job["spec"]["template"]
    return job | {"spec": job["spec"] | {"template": template | {"spec": template["spec"] | changed}}}


EDITED_PODS = {
    "other requests": with_cpu(a_job(), "64"),
    "other pod sets": RAY_JOB | {"metadata": a_job()["metadata"]},
    "impossible requests": with_cpu(a_job(), "no number"),
    "a RuntimeClass": with_pod(a_job(), runtimeClassName="heavy"),
    "claims of devices": with_pod(a_job(), resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "eight"}]),
}


@pytest.mark.parametrize("job", EDITED_PODS.values(), ids=EDITED_PODS.keys())
@pytest.mark.parametrize(("applied", "is_published"), [(1, True), (0, False)], ids=["runs", "has yet to be made"])
def test_a_worker_makes_no_job_with_pods_that_have_no_quota(job: Manifest, applied: int, is_published: bool) -> None:
    """The copy would keep them when somebody mends the job, beside a slice that has the old ones."""
    view = a_view(job, a_workload(admitted=1, dispatched=1, applied=applied, hash="of another size"))
    assert (("workload-spec to east", 2) in shorts(reconcile(view, NOW))) == is_published


def test_a_worker_that_asks_for_a_size_has_a_copy_whose_report_is_lost() -> None:
    """A tenant has deleted the copy's Workload too: without another order nothing would bring it back."""
    view = a_view(with_cpu(asking(1, 5), "64"), a_workload(admitted=5, dispatched=1, applied=0, hash="of another size"))
    assert ("workload-spec to east", 2) in shorts(reconcile(view, NOW))


def ordered(record: Dispatch, *, applied: int = 0, **how: Any) -> Manifest:
    """A slice with quota, and with this order."""
    workload = a_workload(admitted=1, applied=applied, **how)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return workload


BEFORE_ITS_COPY: dict[str, tuple[Manifest, int, bool]] = {
    "no order": (a_workload(admitted=1), 0, True),
    "an order that nobody has published": (ordered(Dispatch(1, "hash")), 0, True),
    "an order whose answer is awaited": (ordered(Dispatch(1, "hash")), 1, False),
    "its copy was made": (ordered(Dispatch(1, "hash"), applied=1), 1, False),
    "a former copy is being deleted": (ordered(Dispatch(2, api_names.ABSENT), applied=1), 2, False),
    "a former copy is deleted": (ordered(Dispatch(2, api_names.ABSENT), applied=2), 2, True),
    "a former copy was deleted, and an order follows": (ordered(Dispatch(3, "hash", cleared=2), applied=2), 0, True),
    "its next copy was made": (ordered(Dispatch(3, "hash", cleared=2), applied=3), 0, False),
    "the slice of its copy is gone, and its report with it": (ordered(Dispatch(2, "hash"), replaces="w0"), 0, False),
    "its copy is lost": (ordered(Dispatch(1, LOST, lost_version=1), applied=1), 0, True),
    "its copy is lost, and the slice before it is gone": (
        ordered(Dispatch(1, LOST, lost_version=1), applied=1, replaces="w0"),
        0,
        True,
    ),
    "its copy was lost, and the answer to the next order is awaited": (
        ordered(Dispatch(2, "hash", lost_version=1), applied=1),
        2,
        False,
    ),
    "its copy was lost, and nobody has published the next order": (
        ordered(Dispatch(2, "hash", lost_version=1), applied=1),
        0,
        True,
    ),
    "its copy was lost, and the next one was made": (
        ordered(Dispatch(2, "hash", lost_version=1), applied=2),
        0,
        False,
    ),
    "its copy is another one than it shall be": (ordered(Dispatch(1, LOST), applied=1), 0, False),
    "the slice before it is gone, and no copy is left": (a_workload(admitted=1, replaces="w0"), 0, True),
}


@pytest.mark.parametrize("job", EDITED_PODS.values(), ids=EDITED_PODS.keys())
@pytest.mark.parametrize(("workload", "published", "is_taken"), BEFORE_ITS_COPY.values(), ids=BEFORE_ITS_COPY.keys())
def test_quota_for_pods_that_nobody_may_make_is_taken_back(
    job: Manifest, workload: Manifest, published: int, is_taken: bool
) -> None:
    """No order would follow the admission before somebody undoes the edit."""
    commands = reconcile(a_view(job, workload, published=published), NOW)
    evicts = [
        ("w1", "Evicted=True PodsEdited", "slicebus.dev/Dispatched=False Suspending"),
        ("event Workload", "EvictedDueToPodsEdited"),
        (f"event {job['kind']}", "EvictedDueToPodsEdited"),
    ]
    assert (shorts(commands) == evicts) is is_taken


@pytest.mark.parametrize("job", EDITED_PODS.values(), ids=EDITED_PODS.keys())
def test_a_lost_copy_is_not_made_again_with_edited_pods(job: Manifest) -> None:
    """They would stay behind their gate, beside a slice that has the quota of the former ones."""
    workload = a_workload(admitted=1, dispatched=1, applied=1)
    [lost] = dispatch.renew(a_view(job, workload), above=1, has_copy=False)
    assert isinstance(lost, Patch)
    view = a_view(job, merge_patch(workload, lost.body))
    assert ("w1", "Evicted=True PodsEdited", "slicebus.dev/Dispatched=False Suspending") in shorts(reconcile(view, NOW))


def test_the_job_waits_with_its_edited_pods_then() -> None:
    objects = {"Job": with_cpu(a_job(), "64"), "Workload": ordered(Dispatch(2, api_names.ABSENT), applied=2)}
    for _ in range(4):  # The eviction, the suspension of the job, the end of the admission, and the pods.
        for command in reconcile(a_view(*objects.values(), published=2), NOW):
            if isinstance(command, Patch):
                assert isinstance(command.body, dict)
                objects[command.target["kind"]] = merge_patch(objects[command.target["kind"]], command.body)
    waits = a_view(*objects.values(), published=2)
    assert (waits.slices[0].lacks_quota, waits.is_withdrawn) == (True, True)
    assert requested_cpu(objects["Workload"]) == ["64"]
    assert not admitting.comes_too_early(waits)


def test_a_slice_that_waits_takes_another_runtime_over() -> None:
    """Its pods would stay gated on every worker: they are compared with those of the slice."""
    [patch] = reconcile(a_view(with_pod(a_job(), runtimeClassName="heavy"), a_workload()), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert patch.body["spec"]["podSets"][0]["template"]["spec"]["runtimeClassName"] == "heavy"


def test_what_has_to_go_goes_although_its_next_copy_cannot_be_made() -> None:
    """The delete was written down, and the broker did not get it."""
    view = a_view(with_cpu(a_job(), "64"), withdrawn(applied=1))
    assert ("delete to east", 2) in shorts(reconcile(view, NOW))


LEFT_OUT: dict[str, tuple[tuple[Manifest, ...], list[tuple[Any, ...]]]] = {
    "it waits": ((a_workload(),), []),
    "it waits, and is being deleted": ((a_workload(deleting=True),), [("w1", "release")]),
    "it runs": ((a_workload(admitted=1, dispatched=1, applied=1),), []),
    "it runs, and its slice is being deleted: nobody knows whether the job is": (
        (a_workload(admitted=1, dispatched=1, applied=1, deleting=True),),
        [],
    ),
    "it is withdrawn, and the worker has not reported that": (
        (withdrawn(applied=1, deleting=True),),
        [("delete to east", 2)],
    ),
    "the worker holds nothing of it": ((withdrawn(deleting=True),), [("w1", "release")]),
    "the worker holds nothing of it, and it goes elsewhere": ((withdrawn(),), []),
}


@pytest.mark.parametrize(("workloads", "expected"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_job_of_a_kind_that_is_left_out_only_goes_on_ending(
    workloads: tuple[Manifest, ...], expected: list[tuple[Any, ...]]
) -> None:
    """Its definition may be waiting for the job, and the job for its Workloads."""
    assert shorts(Builtin().go_on_ending(a_view(None, *workloads))) == expected


@pytest.mark.parametrize(
    ("tried_at", "waits"), [(None, False), ("2026-01-31T11:59:50Z", True), ("2026-01-31T11:59:20Z", False)]
)
def test_a_copy_stays_while_the_end_of_its_job_is_being_written(tried_at: str | None, waits: bool) -> None:
    """Somebody deletes the job's Workload, and the API server answers no write of the job's status."""
    workload = a_workload(admitted=1, dispatched=1, applied=1, deleting=True)
    commands = reconcile(a_view(a_job(), workload, end_tried_at=tried_at), NOW)
    assert (commands == [Requeue(job=REF, delay_s=1.0)]) is waits
    assert any(isinstance(command, Publish) for command in commands) is not waits
