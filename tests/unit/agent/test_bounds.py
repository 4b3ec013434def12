"""Bounds of Ray groups that somebody edits at the manager reach the cluster that runs."""

from typing import Any

import jsonpatch
import pytest
from msgspec import structs

from slicebus.agent.decide.order import orders
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Create, Patch
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import JobRef, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from unit.agent.objects import EAST, JOB_STEP, a_spec
from unit.slices.jobs.manifests import a_cluster, a_group

Manifest = dict[str, Any]
REF = JobRef("ray.io/v1", "RayCluster", "team", "train", "manager-uid")


def managers(most: int, *, autoscales: bool = True) -> Manifest:
    cluster = a_cluster(a_group("small", replicas=1, maxReplicas=most), enableInTreeAutoscaling=autoscales)
    return cluster | {"metadata": cluster["metadata"] | {"name": "train", "namespace": "team", "uid": REF.uid}}


def an_order(most: int, version: int, **how: Any) -> WorkloadSpec:
    order = a_spec(version, job=REF, manifest=managers(most, **how), granted=1)
    return structs.replace(order, granted={"head": 1, "small": 1}, flavors={})


def carried_out(view: WorkerView, order: WorkloadSpec) -> WorkerView:
    """The view after the order, and what was written to the job."""
    number: int | None = 0
    while number is not None:
        step = orders.next_step(orders.workload_spec(order, EAST), number, view)
        for command in step.commands:
            match command:
                case Create(manifest=made) if made["kind"] == view.key.kind:
                    view = seen(view, made | {"metadata": made["metadata"] | {"uid": "w", "resourceVersion": "1"}})
                case Patch(target=target, body=list() as body) if target["kind"] == view.key.kind:
                    view = seen(view, jsonpatch.apply_patch(view.job, body))
                case Patch(target=target, body=dict() as body) if target["kind"] == view.key.kind:
                    assert view.job is not None
                    view = seen(view, merge_patch(view.job, body))
        number = step.then
    return view


def seen(view: WorkerView, job: Manifest) -> WorkerView:
    scale_target = job if job["kind"] == "RayCluster" else None
    return structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job), scale_target=scale_target)


NOTHING = WorkerView(key=JobKey("RayCluster", "team", "train"), job=None)


def most(view: WorkerView) -> int:
    assert view.job is not None
    found: int = view.job["spec"]["workerGroupSpecs"][0]["maxReplicas"]
    return found


def test_an_edit_reaches_the_cluster_once() -> None:
    made = carried_out(NOTHING, an_order(5, 1))
    assert (most(made), annotations.bounds(made.job or {})) == (5, KINDS["RayCluster"].bounds(managers(5)))
    edited = carried_out(made, an_order(7, 2))
    assert (most(edited), annotations.bounds(edited.job or {})) == (7, KINDS["RayCluster"].bounds(managers(7)))
    assert edited.job == carried_out(edited, an_order(7, 2)).job


def test_what_somebody_sets_here_stays_until_the_next_edit() -> None:
    made = carried_out(NOTHING, an_order(5, 1))
    assert made.job is not None
    path = {"op": "replace", "path": "/spec/workerGroupSpecs/0/maxReplicas", "value": 3}
    here = seen(made, jsonpatch.apply_patch(made.job, [path]))
    assert most(carried_out(here, an_order(5, 2))) == 3
    assert most(carried_out(here, an_order(6, 2))) == 6


@pytest.mark.parametrize("text", ['{"fields": 1}', '{"fields": []}', '{"fields": "x"}', "[]", "{"])
def test_what_somebody_wrote_into_the_note_keeps_no_order_off(text: str) -> None:
    """Such an order would be a dead letter, and the job would keep the pods that it takes."""
    made = carried_out(NOTHING, an_order(5, 1))
    note = {"metadata": {"annotations": {api_names.BOUNDS_ANNOTATION: text}}}
    edited = carried_out(seen(made, merge_patch(made.job or {}, note)), an_order(7, 2))
    assert annotations.bounds(edited.job or {}) == KINDS["RayCluster"].bounds(managers(7))


@pytest.mark.parametrize("autoscales", [True, False])
def test_a_copy_of_an_older_agent_keeps_what_it_has(autoscales: bool) -> None:
    made = carried_out(NOTHING, an_order(5, 1))
    assert made.job is not None
    older = seen(made, merge_patch(made.job, {"metadata": {"annotations": {api_names.BOUNDS_ANNOTATION: None}}}))
    after = carried_out(older, an_order(7, 2, autoscales=autoscales))
    assert most(after) == 5
    assert annotations.bounds(after.job or {}) is not None
    assert most(carried_out(after, an_order(8, 3, autoscales=autoscales))) == 8


JOB = JobRef("ray.io/v1", "RayJob", "team", "train", "manager-uid")


def managers_job(most: int) -> Manifest:
    cluster = managers(most)
    spec = {"rayClusterSpec": cluster["spec"], "entrypoint": "python train.py"}
    return cluster | {"kind": "RayJob", "spec": spec}


