"""A job whose annotation turns the Ray autoscaler on in the worker's copy only, where slicebus admits."""

from typing import Any

import pytest

from slicebus.decisions.commands import Create, Emit, Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import NOW, a_view
from unit.slices.jobs.manifests import a_cluster, a_cluster_spec, a_group, a_rayjob

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
