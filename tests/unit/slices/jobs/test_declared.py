"""Kinds by declaration: every method, on manifests of four kinds."""

import copy
from typing import Any

import pytest

from slicebus.agent.decide.pods.pod_placement import is_unplaced
from slicebus.proto.messages import MOST_COUNT, JobPhase
from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.api import kueue
from slicebus.slices.jobs import Exposure, JobKind, Outcome, Placement, Problem
from slicebus.slices.jobs.declared import DeclaredKind
from slicebus.slices.workload.pod_sets import PodSet
from unit.slices.jobs.declared import (
    DEPLOYMENT,
    GROUPS,
    JOBS,
    JOBSET,
    LEADER,
    TRAIN,
    a_deployment,
    a_group_set,
    a_jobset,
    a_replicated_job,
    a_train_job,
)
from unit.slices.jobs.manifests import GATE, POD_SET, a_template

Manifest = dict[str, Any]
every_job = pytest.mark.parametrize(("kind", "job"), JOBS.values(), ids=JOBS.keys())
TEMPLATES: dict[str, list[tuple[str | int, ...]]] = {
    "JobSet": [("replicatedJobs", 0, "template", "spec", "template")],
    "JobSet of two": [("replicatedJobs", n, "template", "spec", "template") for n in range(2)],
    "groups": [("leaderWorkerTemplate", "workerTemplate")],
    "groups with a leader": [("leaderWorkerTemplate", "leaderTemplate"), ("leaderWorkerTemplate", "workerTemplate")],
    "Deployment": [("template",)],
    "TrainJob": [("driver", "template"), ("template",)],
}
COUNTS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "JobSet": ({"workers": 6}, {"workers": 1}),
    "JobSet of two": ({"driver": 1, "workers": 6}, {"driver": 1, "workers": 1}),
    "groups": ({"worker": 8}, {"worker": 4}),
    "groups with a leader": ({"leader": 2, "worker": 6}, {"leader": 1, "worker": 3}),
    "Deployment": ({"main": 3}, {"main": 1}),
    "TrainJob": ({"driver": 1, "trainers": 3}, {"driver": 1, "trainers": 1}),
}


STEPS = {"JobSet": {"workers": 2}, "JobSet of two": {"workers": 2}}
"""Where a resize changes more pods than start together."""


def at(found: Any, *path: str | int) -> Any:
    for step in path:
        found = found[step]
    return found


@every_job
def test_it_is_a_job_kind(kind: JobKind, job: Manifest) -> None:
    assert (kind.resource.api_version, kind.resource.kind) == (job["apiVersion"], job["kind"])
    assert kind.exposure(job) == Exposure()
    assert (kind.child_kind, kind.children(job), kind.made_by(job)) == ("", None, "")
    assert (kind.finished(job), kind.succeeded({}), kind.named_for_deletion(job)) == ({}, {}, frozenset())
    assert (kind.bounds(job), kind.set_bounds(job, {}), kind.is_autoscaled(job)) == ({}, [], False)
    assert kind.autoscaled(job) is job
    assert kind.scaler(job) == "replicas changed"


@pytest.mark.parametrize("name", JOBS)
def test_its_counts_and_how_many_pods_start_together(name: str) -> None:
    (kind, job), (counts, sizes) = JOBS[name], COUNTS[name]
    assert kind.counts(job, job) == counts
    assert {pod_set["name"]: pod_set["count"] for pod_set in kind.pod_sets(job)} == counts
    assert {pod_set: kind.replica_size(job, pod_set) for pod_set in counts} == sizes
    assert {pod_set: kind.step(job, pod_set) for pod_set in counts} == sizes | STEPS.get(name, {})


INDEX, GROUP = "batch.kubernetes.io/job-completion-index", "leaderworkerset.sigs.k8s.io/group-index"
NUMBERS = {"JobSet": INDEX, "JobSet of two": INDEX, "groups": GROUP, "groups with a leader": GROUP}