def a_clusters_job(*, named: str | None) -> Manifest:
    """A RayJob of the first order, on the worker; `named` is the cluster in its status."""
    view = WorkerView(key=JobKey("RayJob", "team", "train"), job=None)
    steps = orders.workload_spec(an_order_of_job(5, 1), EAST)
    [made] = [
        command.manifest
        for step in steps
        for command in step.decide(view)
        if isinstance(command, Create) and command.manifest["kind"] == "RayJob"
    ]
    made = made | {"metadata": made["metadata"] | {"uid": "w", "resourceVersion": "1"}}
    return made | ({"status": {"rayClusterName": named}} if named else {})


def an_order_of_job(most: int, version: int) -> WorkloadSpec:
    order = a_spec(version, job=JOB, manifest=managers_job(most), granted=1)
    return structs.replace(order, granted={"head": 1, "small": 1, "submitter": 1}, flavors={})


def test_the_id_that_kuberay_waits_for_reaches_the_worker_while_the_job_runs() -> None:
    """In InteractiveMode its user submits to the cluster that runs, and says by the ID which job that was."""
    interactive = managers_job(5)
    interactive["spec"] |= {"submissionMode": "InteractiveMode"}
    del interactive["spec"]["entrypoint"]
    named = interactive | {"spec": interactive["spec"] | {"jobId": "mine"}}
    granted = {"head": 1, "small": 1}
    view = WorkerView(key=JobKey("RayJob", "team", "train"), job=None)
    for version, manifest in enumerate((interactive, named, named | {"spec": interactive["spec"]}), start=1):
        order = a_spec(version, job=JOB, manifest=manifest, granted=1)
        spec = order.workload["spec"] | {"podSets": KINDS["RayJob"].pod_sets(manifest)}
        order = structs.replace(order, granted=granted, flavors={}, workload=order.workload | {"spec": spec})
        view = carried_out(view, order)
        assert view.job is not None
        assert view.job["spec"].get("jobId") == ("mine" if version > 1 else None), "KubeRay does not let go of one"


def noted(job: Manifest, *clusters: Manifest) -> int:
    """The bounds that the job notes by the next order, which it has taken into its own spec."""
    patch = KINDS["RayJob"].set_bounds(job, KINDS["RayJob"].bounds(managers_job(7)))
    job = jsonpatch.apply_patch(job, patch)
    view = WorkerView(
        key=JobKey("RayJob", "team", "train"),
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=next(iter(clusters), None),
    )
    upsert = orders.workload_spec(an_order_of_job(7, 2), EAST)[JOB_STEP]
    [written] = upsert.decide(view)
    assert isinstance(written, Patch)
    assert isinstance(written.body, dict)
    bounds = annotations.bounds(merge_patch(job, written.body))
    assert bounds is not None
    found: int = bounds["groups"]["small"]["maxReplicas"]
    return found


def a_child(most: int) -> Manifest:
    cluster = managers(most)
    return cluster | {"metadata": cluster["metadata"] | {"name": "train-x7k2p", "uid": "c", "resourceVersion": "1"}}


def test_a_cluster_that_is_made_meanwhile_gets_them_before_they_are_noted() -> None:
    """KubeRay made it from the spec before, and the agent learned of it after it had set the job's."""
    job = a_clusters_job(named="train-x7k2p")
    with pytest.raises(ConflictError, match="a cluster of RayJob/team/train has yet to take"):
        noted(job)
    with pytest.raises(ConflictError, match="a cluster of RayJob/team/train has yet to take"):
        noted(job, a_child(5))
    assert noted(job, a_child(7)) == 7
    assert noted(a_clusters_job(named=None)) == 7


@pytest.mark.parametrize("most_replicas", [5, 2**31 - 1], ids=["past the most", "more than any cluster has"])
@pytest.mark.parametrize("autoscales", [True, False])
def test_nothing_is_taken_from_an_edit_that_nobody_can_run(autoscales: bool, most_replicas: int) -> None:
    """KubeRay would make as many pods as the least replicas say, however many the most are."""
    made = carried_out(NOTHING, an_order(5, 1, autoscales=autoscales))
    assert made.job is not None

    def with_least(least: int, version: int, *, most: int) -> WorkloadSpec:
        order = an_order(most, version, autoscales=autoscales)
        group = order.manifest["spec"]["workerGroupSpecs"][0] | {"minReplicas": least}
        return structs.replace(
            order, manifest=order.manifest | {"spec": order.manifest["spec"] | {"workerGroupSpecs": [group]}}
        )

    broken = carried_out(made, with_least(2**31 - 1, 2, most=most_replicas))
    assert broken.job is not None
    assert broken.job["spec"] == made.job["spec"]
    assert annotations.spec_version(broken.job) == 2, "what is granted is taken all the same"
    mended = carried_out(broken, with_least(0, 3, most=7))
    assert most(mended) == 7
    assert mended.scale_target is not None
    assert KINDS["RayCluster"].counts(mended.job or {}, mended.scale_target)["small"] == 1
