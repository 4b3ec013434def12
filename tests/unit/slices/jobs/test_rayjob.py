"""ray.io/v1 RayJob."""

import copy
from typing import Any

import pytest

from slicebus.proto.messages import JobPhase
from slicebus.slices.jobs import KINDS, Outcome, Placement, Problem
from slicebus.slices.workload.pod_requests import pod_requests
from unit.slices.jobs.manifests import GATE, POD_SET, a_cluster, a_cluster_spec, a_group, a_rayjob, a_template

RAYJOB = KINDS["RayJob"]
OF_DEMO = {"slicebus.dev/rayjob": "demo"}
GROUPS = (a_group("small"), a_group("large", replicas=1, numOfHosts=4))


@pytest.mark.parametrize(
    ("fields", "submitter"),
    [
        ({}, {"submitter": 1}),
        ({"submissionMode": "K8sJobMode"}, {"submitter": 1}),
        ({"submissionMode": "HTTPMode"}, {}),
        ({"submissionMode": "SidecarMode"}, {}),
        ({"submissionMode": "InteractiveMode"}, {}),
    ],
    ids=["unset", "K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"],
)
def test_the_submitter_is_a_pod_set_where_it_is_a_pod(fields: dict[str, Any], submitter: dict[str, int]) -> None:
    job = a_rayjob(*GROUPS, **fields)
    expected = {"head": 1, "small": 2, "large": 4} | submitter
    assert RAYJOB.counts(job, job) == expected
    pod_sets = RAYJOB.pod_sets(job)
    assert [(pod_set["name"], pod_set["count"]) for pod_set in pod_sets] == list(expected.items())
    assert ("submitterPodTemplate" in RAYJOB.worker_copy(job, {})["spec"]) is bool(submitter)


def test_on_a_worker_the_counts_are_the_childs() -> None:
    child = a_cluster(a_group("small", replicas=6), a_group("large", replicas=2, numOfHosts=4))
    assert RAYJOB.counts(a_rayjob(*GROUPS), child) == {"head": 1, "small": 6, "large": 8, "submitter": 1}


class TestSubmitter:
    """The submitter's pod is charged, gated and placed as any other."""

    def test_kuberays_default_has_the_heads_image_and_kuberays_requests(self) -> None:
        [*_, submitter] = RAYJOB.pod_sets(a_rayjob())
        spec = submitter["template"]["spec"]
        assert pod_requests(spec) == {"cpu": 500, "memory": 200 * 2**20}
        assert (spec["containers"][0]["image"], spec["restartPolicy"]) == ("demo:1", "Never")

    def test_the_users_own_template_is_taken_as_it_is(self) -> None:
        [*_, submitter] = RAYJOB.pod_sets(a_rayjob(submitterPodTemplate=a_template("250m")))
        assert submitter["template"] == a_template("250m")

    def test_in_sidecar_mode_the_head_is_charged_for_it(self) -> None:
        job = a_rayjob(submissionMode="SidecarMode", cluster=a_cluster_spec(enableInTreeAutoscaling=True))
        head = RAYJOB.pod_sets(job)[0]["template"]["spec"]
        assert pod_requests(head) == {"cpu": 2000 + 500 + 500, "memory": (512 + 200) * 2**20}

    def test_its_copy_is_gated_labelled_and_placed(self) -> None:
        places = {"submitter": Placement(node_selector={"pool": "small"})}
        template = RAYJOB.worker_copy(a_rayjob(), places)["spec"]["submitterPodTemplate"]
        assert template["spec"]["schedulingGates"] == [GATE]
        assert template["spec"]["nodeSelector"] == {"pool": "small"}
        assert template["metadata"]["labels"] == {POD_SET: "submitter"} | OF_DEMO


class TestCopy:
    """What is created on a worker."""

    def test_the_clusters_templates_are_gated_labelled_and_placed(self) -> None:
        places = {"large": Placement(node_selector={"pool": "spot"})}
        cluster = RAYJOB.worker_copy(a_rayjob(*GROUPS), places)["spec"]["rayClusterSpec"]
        templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
        for template, name in zip(templates, ["head", "small", "large"], strict=True):
            assert template["spec"]["schedulingGates"] == [GATE]
            assert template["metadata"]["labels"] == {POD_SET: name} | OF_DEMO
        assert [template["spec"].get("nodeSelector") for template in templates] == [None, None, {"pool": "spot"}]

    def test_it_runs_and_is_kuberays(self) -> None:
        cluster = a_cluster_spec(a_group(), suspend=True, managedBy="kueue.x-k8s.io/multikueue")
        spec = RAYJOB.worker_copy(a_rayjob(cluster=cluster), {})["spec"]
        assert not spec.keys() & {"suspend", "managedBy"}
        assert not spec["rayClusterSpec"].keys() & {"suspend", "managedBy"}
        assert (spec["entrypoint"], spec["shutdownAfterJobFinishes"]) == ("python demo.py", True)

    @pytest.mark.parametrize(
        "spec",
        [
            {"shutdownAfterJobFinishes": False},
            {"deletionStrategy": {"deletionRules": []}},
            {"deletionPolicy": "DeleteSelf"},
            {"ttlSecondsAfterFinished": 9},
        ],
        ids=lambda spec: next(iter(spec)),
    )
    def test_kuberay_suspends_it(self, spec: dict[str, Any]) -> None:
        made = RAYJOB.worker_copy(a_rayjob(**spec), {})["spec"]
        assert made["shutdownAfterJobFinishes"] is True
        assert not made.keys() & {"deletionStrategy", "deletionPolicy", "ttlSecondsAfterFinished"}

    def test_the_managers_job_is_not_changed(self) -> None:
        job = a_rayjob(*GROUPS)
        before = copy.deepcopy(job)
        RAYJOB.worker_copy(job, {"head": Placement(node_selector={"pool": "spot"})})
        assert job == before


