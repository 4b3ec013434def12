"""ray.io/v1 RayService."""

import copy as copies
from typing import Any

import jsonpatch
import pytest

from slicebus.proto.messages import JobPhase
from slicebus.slices.jobs import KINDS, Exposure, Placement
from unit.slices.jobs.manifests import GATE, POD_SET, a_cluster, a_cluster_spec, a_group, a_rayservice

Manifest = dict[str, Any]
SERVICE = KINDS["RayService"]
OF_DEMO = {"slicebus.dev/rayservice": "demo"}


def test_its_pod_sets_are_those_of_one_cluster() -> None:
    service = a_rayservice(a_group("small", replicas=2), a_group("large", replicas=1, numOfHosts=4))
    assert [(each["name"], each["count"]) for each in SERVICE.pod_sets(service)] == [
        ("head", 1),
        ("small", 2),
        ("large", 4),
    ]
    assert SERVICE.counts(service, a_cluster(a_group("small", replicas=6))) == {"head": 1, "small": 6}


def test_every_pod_of_the_copy_is_gated_and_names_the_service() -> None:
    placed = {"small": Placement(node_selector={"zone": "a"}, labels={"own": "label"})}
    copy = SERVICE.worker_copy(a_rayservice(suspend=True), placed)
    spec = copy["spec"]["rayClusterConfig"]
    head, group = spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]
    for pod_set, template, more in (("head", head, {}), ("small", group, {"own": "label"})):
        assert template["spec"]["schedulingGates"] == [GATE]
        assert template["metadata"]["labels"].items() >= (OF_DEMO | more | {POD_SET: pod_set}).items()
    assert group["spec"]["nodeSelector"] == {"zone": "a"}
    assert copy["spec"].keys() == {"serveConfigV2", "rayClusterConfig"}


@pytest.mark.parametrize(
    ("status", "children"),
    [
        ({}, []),
        ({"pendingServiceStatus": {"rayClusterName": "b"}}, ["b"]),
        ({"activeServiceStatus": {"rayClusterName": "a"}, "pendingServiceStatus": {}}, ["a"]),
        (
            {"pendingServiceStatus": {"rayClusterName": "b"}, "activeServiceStatus": {"rayClusterName": "a"}},
            ["a", "b"],
        ),
        ({"activeServiceStatus": {"rayClusterName": ""}, "pendingServiceStatus": None}, []),
    ],
    ids=["new", "its first start", "it serves", "an upgrade", "suspended"],
)
def test_the_cluster_that_serves_comes_first(status: Manifest, children: list[str]) -> None:
    service = a_rayservice() | {"status": status}
    assert SERVICE.children(service) == children
    assert SERVICE.pod_selectors(service) == [OF_DEMO, *({"ray.io/cluster": name} for name in children)]


def test_a_second_head_is_that_of_an_upgrade() -> None:
    assert not SERVICE.is_upgrade({"head": 1, "small": 4})
    assert SERVICE.is_upgrade({"head": 2, "small": 4})


def test_it_runs_until_it_is_deleted() -> None:
    assert SERVICE.outcome(a_rayservice()).phase is JobPhase.RUNNING
    reported = {"serviceStatus": "Running", "numServeEndpoints": 2}
    assert SERVICE.running_status(reported) == SERVICE.mirrored_status(a_rayservice(), reported) == reported
    assert SERVICE.suspended_status(reported, active=True, now="now") == reported
    assert SERVICE.children({"spec": {}, "status": SERVICE.suspended_status(reported, active=False, now="now")}) == []


def test_its_user_may_shape_the_service_of_its_applications() -> None:
    assert SERVICE.exposure(a_rayservice()) == Exposure(service_types=frozenset({"ClusterIP"}))
    service = {
        "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
        "spec": {"type": "LoadBalancer", "externalIPs": ["192.0.2.1"]},
    }
    assert SERVICE.exposure(a_rayservice(serveService=service)) == Exposure(
        service_types=frozenset({"ClusterIP", "LoadBalancer"}),
        external_ips=True,
        labels={"a": "1"},
        annotations={"b": "2"},
    )


def test_only_the_range_of_its_groups_travels() -> None:
    """KubeRay would prepare another cluster for an idle time or another mode."""
    cluster = a_cluster(a_group("a", minReplicas=1, idleTimeoutSeconds=30), enableInTreeAutoscaling=True)["spec"]
    service = a_rayservice(cluster=cluster | {"autoscalerOptions": {"idleTimeoutSeconds": 5}})
    bounds = SERVICE.bounds(service)
    assert bounds["groups"]["a"]["minReplicas"] == 1
    assert "idleTimeoutSeconds" not in bounds["groups"]["a"]
    assert "options" not in bounds
    other = a_rayservice(a_group("a", minReplicas=0))
    assert {change["path"].partition("/workerGroupSpecs")[0] for change in SERVICE.set_bounds(other, bounds)} == {
        "/spec/rayClusterConfig"
    }


