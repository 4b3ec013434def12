"""The bounds of a Ray cluster's groups and of its autoscaler, and how they travel to a cluster that runs."""

import copy
from typing import Any

import jsonpatch
import pytest

from slicebus.slices.jobs import KINDS
from unit.slices.jobs.manifests import a_cluster, a_group, a_job, a_rayjob

Manifest = dict[str, Any]
RAY, RAYJOB, JOB = KINDS["RayCluster"], KINDS["RayJob"], KINDS["Job"]
OPTIONS = {"idleTimeoutSeconds": 60, "upscalingMode": "Default", "image": "ray"}


def autoscaled(*groups: Manifest, options: Manifest | None = None, **fields: Any) -> Manifest:
    given = {"autoscalerOptions": options} if options is not None else {}
    return a_cluster(*(groups or (a_group("a"), a_group("b"))), enableInTreeAutoscaling=True, **given, **fields)


def test_they_are_the_groups_and_the_autoscalers() -> None:
    cluster = autoscaled(
        a_group("a", minReplicas=1, maxReplicas=5, idleTimeoutSeconds=30), a_group("b", minReplicas=0), options=OPTIONS
    )
    found = RAY.bounds(cluster)
    assert found["groups"]["a"] == {"minReplicas": 1, "maxReplicas": 5, "idleTimeoutSeconds": 30}
    assert found["options"] == {"idleTimeoutSeconds": 60, "upscalingMode": "Default"}
    assert RAY.bounds(autoscaled(a_group("a", suspend=False)))["groups"]["a"].keys() == {"minReplicas", "maxReplicas"}


def test_without_an_autoscaler_they_are_those_of_the_groups() -> None:
    cluster = a_cluster(a_group("a", maxReplicas=5, idleTimeoutSeconds=30), a_group("b", suspend=True))
    of_a, of_b = {"minReplicas": 1, "maxReplicas": 5}, {"minReplicas": 1, "maxReplicas": 8}
    assert RAY.bounds(cluster) == {"groups": {"a": of_a | {"suspend": False}, "b": of_b | {"suspend": True}}}
    cluster["spec"]["upgradeStrategy"] = {"type": "Recreate"}
    assert RAY.bounds(cluster) == {"groups": {"a": of_a, "b": of_b}}
    assert RAY.bounds({"spec": {"headGroupSpec": cluster["spec"]["headGroupSpec"]}}) == {}


def test_what_would_make_the_cluster_anew_stays() -> None:
    cluster = autoscaled(
        a_group("a", minReplicas=1, maxReplicas=5, idleTimeoutSeconds=30),
        options=OPTIONS,
        upgradeStrategy={"type": "Recreate"},
    )
    assert RAY.bounds(cluster) == {"groups": {"a": {"minReplicas": 1, "maxReplicas": 5}}}
    assert RAY.set_bounds(autoscaled(a_group("a", minReplicas=1, maxReplicas=5)), RAY.bounds(cluster)) == []


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (autoscaled(a_group("a", maxReplicas=5)), autoscaled(a_group("a", maxReplicas=9))),
        (autoscaled(a_group("a", minReplicas=0)), autoscaled(a_group("a", minReplicas=2, idleTimeoutSeconds=5))),
        (autoscaled(a_group("a", idleTimeoutSeconds=5)), autoscaled(a_group("a"))),
        (autoscaled(), autoscaled(options={"upscalingMode": "Aggressive"})),
        (autoscaled(options=OPTIONS), autoscaled(options={"idleTimeoutSeconds": 5})),
        (autoscaled(a_group("b"), a_group("a")), autoscaled(a_group("a", maxReplicas=3), a_group("b"))),
        (a_cluster(a_group("a")), a_cluster(a_group("a", maxReplicas=20))),
        (a_cluster(a_group("a")), a_cluster(a_group("a", suspend=True))),
        (a_cluster(a_group("a", suspend=True)), a_cluster(a_group("a"))),
    ],
    ids=[
        *("more", "another time", "without a time", "the first option", "other options", "groups in another order"),
        *("more without an autoscaler", "a suspended group", "a resumed one"),
    ],
)
def test_a_cluster_that_gets_them_has_them(present: Manifest, wanted: Manifest) -> None:
    bounds, before = RAY.bounds(wanted), copy.deepcopy(present)
    patch = RAY.set_bounds(present, bounds)
    assert present == before
    changed = jsonpatch.apply_patch(present, patch)
    assert RAY.bounds(changed) == bounds
    assert RAY.set_bounds(changed, bounds) == []
    assert [group["replicas"] for group in changed["spec"]["workerGroupSpecs"]] == [
        group["replicas"] for group in present["spec"]["workerGroupSpecs"]
    ]