def test_a_resize_is_written_to_the_child_alone_or_where_there_is_none() -> None:
    counts = {"head": 1, "small": 5, "submitter": 1}
    assert RAYJOB.resize(a_rayjob(suspend=False), counts) == []
    assert RAYJOB.resize(a_rayjob(), counts)[1] == {
        "op": "add",
        "path": "/spec/rayClusterSpec/workerGroupSpecs/0/replicas",
        "value": 5,
    }
    assert RAYJOB.resize(a_cluster(), counts)[1] == {
        "op": "add",
        "path": "/spec/workerGroupSpecs/0/replicas",
        "value": 5,
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, Outcome(JobPhase.RUNNING)),
        ({"jobDeploymentStatus": "Initializing", "message": "starts"}, Outcome(JobPhase.RUNNING, "starts")),
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, Outcome(JobPhase.RUNNING)),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, Outcome(JobPhase.RUNNING)),
        ({"jobDeploymentStatus": "Suspended"}, Outcome(JobPhase.RUNNING)),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, Outcome(JobPhase.SUCCEEDED)),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, Outcome(JobPhase.FAILED)),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "FAILED", "message": "exit 1"},
            Outcome(JobPhase.FAILED, "exit 1"),
        ),
        ({"jobDeploymentStatus": "Failed", "message": "no cluster"}, Outcome(JobPhase.FAILED, "no cluster")),
        ({"jobDeploymentStatus": "ValidationFailed", "message": "bad"}, Outcome(JobPhase.FAILED, "bad")),
    ],
    ids=[
        "new",
        "initializing",
        "running, whatever the job's status",
        "retrying",
        "suspended",
        "succeeded",
        "stopped",
        "failed",
        "the deployment failed",
        "refused",
    ],
)
def test_outcome(status: dict[str, Any], expected: Outcome) -> None:
    assert RAYJOB.outcome(a_rayjob() | {"status": status}) == expected


def test_counts_and_pods_are_the_childs_once_it_has_a_name() -> None:
    always = [{"batch.kubernetes.io/job-name": "demo"}, OF_DEMO]
    new, running = a_rayjob(), a_rayjob() | {"status": {"rayClusterName": "demo-x7k2p"}}
    assert RAYJOB.children(new) == []
    assert RAYJOB.pod_selectors(new) == always
    assert RAYJOB.children(running) == ["demo-x7k2p"]
    assert RAYJOB.pod_selectors(running) == [*always, {"ray.io/cluster": "demo-x7k2p"}]


def test_a_replica_of_the_child_starts_together() -> None:
    child = a_cluster(*GROUPS)
    assert [RAYJOB.replica_size(child, name) for name in ("head", "small", "large", "submitter")] == [1, 1, 4, 1]
    assert RAYJOB.replica_size(a_rayjob(*GROUPS), "large") == 4


@pytest.mark.parametrize("autoscaled", [True, False], ids=["autoscaler", "person"])
def test_who_scales(autoscaled: bool) -> None:
    expected = "ray autoscaler" if autoscaled else "replicas changed"
    assert RAYJOB.scaler(a_cluster(enableInTreeAutoscaling=autoscaled)) == expected
    assert RAYJOB.scaler(a_rayjob(cluster=a_cluster_spec(enableInTreeAutoscaling=autoscaled))) == expected


@pytest.mark.parametrize(("mode", "most"), [("HTTPMode", 8), ("K8sJobMode", 1)])
def test_a_group_has_the_submitters_bound_only_where_there_is_one(mode: str, most: int) -> None:
    assert RAYJOB.most(a_rayjob(a_group("submitter"), submissionMode=mode)) == {"head": 1, "submitter": most}


REFUSED: dict[str, tuple[dict[str, Any], list[Problem]]] = {
    "another's cluster": (
        a_rayjob(clusterSelector={"ray.io/cluster": "shared"}),
        [
            Problem(
                "InvalidRayJob",
                "a RayJob with a clusterSelector runs on a cluster that is not its own and cannot be queued",
            )
        ],
    ),
    "a group with the submitter's name": (
        a_rayjob(a_group("submitter")),
        [Problem("DuplicatePodSets", "two pod sets have the same name: head, submitter, submitter")],
    ),
    "a submitter's request that is no quantity": (
        a_rayjob(submitterPodTemplate=a_template("lots")),
        [Problem("InvalidQuantity", "pod set submitter: not a quantity: 'lots'")],
    ),
}


@pytest.mark.parametrize(("job", "problems"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_run_is_refused(job: dict[str, Any], problems: list[Problem]) -> None:
    assert RAYJOB.problems(job) == problems
