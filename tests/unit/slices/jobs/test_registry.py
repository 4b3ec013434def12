"""What holds for every kind."""

import copy
from typing import Any

import msgspec
import pytest

from slicebus.proto.messages import MOST_COUNT, Counts
from slicebus.slices.jobs import KINDS, JobKind, Problem
from slicebus.slices.jobs.copies import common_problems
from slicebus.slices.workload.chain import RefuseScaling, plan
from slicebus.slices.workload.pod_sets import PodSet
from unit.slices.builders import a_slice
from unit.slices.jobs.manifests import (
    GATE,
    a_cluster,
    a_cluster_spec,
    a_group,
    a_job,
    a_rayjob,
    a_rayservice,
    a_template,
)

JOBS: dict[str, dict[str, Any]] = {
    "Job": a_job(),
    "RayCluster": a_cluster(),
    "RayJob": a_rayjob(),
    "RayService": a_rayservice(),
}
every_kind = pytest.mark.parametrize(
    ("kind", "job"), [(KINDS[name], job) for name, job in JOBS.items()], ids=JOBS.keys()
)


def test_there_are_four_kinds_by_their_own_names() -> None:
    assert {name: kind.resource.api_version for name, kind in KINDS.items()} == {
        "Job": "batch/v1",
        "RayCluster": "ray.io/v1",
        "RayJob": "ray.io/v1",
        "RayService": "ray.io/v1",
    }
    assert all(kind.resource.kind == name for name, kind in KINDS.items())


@every_kind
def test_pod_sets_and_counts_agree(kind: JobKind, job: dict[str, Any]) -> None:
    assert {pod_set["name"]: pod_set["count"] for pod_set in kind.pod_sets(job)} == kind.counts(job, job)


MOST = {"replicas": MOST_COUNT, "minReplicas": MOST_COUNT, "maxReplicas": MOST_COUNT, "numOfHosts": 4}
HUGE = [a_cluster(a_group(**MOST)), a_rayjob(a_group(**MOST)), a_rayservice(a_group(**MOST))]


@pytest.mark.parametrize("job", HUGE, ids=lambda job: str(job["kind"]))
def test_a_product_of_two_numbers_is_a_count_that_messages_and_notes_take(job: dict[str, Any]) -> None:
    kind = KINDS[job["kind"]]
    for counts in (kind.counts(job, job), kind.most(job), kind.least(job)):
        assert msgspec.convert(counts, Counts) == counts


@every_kind
def test_every_pod_set_can_be_read_from_a_workload(kind: JobKind, job: dict[str, Any]) -> None:
    for pod_set in kind.pod_sets(job):
        assert PodSet.from_manifest(pod_set).requests["cpu"] > 0


@every_kind
def test_a_plain_job_has_no_problems(kind: JobKind, job: dict[str, Any]) -> None:
    assert kind.problems(job) == []


@every_kind
def test_a_copy_has_only_the_metadata_that_travels(kind: JobKind, job: dict[str, Any]) -> None:
    made = kind.worker_copy(job, {})
    assert made.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (made["apiVersion"], made["kind"]) == (kind.resource.api_version, kind.resource.kind)
    assert made["metadata"] == {
        "name": "demo",
        "namespace": "team",
        "labels": {"app": "demo"},
        "annotations": {"note": "kept", "kueue.x-k8s.io/elastic-job": "true"},
    }


@every_kind
def test_a_copy_of_a_job_that_says_little_needs_nothing_more(kind: JobKind, job: dict[str, Any]) -> None:
    bare = job | {"metadata": {"name": "demo", "namespace": "team"}}
    assert kind.worker_copy(bare, {})["metadata"]["labels"] == {}
    assert kind.problems(bare) == []


@every_kind
def test_a_copy_is_neither_queued_nor_managed_nor_suspended(kind: JobKind, job: dict[str, Any]) -> None:
    made = kind.worker_copy(job, {})
    assert "kueue.x-k8s.io/queue-name" not in made["metadata"]["labels"]
    assert "managedBy" not in made["spec"]
    assert not made["spec"].get("suspend")


@every_kind
def test_a_copy_of_a_copy_has_the_gate_once(kind: JobKind, job: dict[str, Any]) -> None:
    once = kind.worker_copy(job, {})
    assert kind.worker_copy(once, {}) == once


def test_other_gates_stay_and_the_elastic_one_comes_last() -> None:
    other = {"name": "example.com/other"}
    job = a_job(template=a_template(schedulingGates=[GATE, other]))
    template = KINDS["Job"].worker_copy(job, {})["spec"]["template"]
    assert template["spec"]["schedulingGates"] == [other, GATE]


