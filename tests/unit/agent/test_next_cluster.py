"""Somebody edits the size of a RayJob while it has no RayCluster: before the first, or between two retries."""

from typing import Any

import jsonpatch
import pytest
from msgspec import UNSET, UnsetType, structs

from slicebus.agent.decide.order import order_sizes
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Patch
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from unit.agent.objects import a_spec
from unit.agent.test_bounds import JOB, carried_out, managers
from unit.slices.jobs.manifests import a_group

Manifest = dict[str, Any]
NOTHING = WorkerView(key=JobKey("RayJob", "team", "train"), job=None)


def an_order(
    replicas: int, version: int, *, autoscales: bool = False, taken_back: str | UnsetType = UNSET
) -> WorkloadSpec:
    cluster = managers(9, autoscales=autoscales)
    spec = cluster["spec"] | {"workerGroupSpecs": [a_group("small", replicas=replicas, maxReplicas=9)]}
    job = cluster | {"kind": "RayJob", "spec": {"rayClusterSpec": spec, "entrypoint": "python train.py"}}
    order = a_spec(version, job=JOB, manifest=job, granted=1)
    granted = {"head": 1, "small": replicas, "submitter": 1}
    return structs.replace(order, granted=granted, flavors={}, taken_back=taken_back)


def edited(*clusters: Manifest, named: str = "", autoscales: bool = False, **how: Any) -> Manifest:
    """The worker's job after an edit from one replica to three; `named` is the cluster in its status."""
    job = carried_out(NOTHING, an_order(1, 1, autoscales=autoscales)).job
    job = merge_patch(job or {}, {"status": {"rayClusterName": named}} if named else {})
    view = structs.replace(
        NOTHING, job=job, reading=WorkerJobReading.from_manifest(job), scale_target=next(iter(clusters), None)
    )
    after = carried_out(view, an_order(3, 2, autoscales=autoscales, **how)).job
    assert after is not None
    return after


def replicas(job: Manifest) -> int:
    found: int = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]
    return found


def test_the_next_cluster_is_made_with_it() -> None:
    """KubeRay made it of the former size, which the agent then asked for: the edit was taken back."""
    job = edited()
    assert (replicas(job), annotations.baseline(job)) == (3, {"head": 1, "small": 3, "submitter": 1})


def test_a_cluster_that_is_being_made_gets_it_itself() -> None:
    with pytest.raises(ConflictError, match="has yet to take"):
        edited(named="train-x7k2p")
    cluster = managers(9, autoscales=False)
    made = cluster | {"metadata": cluster["metadata"] | {"name": "train-x7k2p", "uid": "c", "resourceVersion": "1"}}
    with pytest.raises(ConflictError, match="has yet to take"):
        edited(made, named="train-x7k2p")


@pytest.mark.parametrize("how", [{"autoscales": True}, {"taken_back": "a word"}], ids=["autoscaled", "taken back"])
def test_its_own_spec_stays(how: dict[str, Any]) -> None:
    """Ray's autoscaler owns the size; and what others take back is for the clusters that are there."""
    assert replicas(edited(**how)) == 1


@pytest.mark.parametrize(
    ("how", "patched"),
    [({}, ["RayCluster"]), ({"backoffLimit": 2}, ["RayCluster", "RayJob"])],
    ids=["tried once", "tried again"],
)
def test_a_job_that_is_tried_again_gets_it_with_its_cluster(how: dict[str, Any], patched: list[str]) -> None:
    """The cluster of the next try was of the former size, which the agent then asked for."""
    made = carried_out(NOTHING, an_order(1, 1)).job or {}
    job = merge_patch(made, {"spec": how, "status": {"rayClusterName": "train-x7k2p"}})
    cluster = managers(9, autoscales=False)
    cluster = merge_patch(cluster, {"metadata": {"name": "train-x7k2p", "uid": "c", "resourceVersion": "1"}})
    reading = WorkerJobReading.from_manifest(job)
    view = structs.replace(NOTHING, job=job, reading=reading, scale_target=cluster)
    patches = {
        command.target["kind"]: command.body
        for command in order_sizes.changes(view, an_order(3, 2), reading)
        if isinstance(command, Patch)
    }
    assert list(patches) == patched
    assert replicas(jsonpatch.apply_patch(job, patches.get("RayJob", []))) == (3 if how else 1)
