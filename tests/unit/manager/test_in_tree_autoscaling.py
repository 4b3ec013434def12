"""A job whose annotation turns the Ray autoscaler on in the worker's copy only, where slicebus admits."""

from typing import Any

import pytest

from slicebus.decisions.commands import Create, Emit, Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.order.sent_workloads import sent_workload
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import NOW, a_view
from unit.slices.jobs.manifests import a_cluster, a_cluster_spec, a_group, a_rayjob, a_rayservice

Manifest = dict[str, Any]
KINDS = pytest.mark.parametrize("make", [a_cluster, a_rayjob], ids=["RayCluster", "RayJob"])


def queued(job: Manifest, **annotations: str) -> Manifest:
    metadata = {
        "name": "demo",
        "namespace": "team",
        "uid": "u1",
        "resourceVersion": "17",
        "labels": {kueue.QUEUE_NAME_LABEL: "lq"},
        "annotations": {kueue.ELASTIC_ANNOTATION: "true", **annotations},
    }
    return job | {"metadata": metadata, "spec": job["spec"] | {"suspend": False}}


def autoscaled(job: Manifest) -> Manifest:
    return queued(job, **{api_names.IN_TREE_AUTOSCALING_ANNOTATION: "true"})


def first_slice(job: Manifest) -> Manifest:
    [create] = [command for command in reconcile(a_view(job), NOW) if isinstance(command, Create)]
    return create.manifest


def refusal(job: Manifest) -> str:
    [event] = [command for command in reconcile(a_view(job), NOW) if isinstance(command, Emit)]
    return event.note


def head_containers(workload: Manifest) -> list[str]:
    head = workload["spec"]["podSets"][0]["template"]["spec"]
    return [container["name"] for container in head["containers"]]


@KINDS
def test_the_head_is_charged_for_the_autoscaler_beside_it(make: Any) -> None:
    assert head_containers(first_slice(queued(make()))) == ["main"]
    assert head_containers(first_slice(autoscaled(make()))) == ["main", "autoscaler"]


@KINDS
def test_a_slice_without_quota_takes_over_an_autoscaler_that_is_turned_on(make: Any) -> None:
    waiting = first_slice(queued(make())) | {"status": {}}
    waiting["metadata"] |= {"resourceVersion": "1", "uid": "uid-w1", "creationTimestamp": NOW}
    [patch] = reconcile(a_view(autoscaled(make()), waiting), NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert head_containers(patch.body) == ["main", "autoscaler"]


def sent(job: Manifest, workload: Manifest, *, beside_kueue: bool = True) -> Manifest:
    """What the worker gets of a slice that has just been made."""
    workload["metadata"] |= {"resourceVersion": "1", "uid": "uid-w1", "creationTimestamp": NOW}
    view = a_view(job, workload, checks=frozenset() if beside_kueue else None)
    return sent_workload(view, view.slices[0])


@pytest.mark.parametrize("make", [a_cluster, a_rayjob, a_rayservice], ids=["RayCluster", "RayJob", "RayService"])
@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, {"cpu": "500m", "memory": "512Mi"}),
        ({"autoscalerOptions": {"resources": {"requests": {"cpu": "2"}}}}, {"cpu": "2"}),
    ],
    ids=["as usual", "of the job"],
)
def test_the_worker_of_a_kueues_slice_knows_the_autoscaler_that_the_kueue_does_not(
    make: Any, options: Manifest, requests: Manifest
) -> None:
    job = make()
    for field in ("rayClusterSpec", "rayClusterConfig"):
        job["spec"].get(field, {}).update(options)
    job["spec"] |= options if make is a_cluster else {}
    slice_of_kueue = first_slice(queued(job))
    head, *others = sent(autoscaled(job), slice_of_kueue)["spec"]["podSets"]
    own, *others_own = slice_of_kueue["spec"]["podSets"]
    [main, autoscaler] = head["template"]["spec"]["containers"]
    assert ([main], others) == (own["template"]["spec"]["containers"], others_own)
    assert (autoscaler["name"], autoscaler["resources"]) == ("autoscaler", {"requests": requests})


@KINDS
def test_the_worker_gets_nothing_else_that_its_slice_is_not_charged_for(make: Any) -> None:
    slice = first_slice(queued(make()))
    edited = make()
    spec = edited["spec"].get("rayClusterSpec", edited["spec"])
    spec["headGroupSpec"]["template"]["spec"]["containers"].append({"name": "more", "image": "i"})
    assert head_containers(sent(autoscaled(edited), slice)) == ["main", "autoscaler"], "what was edited since"
    assert head_containers(sent(queued(make()), slice)) == ["main"]
    assert head_containers(sent(autoscaled(make()), slice, beside_kueue=False)) == ["main"], "it waits for its slice"


@KINDS
def test_without_a_kueue_the_slice_itself_has_it(make: Any) -> None:
    job = autoscaled(make())
    assert head_containers(sent(job, first_slice(job), beside_kueue=False)) == ["main", "autoscaler"]


@pytest.mark.parametrize(
    "job",
    [
        a_cluster(a_group(suspend=True)),
        a_rayjob(cluster=a_cluster_spec(a_group(suspend=True))),
    ],
    ids=["RayCluster", "RayJob"],
)
def test_a_worker_would_refuse_what_the_autoscaler_forbids(job: Manifest) -> None:
    assert first_slice(queued(job))
    assert refusal(autoscaled(job)) == "worker group small cannot be suspended with Autoscaler enabled"


def test_an_autoscaled_group_needs_no_bounds() -> None:
    job = a_cluster(a_group(minReplicas=None, maxReplicas=None))
    assert first_slice(autoscaled(job))


def test_a_rayjob_on_anothers_cluster_is_refused_with_the_annotation_too() -> None:
    job = a_rayjob(clusterSelector={"ray.io/cluster": "shared"}, rayClusterSpec=None)
    assert "clusterSelector" in refusal(autoscaled(job))
