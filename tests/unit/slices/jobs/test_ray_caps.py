"""What Ray's autoscaler is kept to while pods are taken back from a cluster, and what it gets back."""

import copy
from typing import Any

import pytest

from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from unit.slices.jobs.manifests import a_cluster, a_group

Manifest = dict[str, Any]
RAY = KINDS["RayCluster"]
CAPPED = api_names.CAPPED_ANNOTATION


def a_grid(*, autoscaled: bool = True, **group: Any) -> Manifest:
    """A cluster with eight workers, which may have ten."""
    fields = {"replicas": 8, "minReplicas": 1, "maxReplicas": 10} | group
    return a_cluster(a_group(**fields), a_group("other", **fields), enableInTreeAutoscaling=autoscaled)


def capped(cluster: Manifest, size: int | None, *, other: int = 8) -> Manifest:
    """The cluster after the patch."""
    patch = RAY.cap(cluster, {"head": 1, "small": size, "other": other} if size is not None else None)
    after: Manifest = json_patch(copy.deepcopy(cluster), patch)
    return after


def sizes(cluster: Manifest) -> tuple[Any, Any]:
    group = cluster["spec"]["workerGroupSpecs"][0]
    return group["replicas"], group.get("maxReplicas")


def test_the_cap_comes_with_what_its_user_had_set() -> None:
    cluster = capped(a_grid(), 4)
    assert (sizes(cluster), RAY.is_capped(cluster)) == ((8, 4), True)
    assert cluster["spec"]["workerGroupSpecs"][1]["maxReplicas"] == 10, "that one loses none"
    assert RAY.counts(cluster, cluster)["small"] == 4
    assert RAY.cap(cluster, {"head": 1, "small": 4, "other": 8}) == []
    [guard, *_] = RAY.cap(a_grid(), {"small": 4})
    assert guard == {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": "small"}


STEPS: dict[str, tuple[list[int | None], tuple[int, int | None], bool]] = {
    "more are taken": ([4, 2], (8, 2), True),
    "some come back": ([4, 2, 6], (6, 6), True),
    "all come back": ([4, 2, 8], (8, 10), False),
    "more than all": ([4, 9], (9, 10), False),
    "nobody takes any more": ([4, None], (8, 10), False),
    "all are taken": ([0], (8, 0), True),
    "as many as it has": ([8], (8, 10), False),
    "more than it has": ([9], (8, 10), False),
}


@pytest.mark.parametrize(("steps", "expected", "is_capped"), STEPS.values(), ids=STEPS.keys())
def test_one_after_the_other(steps: list[int | None], expected: tuple[int, int | None], is_capped: bool) -> None:
    cluster = a_grid()
    for size in steps:
        cluster = capped(cluster, size)
    assert (sizes(cluster), RAY.is_capped(cluster)) == (expected, is_capped)
    assert (CAPPED in cluster["metadata"].get("annotations", {})) is is_capped


def test_replicas_follow_what_comes_back() -> None:
    """Ray's autoscaler has lowered them by then, and would ask for more only later."""
    cluster = capped(a_grid(), 4)
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 4
    assert sizes(capped(cluster, 6)) == (6, 6)
    assert sizes(capped(cluster, 8)) == (8, 10)
    assert sizes(capped(cluster, None)) == (4, 10)


def test_what_its_user_sets_meanwhile_stands() -> None:
    cluster = capped(a_grid(), 4)
    cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 6
    assert not RAY.is_capped(cluster)
    assert sizes(capped(cluster, None)) == (8, 6)
    assert CAPPED not in capped(cluster, None)["metadata"]["annotations"]


def bounds(cluster: Manifest) -> tuple[Any, Any]:
    group = cluster["spec"]["workerGroupSpecs"][0]
    return group.get("minReplicas"), group.get("maxReplicas")


def test_a_least_size_above_the_cap_goes_down_with_it_and_comes_back() -> None:
    """KubeRay refuses a group whose least size is above its greatest one."""
    cluster = capped(a_grid(minReplicas=6), 4)
    assert bounds(cluster) == (4, 4)
    assert bounds(capped(cluster, 5)) == (5, 5)
    assert bounds(capped(cluster, 8)) == bounds(capped(cluster, None)) == (6, 10)


@pytest.mark.parametrize("least", [0, 2, 6, None])
def test_a_least_size_that_its_user_sets_meanwhile_is_kept_for_later(least: int | None) -> None:
    cluster = capped(a_grid(), 4)
    group = cluster["spec"]["workerGroupSpecs"][0]
    group |= {"minReplicas": least}
    if least is None:
        del group["minReplicas"]
    assert RAY.is_capped(cluster)
    again = capped(cluster, 4)
    assert bounds(again) == (min(least, 4) if least is not None else None, 4)
    assert bounds(capped(again, None)) == (least, 10)


def test_pods_are_ended_although_the_least_size_was_raised() -> None:
    cluster = capped(a_grid(), 4)
    cluster["spec"]["workerGroupSpecs"][0]["minReplicas"] = 7
    after = json_patch(copy.deepcopy(cluster), RAY.enforce_cap(cluster, {"small": ["a"]}))
    assert (sizes(after), bounds(after)) == ((4, 4), (4, 4))
    assert bounds(capped(after, None)) == (7, 10)


@pytest.mark.parametrize(
    ("limits", "while_capped"),
    [
        ({"minReplicas": 2, "maxReplicas": 20}, (2, 4)),
        ({"minReplicas": 6, "maxReplicas": 20}, (4, 4)),
        ({"maxReplicas": 20}, (None, 4)),
        ({"minReplicas": 1}, (1, 4)),
        ({"minReplicas": 1, "maxReplicas": 3}, (1, 4)),
    ],
)
def test_bounds_from_the_manager_wait_for_the_end_of_the_cap(limits: Manifest, while_capped: tuple[Any, Any]) -> None:
    groups = {"small": limits, "other": {"minReplicas": 3, "maxReplicas": 30}}
    cluster = capped(a_grid(), 4)
    after = json_patch(copy.deepcopy(cluster), RAY.set_bounds(cluster, {"groups": groups}))
    assert (bounds(after), RAY.is_capped(after)) == (while_capped, True)
    assert after["spec"]["workerGroupSpecs"][1]["maxReplicas"] == 30, "it has no cap"
    assert RAY.set_bounds(after, {"groups": groups}) == RAY.cap(after, {"head": 1, "small": 4, "other": 8}) == []
    assert bounds(capped(after, None)) == (limits.get("minReplicas"), limits.get("maxReplicas"))


def test_without_a_bound_there_is_none_again() -> None:
    cluster = a_grid()
    del cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"]
    assert sizes(capped(cluster, 4)) == (8, 4)
    assert sizes(capped(capped(cluster, 4), 8)) == (8, None)


def test_replicas_are_whole() -> None:
    cluster = a_grid(numOfHosts=2)
    assert sizes(capped(cluster, 8, other=16)) == (8, 4)


def test_without_the_autoscaler_there_is_no_cap() -> None:
    cluster = a_grid(autoscaled=False)
    assert RAY.cap(cluster, {"small": 4}) == []
    assert not RAY.is_capped(cluster)


def test_it_is_enforced_as_ray_would_write_it() -> None:
    cluster = capped(a_grid(), 4)
    names = {"small": ["a", "b"], "other": ["c"]}
    after = json_patch(copy.deepcopy(cluster), RAY.enforce_cap(cluster, names))
    small, other = after["spec"]["workerGroupSpecs"]
    assert (small["replicas"], small["scaleStrategy"]) == (4, {"workersToDelete": ["a", "b"]})
    assert (other["replicas"], other.get("scaleStrategy")) == (8, None), "it has no cap"
    assert RAY.enforce_cap(cluster, {}) == []
    assert RAY.enforce_cap(after, names) == [], "once, however long the pods take to go"


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_of_a_job_its_present_cluster_is_capped(kind: str) -> None:
    field = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}[kind]
    cluster = a_grid()
    job = cluster | {"kind": kind, "spec": {field: cluster["spec"]}}
    assert KINDS[kind].cap(job, {"small": 4}) == []
    assert KINDS[kind].cap(cluster, {"small": 4}) == RAY.cap(cluster, {"small": 4}) != []
    assert KINDS[kind].least(job) == {"small": 1, "other": 1}
    raised = {"groups": {"small": {"minReplicas": 1, "maxReplicas": 20}}}
    child = capped(cluster, 4)
    assert KINDS[kind].set_bounds(child, raised) == RAY.set_bounds(child, raised)
    assert bounds(json_patch(copy.deepcopy(child), KINDS[kind].set_bounds(child, raised))) == (1, 4)
