"""Replicas of several hosts: a slice says their size, so that a scale-up in part grants whole ones."""

from typing import Any

import pytest

from slicebus.decisions.commands import Create, Emit, Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.state.outbox import Dispatch
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import NOW, a_view, condition
from unit.manager.test_groups import admitted
from unit.slices.jobs.manifests import a_cluster, a_group, a_job, a_rayjob

Manifest = dict[str, Any]


def managed(job: Manifest) -> Manifest:
    metadata = {
        "name": "demo",
        "namespace": "team",
        "uid": "u1",
        "resourceVersion": "17",
        "labels": {kueue.QUEUE_NAME_LABEL: "lq"},
        "annotations": {kueue.ELASTIC_ANNOTATION: "true"},
    }
    return job | {"metadata": metadata, "spec": job["spec"] | {"suspend": False}}


def first_slice(job: Manifest) -> Manifest:
    [create] = [command for command in reconcile(a_view(managed(job)), NOW) if isinstance(command, Create)]
    return create.manifest


GROUPS = a_group("small"), a_group("Large", numOfHosts=4), a_group("pairs", numOfHosts=2)


@pytest.mark.parametrize("make", [a_cluster, a_rayjob], ids=["RayCluster", "RayJob"])
def test_a_slice_says_the_sizes_of_replicas_of_several_hosts(make: Any) -> None:
    workload = first_slice(make(*GROUPS))
    assert workload["metadata"]["annotations"][api_names.REPLICA_SIZES_ANNOTATION] == '{"large":4,"pairs":2}'
    assert Slice.from_manifest(workload).replica_sizes == {"large": 4, "pairs": 2}


@pytest.mark.parametrize(("hosts", "noted"), [(1, None), (4, '{"small":4}')])
def test_a_slice_that_waits_has_those_of_an_edited_job(hosts: int, noted: str | None) -> None:
    """With the former ones it would have quota, and its job would count as one that runs with other replicas."""
    waits = first_slice(a_cluster(a_group("small", numOfHosts=2)))
    waits["metadata"] |= {"uid": "s1", "resourceVersion": "20"}
    job = managed(a_cluster(a_group("small", numOfHosts=hosts)))
    for _ in range(2):  # What its slice says of replicas, then the counts.
        [patch] = [command for command in reconcile(a_view(job, waits), NOW) if isinstance(command, Patch)]
        assert isinstance(patch.body, dict)
        waits = merge_patch(waits, patch.body)
    assert waits["metadata"]["annotations"].get(api_names.REPLICA_SIZES_ANNOTATION) == noted
    has_quota = a_view(job, admitted(waits))
    assert has_quota.holder is not None
    assert has_quota.resized_replicas == []
    assert not [command for command in reconcile(has_quota, NOW) if isinstance(command, Emit)], "and nothing is kept"


def keeps(workload: Manifest, record: Dispatch, *, applied: int) -> Manifest:
    """The Workload of an evicted job, whose worker has reported this order."""
    annotations = {
        api_names.DISPATCHED_ANNOTATION: record.to_annotation(),
        api_names.APPLIED_ANNOTATION: str(applied),
    }
    metadata = {"annotations": annotations, "uid": "s1", "resourceVersion": "20"}
    evicted = {"conditions": [condition("Evicted", True, "Preempted")]}
    return merge_patch(workload, {"metadata": metadata, "status": evicted})


@pytest.mark.parametrize("hosts", [1, 4])
def test_a_suspended_copy_keeps_the_hosts_that_it_was_made_with(hosts: int) -> None:
    """With the edited number its job had quota for pods that the copy does not make."""
    record = Dispatch(2, "hash", cluster="east", suspended=True, since=1)
    waits = keeps(first_slice(a_cluster(a_group("small", replicas=3, numOfHosts=2))), record, applied=2)
    job = managed(a_cluster(a_group("small", replicas=5, numOfHosts=hosts)))
    job["spec"]["suspend"] = True
    job["metadata"]["annotations"][api_names.SUSPENDED_ANNOTATION] = "true"
    view = a_view(job, waits)
    assert view.desired.counts == {"head": 1, "small": 10}, "five replicas"
    assert view.desired.own == {"head": 1, "small": 5 * hosts}, "its worker is to know how many replicas the spec has"
    [patch] = [command for command in reconcile(view, NOW) if isinstance(command, Patch)]
    assert isinstance(patch.body, dict)
    assert [each["count"] for each in patch.body["spec"]["podSets"]] == [1, 10]
    withdrawn = keeps(waits, Dispatch(3, api_names.ABSENT, cluster="east"), applied=3)
    assert a_view(job, withdrawn).desired.counts == {"head": 1, "small": 5 * hosts}, "the next copy is made anew"


@pytest.mark.parametrize("job", [a_cluster(a_group("small")), a_job()], ids=["RayCluster", "Job"])
def test_a_slice_of_single_pods_says_nothing(job: Manifest) -> None:
    workload = first_slice(job)
    assert api_names.REPLICA_SIZES_ANNOTATION not in workload["metadata"]["annotations"]
    assert Slice.from_manifest(workload).replica_sizes == {}


@pytest.mark.parametrize("text", ["", "4", '{"large":0}', '{"large":"4"}', "{"])
def test_what_is_no_map_of_sizes_is_passed_over(text: str) -> None:
    workload = first_slice(a_cluster(*GROUPS))
    workload["metadata"]["annotations"][api_names.REPLICA_SIZES_ANNOTATION] = text
    assert Slice.from_manifest(workload).replica_sizes == {}
