"""What was seen of pods counts no more when their quota was given back, nor on another cluster."""

from typing import Any

import pytest

from slicebus.decisions.commands import Patch
from slicebus.kube.resources import JOB_RESOURCES, PODS, WORKLOADS
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import charges
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.manager.objects import EAST, NOW, WEST, a_view, a_workload, condition
from unit.manager.objects import a_job as a_job_of
from unit.manager.test_charges import after, reported, taken
from unit.manager.test_evictions import evicted, forgetting
from unit.properties.world import started
from unit.slices.jobs.manifests import a_job, a_template

Manifest = dict[str, Any]
JOBS = JOB_RESOURCES["Job"]
CPU = FlavorName("spot"), "cpu"


def recorded(workload: Manifest, cluster: ClusterName = EAST) -> Manifest:
    """The Workload with a record of pods of 30 cores."""
    observed = Observed(cluster, {"main": ObservedPods(requests={"cpu": 30_000})})
    workload["metadata"]["annotations"][api_names.OBSERVED_ANNOTATION] = observed.to_annotation()
    return workload


def given_back() -> Manifest:
    """A Workload after the write that gives its quota back."""
    workload = recorded(evicted(1, version=4, applied=4))
    assert Slice.from_manifest(workload).usage == {CPU: 30_000}
    [patch] = reconcile(a_view(forgetting(), workload, published=4), NOW)
    assert isinstance(patch, Patch)
    return merge_patch(workload, {"status": patch.body["status"]})  # type: ignore[call-overload]


def admitted_again() -> Manifest:
    """The same one with quota for one pod of a core; its record is still there."""
    held = a_workload("w1", 1, admitted=1, dispatched=5, applied=5)
    annotations = given_back()["metadata"]["annotations"] | held["metadata"]["annotations"]
    kept = [entry for entry in given_back()["status"]["conditions"] if entry["type"] == "slicebus.dev/ChargedMore"]
    status = held["status"] | {"conditions": [*held["status"]["conditions"], *kept]}
    return held | {"metadata": held["metadata"] | {"annotations": annotations}, "status": status}


def test_the_write_that_gives_quota_back_ends_the_record() -> None:
    slice = Slice.from_manifest(given_back())
    assert (slice.admission, slice.observed) == (None, None)
    assert slice.pod_sets[0].charged == {"cpu": 1000}
    shown = slice.conditions["slicebus.dev/ChargedMore"]
    assert (shown["status"], shown["reason"]) == ("False", "QuotaGivenBack")


def test_without_a_record_nothing_is_said_of_one() -> None:
    [patch] = reconcile(a_view(forgetting(), evicted(1, version=4, applied=4), published=4), NOW)
    assert isinstance(patch, Patch)
    assert "ChargedMore" not in str(patch.body)


FORMER = {
    "evicted": recorded(evicted(1, version=4, applied=4) | {"status": {"conditions": [condition("Evicted")]}}),
    "without another": recorded(a_workload()),
}


@pytest.mark.parametrize("workload", FORMER.values(), ids=FORMER.keys())
def test_a_record_that_an_earlier_version_left_on_a_slice_that_waits_ends(workload: Manifest) -> None:
    job = forgetting(suspended=workload is FORMER["evicted"])
    assert Slice.from_manifest(workload).pod_sets[0].charged == {"cpu": 30_000}
    view = a_view(job, workload, published=4)
    [patch] = reconcile(view, NOW)
    assert isinstance(patch, Patch)
    written = merge_patch(workload, {"status": patch.body["status"]})  # type: ignore[call-overload]
    assert Slice.from_manifest(written).pod_sets[0].charged == {"cpu": 1000}
    assert reconcile(a_view(job, written, published=4), NOW) == []


def test_what_a_slice_that_waits_knows_of_pods_that_run_stays() -> None:
    held, larger = a_workload("w1", 1, admitted=1, dispatched=5, applied=5), a_workload("w2", 3, replaces="w1")
    view = a_view(a_job_of(3), held, recorded(larger))
    assert charges.end_former(view, now=NOW) == []


@pytest.mark.parametrize(("cores", "charged"), [("1", 1000), ("3", 3000), ("30", 30_000)])
def test_the_next_pods_are_charged_for_what_they_request(cores: str, charged: int) -> None:
    workload = admitted_again()
    assert Slice.from_manifest(workload).usage == {CPU: 1000}
    view = a_view(forgetting(suspended=False), workload)
    slice, conditions = after(view, taken(view, reported(1, version=5, cpu=cores)))
    assert slice.usage == {CPU: charged}
    assert conditions["slicebus.dev/ChargedMore"]["status"] == str(charged > 1000)


@pytest.mark.parametrize(("cluster", "charged"), [(EAST, 60_000), (WEST, 2000)])
def test_a_record_of_another_cluster_counts_for_nothing(cluster: ClusterName, charged: int) -> None:
    workload = recorded(a_workload("w1", 2, admitted=2, dispatched=1, applied=1), cluster)
    workload["status"]["clusterName"] = EAST
    assert Slice.from_manifest(workload).usage == {CPU: charged}


@pytest.mark.parametrize("cores", ["30", "60"], ids=["with room for them", "more than the quota has"])
def test_a_job_whose_pods_were_resized_is_resumed_by_its_template(cores: str) -> None:
    world, _ = started(a_job(suspend=False, parallelism=2, template=a_template("1", restartPolicy="Never")))

    def suspend(value: bool) -> None:
        job = world.here.get(JOBS, "demo")
        assert job is not None
        world.here.write(JOBS, job, job | {"spec": job["spec"] | {"suspend": value}})
        world.go_on()

    def slice() -> Slice:
        [workload] = world.here.all(WORKLOADS)
        return Slice.from_manifest(workload)

    world.go_on()
    for pod in world.there.all(PODS):
        [container] = pod["spec"]["containers"]
        spec = pod["spec"] | {"containers": [container | {"resources": {"requests": {"cpu": cores}}}]}
        world.there.write(PODS, pod, pod | {"spec": spec})
    world.go_on()
    assert [*slice().usage.values()] == [int(cores) * 2000]
    suspend(True)
    assert slice().admission is None
    suspend(False)
    assert [*slice().admitted_usage.values()] == [*slice().usage.values()] == [2000]
    assert world.dead == []