def test_a_product_of_its_numbers_is_a_count_that_messages_take() -> None:
    job = a_jobset(a_replicated_job(replicas=2**40, parallelism=2**40))
    assert JOBSET.counts(job, job) == {"workers": MOST_COUNT}


@pytest.mark.parametrize("name", JOBS)
def test_which_number_says_what_goes_first(name: str) -> None:
    kind, job = JOBS[name]
    assert {kind.index_label(job, pod_set) for pod_set in COUNTS[name][0]} == {NUMBERS.get(name, "")}


def test_completions_go_with_the_pods_that_others_take_where_both_are_equal_on_both_sides() -> None:
    def left(job: Manifest, present: Manifest, to: int) -> tuple[int, int]:
        spec = JOBSET.with_pods(job, {"workers": 2 * to}, present=present)["spec"]["replicatedJobs"][0]["template"]
        return spec["spec"]["parallelism"], spec["spec"]["completions"]

    equal, fewer = (a_jobset(a_replicated_job(parallelism=4, completions=number)) for number in (4, 9))
    assert [left(equal, present, 2) for present in (equal, fewer)] == [(2, 2), (2, 9)]
    assert [left(fewer, present, 2) for present in (equal, fewer)] == [(2, 4), (2, 9)]
    assert left(fewer, equal, 6) == (6, 6), "never fewer than the pods"
    stays = equal | {"metadata": equal["metadata"] | {"annotations": {kueue.SYNC_COMPLETIONS_ANNOTATION: "false"}}}
    assert left(stays, equal, 2) == (2, 4)
    assert JOBSET.index_label(stays, "workers") == ""


def test_a_copy_says_where_they_stay() -> None:
    """Somebody may make both equal where it runs."""
    for number, said in ((4, None), (9, "false")):
        copy = JOBSET.worker_copy(a_jobset(a_replicated_job(parallelism=4, completions=number)), {})
        assert copy["metadata"].get("annotations", {}).get(kueue.SYNC_COMPLETIONS_ANNOTATION) == said


def test_none_does_where_the_completions_stay() -> None:
    assert JOBSET.index_label(a_jobset(a_replicated_job(completions=9)), "workers") == ""


@pytest.mark.parametrize("name", ["JobSet", "JobSet of two", "groups", "groups with a leader"])
def test_a_step_less_is_a_size_that_it_can_have(name: str) -> None:
    kind, job = JOBS[name]
    less = {pod_set: count - kind.step(job, pod_set) for pod_set, count in kind.counts(job, job).items()}
    resized = kind.with_counts(job, less)
    assert kind.counts(resized, resized) == less


@every_job
def test_every_pod_set_can_be_read_from_a_workload(kind: JobKind, job: Manifest) -> None:
    for pod_set in kind.pod_sets(job):
        assert PodSet.from_manifest(pod_set).requests["cpu"] > 0


@pytest.mark.parametrize("name", JOBS)
def test_a_copy_has_gated_templates_and_nothing_of_the_manager(name: str) -> None:
    kind, job = JOBS[name]
    before = copy.deepcopy(job)
    place = Placement(node_selector={"zone": "a"}, labels={"slicebus.dev/manager-uid": "u1"})
    made = kind.worker_copy(job, dict.fromkeys(kind.counts(job, job), place))
    assert job == before
    assert made.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert made["metadata"] == {
        "name": "demo",
        "namespace": "team",
        "labels": {"app": "demo"},
        "annotations": {"note": "kept", "kueue.x-k8s.io/elastic-job": "true"},
    }
    for path, pod_set in zip(TEMPLATES[name], kind.pod_sets(job), strict=True):
        template, own = at(made["spec"], *path), at(job["spec"], *path)
        assert template["spec"]["schedulingGates"] == [GATE]
        assert template["spec"]["nodeSelector"] == {"zone": "a"}
        assert template["spec"]["containers"] == own["spec"]["containers"]
        labels = template["metadata"]["labels"]
        assert (labels[POD_SET], labels["slicebus.dev/manager-uid"]) == (pod_set["name"], "u1")
        assert not is_unplaced(template)
    assert kind.worker_copy(made, {})["spec"].keys() == made["spec"].keys()
    assert kind.counts(made, made) == kind.counts(job, job)


