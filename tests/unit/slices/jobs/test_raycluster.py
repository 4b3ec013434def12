"""ray.io/v1 RayCluster."""

import copy
from typing import Any

import pytest

from slicebus.proto.messages import JobPhase
from slicebus.slices.jobs import KINDS, Outcome, Placement
from slicebus.slices.workload.pod_requests import pod_requests
from slicebus.slices.workload.pod_sets import PodSet
from unit.slices.jobs.manifests import GATE, POD_SET, a_cluster, a_group, a_template

RAY = KINDS["RayCluster"]
PATIENCE = {"name": "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "value": "86400"}

REPLICAS: dict[str, tuple[dict[str, Any], int]] = {
    "as said": ({"replicas": 3}, 3),
    "none": ({"replicas": 0, "minReplicas": 0}, 0),
    "below the minimum": ({"replicas": 1, "minReplicas": 2}, 2),
    "above the maximum": ({"replicas": 9, "maxReplicas": 4}, 4),
    "unset is the minimum": ({"replicas": None, "minReplicas": 2}, 2),
    "unset without a minimum": ({"replicas": None, "minReplicas": None}, 0),
    "below nothing": ({"replicas": -3, "minReplicas": None}, 0),
    "without a maximum": ({"replicas": 900, "maxReplicas": None}, 900),
    "a maximum of none": ({"replicas": 2, "minReplicas": 0, "maxReplicas": 0}, 0),
    "suspended": ({"replicas": 3, "suspend": True}, 0),
    "of several hosts": ({"replicas": 3, "numOfHosts": 4}, 12),
    "of several hosts, clamped first": ({"replicas": 9, "maxReplicas": 2, "numOfHosts": 4}, 8),
    "hosts unset": ({"replicas": 3, "numOfHosts": None}, 3),
    "fewer hosts than none": ({"replicas": 3, "numOfHosts": -2}, 3),
    "a minimum below nothing": ({"replicas": -5, "minReplicas": -5}, 0),
}


@pytest.mark.parametrize(("group", "pods"), REPLICAS.values(), ids=REPLICAS.keys())
def test_a_group_counts_the_pods_that_kuberay_will_make(group: dict[str, Any], pods: int) -> None:
    cluster = a_cluster(a_group(**group))
    assert RAY.counts(cluster, cluster) == {"head": 1, "small": pods}
    assert [(pod_set["name"], pod_set["count"]) for pod_set in RAY.pod_sets(cluster)] == [("head", 1), ("small", pods)]


@pytest.mark.parametrize("hosts", [0, -2])
def test_a_group_whose_replicas_have_no_host_is_refused(hosts: int) -> None:
    """KubeRay's definition has no least number for them, and a Workload takes no negative one."""
    [problem] = RAY.problems(a_cluster(a_group(numOfHosts=hosts)))
    assert problem.message == f"worker group small has numOfHosts {hosts}, and no pod would be made of it"


def test_the_head_comes_first_and_the_groups_in_their_order() -> None:
    cluster = a_cluster(a_group("b"), a_group("a", template=a_template("4")))
    assert [pod_set["name"] for pod_set in RAY.pod_sets(cluster)] == ["head", "b", "a"]
    assert RAY.pod_sets(cluster)[2]["template"]["spec"]["containers"] == a_template("4")["spec"]["containers"]


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [("4", {"cpu": 4000, "memory": 2**28}), ("100m", {"cpu": 200, "memory": 2**28})],
    ids=["larger", "smaller"],
)
def test_workers_are_charged_for_the_container_that_waits_for_the_head(cpu: str, expected: dict[str, int]) -> None:
    cluster = a_cluster(a_group(template=a_template(cpu)))
    worker = PodSet.from_manifest(RAY.pod_sets(cluster)[1])
    assert (worker.requests, worker.unasked) == (expected, {"memory"})
    copy = RAY.worker_copy(cluster, {})["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    assert "initContainers" not in copy


def test_every_pod_of_a_cluster_with_a_history_server_has_a_collector() -> None:
    head, worker = map(PodSet.from_manifest, RAY.pod_sets(a_cluster(historyServerOptions={"storage": "s3"})))
    assert head.requests == {"cpu": 2050, "memory": 64 * 2**20}
    assert worker.requests["cpu"] == 1050


def test_a_cluster_may_have_a_head_alone() -> None:
    cluster = a_cluster(workerGroupSpecs=None)
    assert RAY.counts(cluster, cluster) == {"head": 1}
    assert "workerGroupSpecs" in RAY.worker_copy(cluster, {})["spec"]


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("small-group", "small-group"),
        ("GPU_Group", "gpu-group"),
        ("-odd.", "odd"),
        ("x" * 70, "x" * 63),
        ("x" * 62 + "--y", "x" * 62),
    ],
    ids=["plain", "capitals and other signs", "signs at the ends", "too long", "too long, cut at a sign"],
)
def test_a_pod_set_is_named_after_its_group_as_a_label_may_be(group: str, name: str) -> None:
    assert list(RAY.counts(a_cluster(), a_cluster(a_group(group)))) == ["head", name]


