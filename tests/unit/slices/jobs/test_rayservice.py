"""ray.io/v1 RayService."""

from typing import Any

import pytest

from slicebus.proto.messages import JobPhase
from slicebus.slices.jobs import KINDS, Exposure, Placement
from unit.slices.jobs.manifests import GATE, POD_SET, a_cluster, a_group, a_rayservice

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
