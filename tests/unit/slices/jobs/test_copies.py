"""The whole copy as an agent creates it: the kind's own part, and the marks that the agent adds."""

import json
from typing import Any

import pytest

from slicebus.agent.decide.order.orders import workload_spec
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Create
from slicebus.proto.messages import ClusterName, JobRef, PodSetFlavor, WorkloadSpec
from slicebus.slices.api.kueue import API_VERSION
from slicebus.slices.jobs import KINDS, Placement
from slicebus.slices.jobs.copies import gated_template, left_out
from unit.slices.jobs.manifests import GATE, a_cluster, a_job, a_rayjob

SLICE = "job-demo-12345"


def created(job: dict[str, Any]) -> dict[str, Any]:
    """The job that an agent creates on an empty cluster when it is told of a slice."""
    kind, granted = KINDS[job["kind"]], KINDS[job["kind"]].counts(job, job)
    order = WorkloadSpec(
        job=JobRef(
            api_version=kind.resource.api_version, kind=kind.resource.kind, namespace="team", name="demo", uid="u1"
        ),
        spec_version=4,
        workload={
            "apiVersion": API_VERSION,
            "kind": "Workload",
            "metadata": {"name": SLICE, "namespace": "team"},
            "spec": {"podSets": kind.pod_sets(job)},
        },
        manifest=job,
        granted=granted,
        flavors={name: PodSetFlavor(node_labels={"pool": "spot"}) for name in granted},
    )
    view = WorkerView(key=JobKey(job["kind"], "team", "demo"), job=None)
    commands = [command for step in workload_spec(order, ClusterName("worker")) for command in step.decide(view)]
    [manifest] = [c.manifest for c in commands if isinstance(c, Create) and c.manifest["kind"] == job["kind"]]
    return manifest


def templates(value: Any) -> list[dict[str, Any]]:
    """Every pod spec in a job, wherever its kind keeps it."""
    if isinstance(value, list):
        return [found for entry in value for found in templates(entry)]
    if not isinstance(value, dict):
        return []
    return [value] if "containers" in value else [found for entry in value.values() for found in templates(entry)]


@pytest.mark.parametrize("job", [a_job(), a_cluster(), a_rayjob()], ids=["Job", "RayCluster", "RayJob"])
def test_a_copy_names_its_slice_and_origin_and_waits_at_the_gate(job: dict[str, Any]) -> None:
    made = created(job)
    labels, annotations = made["metadata"]["labels"], made["metadata"]["annotations"]
    assert labels["kueue.x-k8s.io/prebuilt-workload-name"] == SLICE
    assert annotations["kueue.x-k8s.io/prebuilt-workload-name"] == SLICE
    assert labels["slicebus.dev/origin"] == "slicebus"
    assert annotations["slicebus.dev/manager-uid"] == "u1"
    assert json.loads(annotations["slicebus.dev/granted"]) == KINDS[job["kind"]].counts(job, job)
    assert "kueue.x-k8s.io/queue-name" not in labels
    assert "managedBy" not in made["spec"]
    assert "uid" not in made["metadata"]
    assert len(templates(made["spec"])) == len(KINDS[job["kind"]].pod_sets(job))
    for spec in templates(made["spec"]):
        assert spec["schedulingGates"] == [GATE]
        assert spec["nodeSelector"] == {"pool": "spot"}


@pytest.mark.parametrize("job", [a_job(), a_cluster(), a_rayjob()], ids=lambda job: str(job["kind"]))
def test_a_copy_of_a_job_with_full_annotations_has_room(job: dict[str, Any]) -> None:
    """The copy of the whole object, which `kubectl apply` writes, does not count: it stays behind."""
    own = dict(job["metadata"].get("annotations") or {})
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000}
    full = job | {"metadata": job["metadata"] | {"annotations": own | applied | {"notes": "x" * 60_000, "a": "b"}}}
    assert left_out(full) == []
    assert created(full)["metadata"]["annotations"]["notes"] == "x" * 60_000
    full["metadata"]["annotations"] |= {"notes": "x" * 255_000, "a": "b"}
    assert left_out(full) == ["notes"]
    copied = created(full)["metadata"]["annotations"]
    assert copied["a"] == "b"
    assert "notes" not in copied


def test_no_pod_takes_a_type_of_its_node_from_its_job() -> None:
    """By that of a Redis clean-up, which KubeRay gives, an agent lets a pod start without a grant."""
    template = {"metadata": {"labels": {"ray.io/node-type": "redis-cleanup", "team": "a"}}, "spec": {"containers": []}}
    assert gated_template(template, "head", Placement())["metadata"]["labels"] == {
        "team": "a",
        "kueue.x-k8s.io/podset": "head",
    }