@pytest.mark.parametrize(
    ("kind", "job", "spec"),
    [
        (JOBSET, a_jobset(ttlSecondsAfterFinished=9, network={}), {"suspend": False, "network": {}}),
        (GROUPS, a_group_set(), {"replicas": 2}),
        (DEPLOYMENT, a_deployment(), {"replicas": 3, "selector": {"matchLabels": {"app": "demo"}}}),
        (TRAIN, a_train_job(), {"scaling": {"replicas": 3}, "runPolicy": {"suspend": False, "retries": 1}}),
    ],
    ids=["JobSet", "groups", "Deployment", "TrainJob"],
)
def test_what_a_copy_says_beside_its_templates(kind: DeclaredKind, job: Manifest, spec: Manifest) -> None:
    templates = ("replicatedJobs", "leaderWorkerTemplate", "template", "driver")
    made = kind.worker_copy(job, {})["spec"]
    assert {name: value for name, value in made.items() if name not in templates} == spec


def test_pods_are_found_by_the_controllers_label_or_by_one_that_the_copy_gives_them() -> None:
    assert JOBSET.owner_labels == ("jobset.sigs.k8s.io/jobset-name",)
    assert JOBSET.pod_selectors(a_jobset()) == [{"jobset.sigs.k8s.io/jobset-name": "demo"}]
    given = {"slicebus.dev/of-deployment": "demo"}
    assert DEPLOYMENT.pod_selectors(a_deployment()) == [given]
    foreign = a_template() | {"metadata": {"labels": {"app": "demo", "slicebus.dev/of-jobset": "another"}}}
    labels = DEPLOYMENT.worker_copy(a_deployment(template=foreign), {})["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app": "demo", POD_SET: "main"} | given


@pytest.mark.parametrize(
    ("kind", "labels", "replica"),
    [
        (JOBSET, {"jobset.sigs.k8s.io/job-key": "k1"}, ("owner", "")),
        (GROUPS, {}, ("owner", "")),
        (GROUPS, {"leaderworkerset.sigs.k8s.io/group-key": "g1", "a": "b"}, ("", "g1")),
        (DEPLOYMENT, {"ray.io/worker-group-replica-name": "r"}, ("owner", "")),
    ],
    ids=["JobSet", "a pod without the label", "groups", "Deployment"],
)
def test_which_pods_start_together(kind: DeclaredKind, labels: dict[str, str], replica: tuple[str, str]) -> None:
    assert kind.replica(labels, "owner") == replica


FOLLOWED: dict[str, tuple[Manifest, Manifest, tuple[int, int]]] = {
    "both": (a_replicated_job(parallelism=3), a_replicated_job(parallelism=5), (5, 5)),
    "the count alone": (a_replicated_job(parallelism=5), a_replicated_job(parallelism=2, completions=5), (2, 5)),
    "what the worker had made of it": (a_replicated_job(parallelism=7), a_replicated_job(completions=9), (3, 9)),
    "neither": (a_replicated_job(), a_replicated_job(), (3, 3)),
}