class TestHead:
    """What KubeRay adds to the head is charged."""

    @pytest.mark.parametrize(
        ("fields", "cpu", "memory"),
        [
            ({}, 2000, 0),
            ({"enableInTreeAutoscaling": True}, 2500, 512 * 2**20),
            ({"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": {}}}, 2000, 0),
            (
                {
                    "enableInTreeAutoscaling": True,
                    "autoscalerOptions": {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}},
                },
                3000,
                2**30,
            ),
            ({"autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}}}, 2000, 0),
        ],
        ids=[
            *("no autoscaler", "with its default request", "with no request", "with its own request"),
            "options without the autoscaler",
        ],
    )
    def test_the_autoscalers_sidecar(self, fields: dict[str, Any], cpu: int, memory: int) -> None:
        requests = pod_requests(RAY.pod_sets(a_cluster(**fields))[0]["template"]["spec"])
        assert (requests["cpu"], requests.get("memory", 0)) == (cpu, memory)

    def test_only_the_pod_set_has_it_not_the_copy(self) -> None:
        head = RAY.worker_copy(a_cluster(enableInTreeAutoscaling=True), {})["spec"]["headGroupSpec"]
        assert [container["name"] for container in head["template"]["spec"]["containers"]] == ["main"]


class TestCopy:
    """What is created on a worker."""

    def test_every_template_is_gated_and_labelled_in_the_same_order(self) -> None:
        spec = RAY.worker_copy(a_cluster(a_group("b"), a_group("A_")), {})["spec"]
        head, groups = spec["headGroupSpec"], spec["workerGroupSpecs"]
        assert [group["groupName"] for group in groups] == ["b", "A_"]
        for template, name in zip([g["template"] for g in (head, *groups)], ["head", "b", "a"], strict=True):
            assert template["spec"]["schedulingGates"] == [GATE]
            assert template["metadata"]["labels"] == {POD_SET: name}

    def test_it_runs_and_is_kuberays(self) -> None:
        assert not RAY.worker_copy(a_cluster(), {})["spec"].keys() & {"suspend", "managedBy"}

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [PATIENCE]),
            (
                {"env": [{"name": "RAY_LOG_LEVEL", "value": "debug"}]},
                [{"name": "RAY_LOG_LEVEL", "value": "debug"}, PATIENCE],
            ),
            ({"env": [PATIENCE | {"value": "60"}]}, [PATIENCE | {"value": "60"}]),
            ({"envFrom": [{"configMapRef": {"name": "ours"}}]}, None),
        ],
        ids=["none", "others", "its user says how long", "its user's are elsewhere"],
    )
    def test_its_autoscaler_lets_gated_pods_wait(self, options: dict[str, Any], expected: list[Any] | None) -> None:
        cluster = a_cluster(enableInTreeAutoscaling=True, autoscalerOptions=options)
        before = copy.deepcopy(cluster)
        assert RAY.worker_copy(cluster, {})["spec"]["autoscalerOptions"] == options | (
            {"env": expected} if expected else {}
        )
        assert cluster == before
        assert "autoscalerOptions" not in RAY.worker_copy(a_cluster(), {})["spec"]

    def test_what_belongs_to_the_autoscaler_goes_along(self) -> None:
        strategy = {"workersToDelete": ["w"]}
        [group] = RAY.worker_copy(a_cluster(a_group(scaleStrategy=strategy)), {})["spec"]["workerGroupSpecs"]
        assert (group["replicas"], group["scaleStrategy"]) == (2, strategy)

    def test_each_pod_set_has_its_own_place(self) -> None:
        spec = RAY.worker_copy(a_cluster(), {"small": Placement(node_selector={"pool": "spot"})})["spec"]
        assert spec["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] == {"pool": "spot"}
        assert "nodeSelector" not in spec["headGroupSpec"]["template"]["spec"]

    def test_the_managers_cluster_is_not_changed(self) -> None:
        cluster = a_cluster(enableInTreeAutoscaling=True)
        before = copy.deepcopy(cluster)
        RAY.worker_copy(cluster, {"small": Placement(node_selector={"pool": "spot"})})
        RAY.pod_sets(cluster)
        assert cluster == before


def test_a_resize_names_the_group_at_the_index_that_it_writes_to() -> None:
    cluster = a_cluster(a_group("a"), a_group("B"))
    assert RAY.resize(cluster, {"head": 1, "a": 2, "b": 5}) == [
        {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "B"},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/replicas", "value": 5},
    ]


@pytest.mark.parametrize(
    ("cluster", "counts"),
    [
        (a_cluster(), {"head": 1, "small": 2}),
        (a_cluster(), {"head": 1}),
        (a_cluster(enableInTreeAutoscaling=True, suspend=False), {"head": 1, "small": 5}),
        (a_cluster(a_group(numOfHosts=4)), {"small": 8}),
        (a_cluster(a_group(numOfHosts=4)), {"small": 9}),
    ],
    ids=["as it is", "nothing said", "the autoscaler's", "as many pods", "no whole replica more"],
)
def test_a_resize_that_changes_nothing_or_is_not_ours_writes_nothing(
    cluster: dict[str, Any], counts: dict[str, int]
) -> None:
    assert RAY.resize(cluster, counts) == []


def test_of_a_suspended_cluster_the_autoscaler_owns_nothing() -> None:
    assert RAY.resize(a_cluster(enableInTreeAutoscaling=True), {"head": 1, "small": 5})[1]["value"] == 5


def test_a_resize_of_several_hosts_writes_replicas() -> None:
    assert RAY.resize(a_cluster(a_group(numOfHosts=4)), {"small": 12})[1]["value"] == 3


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Outcome(JobPhase.RUNNING)),
        ({"state": "ready", "reason": "old"}, Outcome(JobPhase.RUNNING)),
        ({"state": "failed", "reason": "no image"}, Outcome(JobPhase.RUNNING, "no image")),
        ({"state": "suspended"}, Outcome(JobPhase.RUNNING)),
    ],
    ids=["new", "ready", "failed", "suspended"],
)
def test_a_cluster_runs_until_it_is_deleted(status: dict[str, Any], expected: Outcome) -> None:
    assert RAY.outcome(a_cluster() | {"status": status}) == expected