@every_kind
def test_elastic_and_partial_admission_together_are_refused(kind: JobKind, job: dict[str, Any]) -> None:
    partial = copy.deepcopy(job)
    partial["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = "1"
    assert kind.problems(partial) == [
        Problem(
            "PartialAdmissionNotSupported",
            "annotation kueue.x-k8s.io/job-min-parallelism (partial admission) cannot be used together with "
            "kueue.x-k8s.io/elastic-job: remove one of them",
        )
    ]


def test_a_min_count_is_partial_admission_too() -> None:
    [pod_set] = KINDS["Job"].pod_sets(a_job())
    assert common_problems(a_job(), [pod_set | {"minCount": 1}]) == [
        Problem("PartialAdmissionNotSupported", "pod set main: minCount is set")
    ]


@pytest.mark.parametrize(
    ("kind", "job", "problem"),
    [
        (
            "Job",
            a_job(parallelism=2**31 - 1),
            Problem(
                "TooManyPods",
                "pod set main: 2147483647 pods, and a worker's controller would make all of them: at most 100000",
            ),
        ),
        (
            "RayCluster",
            a_cluster(a_group(minReplicas=60_000, maxReplicas=60_000, numOfHosts=2)),
            Problem(
                "TooManyPods",
                "pod set small: 120000 pods, and a worker's controller would make all of them: at most 100000",
            ),
        ),
        ("Job", a_job(template=a_template("lots")), Problem("InvalidQuantity", "pod set main: not a quantity: 'lots'")),
        (
            "RayCluster",
            a_cluster(a_group(template=a_template("1 Gi"))),
            Problem("InvalidQuantity", "pod set small: not a quantity: '1 Gi'"),
        ),
        (
            "RayCluster",
            a_cluster(a_group(template=a_template("-4"))),
            Problem("InvalidQuantity", "pod set small: a negative request of cpu: '-4'"),
        ),
        (
            "RayCluster",
            a_cluster(a_group("A"), a_group("a")),
            Problem("DuplicatePodSets", "two pod sets have the same name: a, a, head"),
        ),
        (
            "RayCluster",
            a_cluster(a_group("head")),
            Problem("DuplicatePodSets", "two pod sets have the same name: head, head"),
        ),
        (
            "RayCluster",
            a_cluster(*(a_group(f"g{index}") for index in range(18))),
            Problem("TooManyPodSets", "a job has at most 18 pod sets, this one 19"),
        ),
        (
            "RayJob",
            a_rayjob(*(a_group(f"g{index}") for index in range(17))),
            Problem("TooManyPodSets", "a job has at most 18 pod sets, this one 19"),
        ),
    ],
    ids=[
        "more pods than a cluster has",
        "of all hosts",
        "quantity",
        "quantity of a group",
        "negative quantity",
        "same name but for its case",
        "a second head",
        "groups",
        "with submitter",
    ],
)
def test_what_no_kind_can_live_with(kind: str, job: dict[str, Any], problem: Problem) -> None:
    assert KINDS[kind].problems(job) == [problem]


def test_as_many_pod_sets_as_a_workload_has_room_for() -> None:
    assert KINDS["RayCluster"].problems(a_cluster(*(a_group(f"g{index}") for index in range(17)))) == []
    assert KINDS["RayJob"].problems(a_rayjob(*(a_group(f"g{index}") for index in range(16)))) == []


@pytest.mark.parametrize(
    ("kind", "before", "after", "change"),
    [
        ("RayCluster", a_cluster(a_group("a")), a_cluster(a_group("a"), a_group("b")), "it adds b"),
        ("RayCluster", a_cluster(a_group("a"), a_group("b")), a_cluster(a_group("a")), "it removes b"),
        ("RayCluster", a_cluster(a_group("a")), a_cluster(a_group("b")), "it adds b and removes a"),
        ("RayJob", a_rayjob(), a_rayjob(submissionMode="HTTPMode"), "it removes submitter"),
        (
            "RayJob",
            a_rayjob(),
            a_rayjob(cluster=a_cluster_spec(a_group("x"), a_group())),
            "it adds x",
        ),
    ],
    ids=["a group more", "a group less", "a group renamed", "another submission", "a group more in a RayJob"],
)
def test_other_pod_sets_are_no_resize(kind: str, before: dict[str, Any], after: dict[str, Any], change: str) -> None:
    pod_sets = tuple(PodSet.from_manifest(pod_set) for pod_set in KINDS[kind].pod_sets(before))
    slice = msgspec.structs.replace(a_slice("s1"), pod_sets=pod_sets)
    [refusal] = plan([slice], KINDS[kind].counts(after, after))
    assert isinstance(refusal, RefuseScaling)
    assert refusal.message == f"A resize may change counts only, this one changes the pod sets: {change}"