def test_each_group_is_guarded_by_its_name() -> None:
    wanted = RAY.bounds(autoscaled(a_group("a"), a_group("b", maxReplicas=3)))
    test, change = RAY.set_bounds(autoscaled(), wanted)
    assert test == {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "b"}
    assert change == {"op": "add", "path": "/spec/workerGroupSpecs/1/maxReplicas", "value": 3}


def test_a_group_that_the_worker_has_alone_is_left() -> None:
    wanted = RAY.bounds(autoscaled(a_group("a")))
    assert RAY.set_bounds(autoscaled(a_group("a"), a_group("own", maxReplicas=2)), wanted) == []


def test_a_cluster_whose_autoscaler_was_turned_on_or_off_since_gets_only_its_range() -> None:
    """It runs as it was made: KubeRay takes no suspended group beside the autoscaler."""
    scaled, alone = autoscaled(options=OPTIONS), a_cluster(a_group("a"), a_group("b"))
    for present, wanted in (
        (scaled, a_cluster(a_group("a", suspend=True, maxReplicas=7), a_group("b"))),
        (alone, autoscaled(a_group("a", maxReplicas=7, idleTimeoutSeconds=5), a_group("b"), options=OPTIONS)),
    ):
        changed = jsonpatch.apply_patch(present, RAY.set_bounds(present, RAY.bounds(wanted)))
        assert changed["spec"]["workerGroupSpecs"][0] == present["spec"]["workerGroupSpecs"][0] | {"maxReplicas": 7}
        assert changed["spec"] | {"workerGroupSpecs": []} == present["spec"] | {"workerGroupSpecs": []}


def test_one_that_was_made_to_be_recreated_gets_no_more_either() -> None:
    """The strategy is a field of its next start, and an idle time of this one: KubeRay would end all of its pods."""
    present = autoscaled(a_group("a", minReplicas=0), upgradeStrategy={"type": "Recreate"})
    wanted = autoscaled(a_group("a", minReplicas=1, idleTimeoutSeconds=5), options=OPTIONS)
    changed = jsonpatch.apply_patch(present, RAY.set_bounds(present, RAY.bounds(wanted)))
    assert changed["spec"] == autoscaled(a_group("a", minReplicas=1), upgradeStrategy={"type": "Recreate"})["spec"]


def test_a_cluster_follows_by_its_replicas_whatever_hosts_these_have_now() -> None:
    runs, edited = a_cluster(a_group("a", replicas=2)), a_cluster(a_group("a", replicas=2, numOfHosts=4))
    assert RAY.follow(runs, edited) == []
    [patch] = RAY.follow(runs, a_cluster(a_group("a", replicas=3, numOfHosts=4)))
    assert jsonpatch.apply_patch(runs, patch)["spec"]["workerGroupSpecs"][0]["replicas"] == 3


def test_those_of_a_rayjob_are_its_clusters() -> None:
    job = a_rayjob()
    job["spec"]["rayClusterSpec"] |= {"enableInTreeAutoscaling": True}
    bounds = copy.deepcopy(RAYJOB.bounds(job))
    for group in bounds["groups"].values():
        group["maxReplicas"] = 99
    child = a_cluster() | {"spec": job["spec"]["rayClusterSpec"]}
    for target, at in ((job, "/spec/rayClusterSpec"), (child, "/spec")):
        patch = RAYJOB.set_bounds(target, bounds)
        assert patch
        assert all(each["path"].startswith(f"{at}/workerGroupSpecs/") for each in patch)


def test_a_job_has_none() -> None:
    assert JOB.bounds(a_job()) == {}
    assert JOB.set_bounds(a_job(), {"groups": {}}) == []