def test_a_cluster_is_its_own_carrier() -> None:
    cluster = a_cluster(a_group("One"), a_group("many", numOfHosts=4))
    assert RAY.children(cluster) is None
    assert RAY.pod_selectors(cluster) == [{"ray.io/cluster": "demo"}]
    assert [RAY.replica_size(cluster, name) for name in ("head", "one", "many", "none")] == [1, 1, 4, 1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, "replicas changed"), ({"enableInTreeAutoscaling": True}, "ray autoscaler")],
    ids=["a person", "the autoscaler"],
)
def test_who_scales(fields: dict[str, Any], expected: str) -> None:
    assert RAY.scaler(a_cluster(**fields)) == expected


def test_a_maximum_of_none_is_a_bound() -> None:
    cluster = a_cluster(a_group(minReplicas=0, maxReplicas=0), a_group("free", maxReplicas=None))
    assert RAY.most(cluster) == {"head": 1, "small": 0}


def test_a_suspended_group_keeps_its_replicas() -> None:
    """It makes no pod, and has its size again when it is resumed."""
    cluster = a_cluster(a_group(replicas=3, suspend=True), a_group("other", replicas=1))
    resized = RAY.with_counts(cluster, {"head": 1, "small": 0, "other": 2})
    assert [group["replicas"] for group in resized["spec"]["workerGroupSpecs"]] == [3, 2]