@pytest.mark.parametrize(("copy", "own", "expected"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_what_changes_with_the_count_follows_the_managers(
    copy: Manifest, own: Manifest, expected: tuple[int, int]
) -> None:
    followed = a_jobset(copy)
    for patch in JOBSET.follow(followed, a_jobset(own)):
        followed = json_patch(followed, patch)
    spec = at(followed, "spec", "replicatedJobs", 0, "template", "spec")
    assert (spec["parallelism"], spec["completions"]) == expected
    assert JOBSET.follow(followed, a_jobset(own)) == []


RESIZES: dict[str, tuple[DeclaredKind, Manifest, dict[str, int], dict[str, int]]] = {
    "JobSet, as many in each of its Jobs": (JOBSET, a_jobset(), {"workers": 8}, {"workers": 8}),
    "JobSet, one too many for that": (JOBSET, a_jobset(), {"workers": 9}, {"workers": 8}),
    "JobSet, one of two": (*JOBS["JobSet of two"], {"driver": 1, "workers": 2}, {"driver": 1, "workers": 2}),
    "JobSet, none": (JOBSET, a_jobset(), {"workers": 0}, {"workers": 0}),
    "groups, a part of one is none": (GROUPS, a_group_set(), {"worker": 11}, {"worker": 8}),
    "groups": (GROUPS, a_group_set(), {"worker": 12}, {"worker": 12}),
    "groups with a leader": (
        *JOBS["groups with a leader"],
        {"leader": 3, "worker": 9},
        {"leader": 3, "worker": 9},
    ),
    "groups, as many as both have room for": (
        *JOBS["groups with a leader"],
        {"leader": 3, "worker": 3},
        {"leader": 1, "worker": 3},
    ),
    "Deployment": (DEPLOYMENT, a_deployment(), {"main": 5}, {"main": 5}),
    "TrainJob, whose driver has no count": (
        TRAIN,
        a_train_job(),
        {"driver": 4, "trainers": 1},
        {"driver": 1, "trainers": 1},
    ),
    "another pod set": (DEPLOYMENT, a_deployment(), {"other": 5}, {"main": 3}),
    "the field is missing": (TRAIN, a_train_job(scaling={}), {"trainers": 5}, {"driver": 1, "trainers": 5}),
    "all above it too": (
        TRAIN,
        {**a_train_job(), "spec": {"template": a_template(), "driver": {"template": a_template()}}},
        {"trainers": 5},
        {"driver": 1, "trainers": 5},
    ),
}


@pytest.mark.parametrize(("kind", "job", "counts", "expected"), RESIZES.values(), ids=RESIZES.keys())
def test_a_resize_by_a_patch_and_in_the_managers_spec(
    kind: DeclaredKind, job: Manifest, counts: dict[str, int], expected: dict[str, int]
) -> None:
    before = copy.deepcopy(job)
    patched, changed = json_patch(job, kind.resize(job, counts)), kind.with_counts(job, counts)
    assert kind.counts(patched, patched) == kind.counts(changed, changed) == expected
    assert job == before
    assert kind.resize(patched, counts) == []


def test_a_resize_of_a_lists_entry_is_guarded_by_its_name() -> None:
    _, job = JOBS["JobSet of two"]
    assert JOBSET.resize(job, {"workers": 8}) == [
        {"op": "test", "path": "/spec/replicatedJobs/1/name", "value": "workers"},
        {"op": "add", "path": "/spec/replicatedJobs/1/template/spec/parallelism", "value": 4},
        {"op": "add", "path": "/spec/replicatedJobs/1/template/spec/completions", "value": 4},
    ]


def test_a_field_that_has_another_number_stays() -> None:
    job = a_jobset(a_replicated_job(completions=9))
    [_, operation] = JOBSET.resize(job, {"workers": 8})
    assert operation["path"].endswith("/parallelism")
    assert JOBSET.with_counts(job, {"workers": 8})["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 9


@every_job
def test_the_same_size_needs_no_patch(kind: DeclaredKind, job: Manifest) -> None:
    assert kind.resize(job, kind.counts(job, job)) == []


LACKING: dict[str, tuple[DeclaredKind, Manifest, str]] = {
    "JobSet": (JOBSET, a_jobset(), ""),
    "a JobSet that is not dispatched": (
        JOBSET,
        a_jobset(managedBy="example.com/other"),
        "its spec.managedBy is not kueue.x-k8s.io/multikueue",
    ),
    "a paused Deployment": (DEPLOYMENT, a_deployment(), ""),
    "a Deployment that was paused too late": (
        DEPLOYMENT,
        a_deployment() | {"status": {"replicas": 2}},
        "its status.replicas is 2, as this cluster runs it already",
    ),
    "a Deployment without pods": (DEPLOYMENT, a_deployment() | {"status": {"replicas": 0}}, ""),
    "a Deployment that runs": (DEPLOYMENT, a_deployment(paused=False), "its spec.paused is not true"),
    "gated groups": (GROUPS, a_group_set(leader=LEADER), ""),
    "groups whose leader is not gated": (
        GROUPS,
        a_group_set(leader=a_template()),
        "the pod template of leader has no scheduling gate kueue.x-k8s.io/elastic-job",
    ),
    "no template at all": (
        GROUPS,
        a_group_set() | {"spec": {}},
        "the pod template of worker has no scheduling gate kueue.x-k8s.io/elastic-job",
    ),
}


@pytest.mark.parametrize(("kind", "job", "lacks"), LACKING.values(), ids=LACKING.keys())
def test_what_the_managers_job_lacks_so_that_nobody_runs_it_there(
    kind: DeclaredKind, job: Manifest, lacks: str
) -> None:
    assert kind.lacks_dispatch(job) == lacks


def condition(type: str, status: str = "True", message: str = "all done") -> Manifest:
    return {"conditions": [{"type": "Other", "status": "True"}, {"type": type, "status": status, "message": message}]}


RUNNING = Outcome(JobPhase.RUNNING)
OUTCOMES: dict[str, tuple[DeclaredKind, Manifest, Outcome]] = {
    "complete": (JOBSET, condition("Completed"), Outcome(JobPhase.SUCCEEDED, "all done")),
    "not complete": (JOBSET, condition("Completed", "False"), RUNNING),
    "failed": (JOBSET, condition("Failed", message="bad"), Outcome(JobPhase.FAILED, "bad")),
    "no status": (JOBSET, {}, RUNNING),
    "conditions that are none": (JOBSET, {"conditions": ["Completed", {"type": "Completed"}]}, RUNNING),
    "no list of them": (JOBSET, {"conditions": "Completed"}, RUNNING),
    "a field": (TRAIN, {"phase": "Succeeded"}, Outcome(JobPhase.SUCCEEDED)),
    "another value of it": (TRAIN, {"phase": "Running"}, RUNNING),
    "failed by a field": (TRAIN, {"phase": "Failed"}, Outcome(JobPhase.FAILED)),
    "one that never ends": (DEPLOYMENT, condition("Complete"), RUNNING),
}


@pytest.mark.parametrize(("kind", "status", "outcome"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_how_it_ends(kind: DeclaredKind, status: Manifest, outcome: Outcome) -> None:
    assert kind.outcome({"status": status}) == outcome


@pytest.mark.parametrize(
    ("kind", "mirrored"),
    [
        (JOBSET, {"phase": "Running", "ready": 3}),
        (TRAIN, {"phase": "Running", "observed": 7}),
        (DEPLOYMENT, {"phase": "Old", "active": 1, "observed": 7}),
    ],
    ids=["all", "some fields", "none"],
)
def test_what_the_managers_status_shows_of_the_workers(kind: DeclaredKind, mirrored: Manifest) -> None:
    job = {"status": {"phase": "Old", "active": 1, "observed": 7}}
    assert kind.mirrored_status(job, {"phase": "Running", "ready": 3}) == mirrored
    assert kind.running_status({"ready": 3}) == {"ready": 3}
    assert kind.suspended_status({"ready": 3}, active=False, now="now") == {"ready": 3}


@every_job
def test_a_plain_job_has_no_problems(kind: DeclaredKind, job: Manifest) -> None:
    assert kind.problems(job) == []


def broken(job: Manifest, value: Any, *path: str | int) -> Manifest:
    made = copy.deepcopy(job)
    at(made, *path[:-1])[path[-1]] = value
    return made


_REPLICATED = ("spec", "replicatedJobs", 0)
_GROUPS = ("spec", "leaderWorkerTemplate")
PROBLEMS: dict[str, tuple[DeclaredKind, Manifest, Problem]] = {
    "no list": (
        JOBSET,
        broken(a_jobset(), "none", "spec", "replicatedJobs"),
        Problem("NoPodSets", "no JobSet without pods is run: it has no pod template"),
    ),
    "an entry without a name": (
        JOBSET,
        broken(a_jobset(), 7, *_REPLICATED, "name"),
        Problem("UnnamedPodSet", "spec.replicatedJobs[0] has no name"),
    ),
    "an entry that is none": (
        JOBSET,
        broken(a_jobset(), "workers", *_REPLICATED),
        Problem("UnnamedPodSet", "spec.replicatedJobs[0] has no name"),
    ),
    "a count that is none": (
        JOBSET,
        broken(a_jobset(), "two", *_REPLICATED, "replicas"),
        Problem("InvalidCount", "spec.replicatedJobs[0].replicas is 'two', and no number of pods"),
    ),
    "less than nothing": (
        DEPLOYMENT,
        a_deployment(replicas=-1),
        Problem("InvalidCount", "spec.replicas is -1, and no number of pods"),
    ),
    "yes": (
        DEPLOYMENT,
        a_deployment(replicas=True),
        Problem("InvalidCount", "spec.replicas is True, and no number of pods"),
    ),
    "a size that is none": (
        GROUPS,
        broken(a_group_set(), [], *_GROUPS, "size"),
        Problem("InvalidCount", "spec.leaderWorkerTemplate.size is [], and no number of pods"),
    ),
    "no template": (
        DEPLOYMENT,
        a_deployment(template=None),
        Problem("NoPodTemplate", "spec.template is no pod template"),
    ),
    "a template without containers": (
        DEPLOYMENT,
        a_deployment(template={"spec": {}}),
        Problem("NoPodTemplate", "spec.template is no pod template"),
    ),
    "a template with an odd field": (
        JOBSET,
        broken(a_jobset(), ["kata"], *_REPLICATED, "template", "spec", "template", "spec", "runtimeClassName"),
        Problem(
            "InvalidPodTemplate",
            "spec.replicatedJobs[0].template.spec.template: Expected `str | null`, got `array` - at "
            "`$.spec.runtimeClassName`",
        ),
    ),
    "a leader's that is none": (
        GROUPS,
        a_group_set(leader={"spec": {"containers": "many"}}),
        Problem("NoPodTemplate", "spec.leaderWorkerTemplate.leaderTemplate is no pod template"),
    ),
    "nothing at all": (
        TRAIN,
        a_train_job() | {"spec": {}},
        Problem("NoPodTemplate", "spec.driver.template is no pod template"),
    ),
    "a quantity": (
        DEPLOYMENT,
        a_deployment(template=a_template("lots")),
        Problem("InvalidQuantity", "pod set main: not a quantity: 'lots'"),
    ),
    "two of one name": (
        JOBSET,
        a_jobset(a_replicated_job("A"), a_replicated_job("a")),
        Problem("DuplicatePodSets", "two pod sets have the same name: a, a"),
    ),
    "a name that is no label's value": (
        DEPLOYMENT,
        broken(a_deployment(), "n" * 64, "metadata", "name"),
        Problem("NameTooLong", f"its pods get its name as a label, which has at most 63 characters: {'n' * 64}"),
    ),
}


@pytest.mark.parametrize(("kind", "job", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_is_not_as_declared_is_named(kind: DeclaredKind, job: Manifest, problem: Problem) -> None:
    assert kind.problems(job)[0] == problem


@pytest.mark.parametrize(("kind", "job", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_no_manifest_is_a_mistake_of_the_program(kind: DeclaredKind, job: Manifest, problem: Problem) -> None:
    """Somebody may edit a job to this after it was taken."""
    assert {pod_set["name"] for pod_set in kind.pod_sets(job)} == kind.counts(job, job).keys()
    assert kind.worker_copy(job, {})["kind"] == kind.resource.kind
    many = dict.fromkeys(kind.counts(job, job), 7)
    assert kind.with_counts(job, many)["kind"] == kind.resource.kind
    kind.resize(job, many)
    assert kind.outcome(job | {"status": {"conditions": None}}) == RUNNING
    assert isinstance(kind.lacks_dispatch(job), str)


def test_a_long_name_is_no_problem_where_the_controller_labels_the_pods() -> None:
    assert JOBSET.problems(broken(a_jobset(), "n" * 64, "metadata", "name")) == []