def edited(service: Manifest, *patch: Manifest) -> Manifest:
    changed: Manifest = jsonpatch.apply_patch(service, [{"op": "add"} | change for change in patch])
    return changed


AT_GROUP = "/spec/rayClusterConfig/workerGroupSpecs/0"
NEXT_IMAGE = {"path": f"{AT_GROUP}/template/spec/containers/0/image", "value": "ray:next"}
NEXT_APPLICATIONS = {"path": "/spec/serveConfigV2", "value": "applications: [next]"}


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (NEXT_APPLICATIONS, {"serveConfigV2"}),
        (NEXT_IMAGE, {"rayClusterConfig"}),
        ({"path": "/spec/rayClusterConfig/headGroupSpec/rayStartParams", "value": {"a": "b"}}, {"rayClusterConfig"}),
        ({"path": f"{AT_GROUP}/idleTimeoutSeconds", "value": 5}, {"rayClusterConfig"}),
        ({"path": "/spec/upgradeStrategy", "value": {"type": "None"}}, {"upgradeStrategy"}),
        *(({"path": f"{AT_GROUP}/{name}", "value": 7}, set()) for name in ("replicas", "minReplicas", "maxReplicas")),
        ({"path": f"{AT_GROUP}/scaleStrategy", "value": {"workersToDelete": ["a"]}}, set()),
        ({"path": "/spec/suspend", "value": True}, set()),
        ({"path": "/spec/managedBy", "value": "somebody"}, set()),
    ],
    ids=lambda value: value["path"].partition("spec/")[2] if isinstance(value, dict) else "",
)
def test_the_fields_that_an_edit_changes(change: Manifest, fields: set[str]) -> None:
    before, after = (SERVICE.bounds(each)["fields"] for each in (a_rayservice(), edited(a_rayservice(), change)))
    assert {name for name in before | after if before.get(name) != after.get(name)} == fields
    assert "applications" not in str(after), "a serve config may hold secrets"


SIZES = {"replicas": 5, "minReplicas": 0, "maxReplicas": 6, "scaleStrategy": {"workersToDelete": ["a"]}}


def on_the_worker(*names: str, **spec: Any) -> Manifest:
    """A copy that somebody has resized there."""
    service = SERVICE.worker_copy(a_rayservice(*(a_group(name) for name in names), **spec), {})
    for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        group |= SIZES
    return service


def test_it_takes_over_the_fields_but_the_size() -> None:
    managers = edited(a_rayservice(a_group("b"), a_group("a")), NEXT_IMAGE, NEXT_APPLICATIONS)
    made, job = SERVICE.worker_copy(managers, {}), on_the_worker("a", "b", serveService={"spec": {}})
    before = copies.deepcopy(job)
    patch = SERVICE.take_over(job, made, {"rayClusterConfig", "serveService"})
    assert job == before
    after = jsonpatch.apply_patch(job, patch)
    [b, a] = after["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert (b["groupName"], b["template"]["spec"]["containers"][0]["image"]) == ("b", "ray:next")
    assert [{name: group[name] for name in SIZES} for group in (a, b)] == [SIZES, SIZES]
    assert b["template"]["spec"]["schedulingGates"] == [GATE]
    assert after["spec"].keys() == {"serveConfigV2", "rayClusterConfig"}, "what the manager's has no more is removed"
    assert after["spec"]["serveConfigV2"] == "applications: []", "it was not asked for"
    assert SERVICE.take_over(after, made, {"rayClusterConfig", "serveService"}) == []


def test_a_group_that_somebody_has_renamed_on_the_worker_comes_back_with_the_next_edit() -> None:
    made = SERVICE.worker_copy(a_rayservice(a_group("a"), a_group("b")), {})
    patch = SERVICE.take_over(on_the_worker("a", "x"), made, {"rayClusterConfig"})
    [a, b] = jsonpatch.apply_patch(on_the_worker("a", "x"), patch)["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert (a["replicas"], b["groupName"], b["replicas"]) == (5, "b", 2)


@pytest.mark.parametrize(
    ("autoscales", "suspended", "is_resized"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_its_next_clusters_begin_at_the_size_that_its_user_sets(
    autoscales: bool, suspended: bool, is_resized: bool
) -> None:
    cluster = a_cluster_spec(a_group("a", replicas=1), enableInTreeAutoscaling=autoscales)
    service = a_rayservice(cluster=cluster, suspend=suspended)
    patch = SERVICE.resize(service, {"head": 1, "a": 3})
    assert bool(patch) is is_resized
    replicas = jsonpatch.apply_patch(service, patch)["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"]
    assert replicas == (3 if is_resized else 1)


@pytest.mark.parametrize("name", ["Job", "RayCluster", "RayJob"])
def test_other_kinds_take_nothing_over(name: str) -> None:
    assert KINDS[name].take_over({}, {}, {"spec"}) == []
