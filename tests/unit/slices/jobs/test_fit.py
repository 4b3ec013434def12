"""What is read by name has its type: what has not is found, and left out."""

from typing import Any

import pytest

from slicebus.slices.jobs import KINDS, fitting, spec_shape_of, status_shape_of
from slicebus.slices.jobs.base import Placement
from slicebus.slices.jobs.copies import common_problems
from slicebus.slices.jobs.fit import fitted, misfit
from slicebus.slices.jobs.shapes import JobStatus, RayClusterSpec, TemplateShape
from unit.slices.jobs.declared import DECLARED, a_deployment, a_jobset
from unit.slices.jobs.manifests import (
    NAMED_OF_A_CLUSTER,
    ODD_NAMES,
    a_cluster,
    a_cluster_spec,
    a_group,
    a_job,
    a_rayjob,
    a_rayservice,
    a_template,
)

Manifest = dict[str, Any]
MADE = {"Job": a_job(), "RayCluster": a_cluster(), "RayJob": a_rayjob(), "RayService": a_rayservice()}


@pytest.mark.parametrize("kind", MADE)
def test_what_has_its_shape_stays_the_same_object(kind: str) -> None:
    assert fitting(kind)(MADE[kind]) is MADE[kind]


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ({"succeeded": "x", "active": 1}, {"active": 1}),
        ({"succeeded": True}, {}),
        ({"succeeded": 2.0}, {}),
        ({"conditions": "no"}, {}),
        ({"conditions": [{"type": "A", "status": "True"}, 7]}, [0, 1]),
        ("no object", {}),
    ],
)
def test_what_has_another_type_is_left_out(status: Any, left: Any) -> None:
    assert misfit(status, JobStatus)
    kept = fitted(status, JobStatus)
    assert not misfit(kept, JobStatus)
    if isinstance(left, list):
        assert kept["conditions"] == [{"type": "A", "status": "True"}, {"type": "", "status": ""}]
    else:
        assert kept == left


def test_an_entry_of_a_list_keeps_its_place() -> None:
    """JSON patches name entries by their numbers."""
    spec = a_cluster_spec(a_group("first"), a_group("third"))
    spec["workerGroupSpecs"].insert(1, "odd")
    kept = fitted(spec, RayClusterSpec)["workerGroupSpecs"]
    assert [group["groupName"] for group in kept] == ["first", "", "third"]
    assert kept[2] == spec["workerGroupSpecs"][2]


def test_what_is_not_read_by_name_is_left_alone() -> None:
    template = a_template(hostAliases="odd", unknown=[1], containers=[{"name": "a", "volumeMounts": 7, "resources": 7}])
    assert fitted(template, TemplateShape)["spec"] == template["spec"] | {
        "containers": [{"name": "a", "volumeMounts": 7}]
    }


@pytest.mark.parametrize("kind", [*KINDS.values(), *DECLARED.values()], ids=[*KINDS, *DECLARED])
@pytest.mark.parametrize("odd", [None, [], "x", 7, {}, {"template": 3}, {"replicas": {}}], ids=repr)
def test_every_method_of_a_kind_reads_what_was_fitted(kind: Any, odd: Any) -> None:
    spec, status = fitted(odd, spec_shape_of(kind)), fitted(odd, status_shape_of(kind))
    job: Manifest = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": "x", "namespace": "team", "uid": "u"},
        "spec": spec,
        "status": status,
    }
    counts = kind.counts(job, job)
    assert [pod_set["name"] for pod_set in kind.pod_sets(job)] == [*counts]
    assert all(counts)
    kind.lacks_dispatch(job)
    kind.finished(job)
    kind.succeeded(status)
    assert kind.problems(job) or kind.resource.kind == "Job"
    kind.worker_copy(job, {})
    kind.exposure(job)
    kind.resize(job, counts)
    kind.with_counts(job, counts)
    kind.autoscaled(job)
    kind.mirrored_status(job, status)
    kind.running_status(status)
    kind.suspended_status(status, active=False, now="2026-01-31T12:00:00Z")
    kind.outcome(job)
    kind.children(job)
    kind.own_jobs(job)
    kind.pod_selectors(job)
    kind.replica_size(job, "head")
    kind.named_for_deletion(job)
    kind.set_bounds(job, kind.bounds(job))
    kind.is_autoscaled(job)
    kind.scaler(job)


@pytest.mark.parametrize(
    ("name", "pod_set"),
    [("small", "small"), ("GPU_a.b", "gpu-a-b"), ("---", "pods-663aad78"), ("\u00e9", None), ("", None), ("-a-", "a")],
)
def test_a_group_gives_a_pod_set_a_name_whatever_its_own_is(name: str, pod_set: str | None) -> None:
    for job, kind in ((a_cluster(a_group(name)), KINDS["RayCluster"]), (_jobset(name), DECLARED["JobSet"])):
        made = next(reversed(kind.counts(job, job)))
        assert made == pod_set or (pod_set is None and len(made) > 3)


def test_groups_without_a_letter_get_different_names() -> None:
    names = [*KINDS["RayCluster"].counts(*[a_cluster(a_group("---"), a_group("..."))] * 2)]
    assert len({*names}) == 3


@pytest.mark.parametrize("pods", [dict.fromkeys(NAMED_OF_A_CLUSTER), NAMED_OF_A_CLUSTER], ids=["null", "typed"])
def test_what_an_api_server_takes_is_taken(pods: Manifest) -> None:
    """Null is as absent there."""
    job, kind = a_deployment(template=a_template(**pods)), DECLARED["Deployment"]
    assert kind.problems(job) == []
    [pod_set] = kind.pod_sets(kind.worker_copy(job, {"main": Placement(tolerations=({"key": "gpu"},))}))
    assert pod_set["template"]["spec"]["tolerations"][-1] == {"key": "gpu"}


@pytest.mark.parametrize(("odd", "path"), ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_field_of_another_type_is_named_with_its_path(odd: Manifest, path: str) -> None:
    [problem] = DECLARED["Deployment"].problems(a_deployment(template=a_template(**odd)))
    assert problem.reason == "InvalidPodTemplate"
    assert problem.message.startswith("spec.template: Expected ")
    assert problem.message.endswith(f" - at `$.spec.{path}`")


def _jobset(name: str) -> Manifest:
    job = a_jobset()
    job["spec"]["replicatedJobs"][0]["name"] = name
    return job


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "x",
        {"containers": {}},
        *({"containers": [], "affinity": "x"}, {"containers": [{"name": 7}]}),
        *({"containers": []} | odd for odd, _ in ODD_NAMES.values()),
    ],
    ids=repr,
)
def test_a_kind_that_types_nothing_takes_no_pods_that_the_admission_cannot_read(spec: Any) -> None:
    job = {"metadata": {"name": "x", "namespace": "team"}}
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": spec}}]
    assert [problem.reason for problem in common_problems(job, pod_sets)] == ["InvalidPodTemplate"]
