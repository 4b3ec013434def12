"""A job whose annotations leave no room (256 KiB) runs, grows, shrinks and gives way as any other, and says so."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, fleet
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, PODS
from slicebus.proto.errors import ConflictError
from slicebus.slices.api import api_names
from slicebus.slices.workload.ungate import is_gated
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
ROOM_BYTES = 256 * 1024
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NOTES = "example.dev/notes"
KINDS = ("Job", "RayCluster")
REAL_FOR_JOBS = (pytest.param("Job", marks=pytest.mark.real), "RayCluster")
"""The bound is one of Kubernetes' own."""
QUOTA_CPU = 8


def filling(manifest: Manifest, name: str, *, free: int = 0) -> Manifest:
    """A merge patch by which an object's annotations have so many bytes left."""
    present = manifest["metadata"].get("annotations") or {}
    taken = sum(len(key.encode()) + len(value.encode()) for key, value in present.items() if key != name)
    return {"metadata": {"annotations": {name: "x" * (ROOM_BYTES - free - taken - len(name))}}}


async def fill(scenario: Scenario, name: str) -> None:
    """Fill the worker's job to the last byte, as a tenant there may."""

    async def filled() -> bool:
        job = await scenario.worker_job()
        body = filling(job, name)
        body["metadata"]["resourceVersion"] = job["metadata"]["resourceVersion"]
        try:
            await (await scenario.worker()).patch(scenario.resource, scenario.name, NAMESPACE, MergePatch(body))
        except ConflictError:  # The agent has written in between.
            return False
        return True

    await eventually(filled, "the annotations are full")


@pytest.mark.parametrize("name", [LAST_APPLIED, NOTES], ids=["last-applied", "notes"])
@pytest.mark.parametrize("kind", REAL_FOR_JOBS)
async def test_a_job_filled_on_its_worker_grows_and_shrinks(world: World, kind: str, name: str) -> None:
    await set_quota(world, QUOTA_CPU)
    scenario = Scenario(world, kind, "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await fill(scenario, name)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    assert name not in (await scenario.worker_job())["metadata"]["annotations"]
    if name == NOTES:
        text = await scenario.expect_event("AnnotationsRemoved", on=await scenario.worker())
        assert f"were removed here: {NOTES}" in text
    await fill(scenario, name)
    await scenario.scale(1)
    await scenario.expect_pods(running=1)
    await scenario.expect_unfinished(1)


async def test_a_job_filled_on_its_worker_follows_the_manager(world: World) -> None:
    """Who fills its annotations is not safe from an eviction."""
    await set_quota(world, QUOTA_CPU)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    for parallelism in (2, 1):
        await fill(scenario, NOTES)
        await world.manager.patch(JOBS, "train", NAMESPACE, MergePatch({"spec": {"parallelism": parallelism}}))
        await scenario.expect_pods(running=parallelism)
    await fill(scenario, NOTES)
    body = MergePatch({"spec": {"stopPolicy": "HoldAndDrain"}})
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)
    await scenario.expect_pods(running=0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_is_full_at_its_submission_runs_and_grows(world: World, kind: str) -> None:
    """It leaves no room on the manager's job either."""
    await set_quota(world, QUOTA_CPU)
    scenario, manifest = Scenario(world, kind, "train"), elastic(kind, "train")
    manifest["metadata"].setdefault("annotations", {})["example.dev/small"] = "kept"
    manifest["metadata"]["annotations"] |= filling(manifest, NOTES)["metadata"]["annotations"]
    await world.manager.create(scenario.resource, manifest)
    await scenario.expect_pods(running=1)
    text = await scenario.expect_event("AnnotationsLeftOut", on=world.manager)
    assert f"all annotations but {NOTES}:" in text
    annotations = (await scenario.worker_job())["metadata"]["annotations"]
    assert annotations["example.dev/small"] == "kept"
    assert NOTES not in annotations
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    await world.manager.delete(scenario.resource, "train", NAMESPACE)
    await scenario.expect_nothing_left()


async def test_a_cluster_selector_without_end_is_refused_by_name(world: World) -> None:
    """It is copied onto the Workload, which has to have room for its orders."""
    await set_quota(world, QUOTA_CPU)
    manifest = elastic("Job", "train")
    manifest["metadata"]["annotations"][api_names.CLUSTER_SELECTOR_ANNOTATION] = ",".join(["!absent"] * 30_000)
    await world.manager.create(JOBS, manifest)
    scenario = Scenario(world, "Job", "train")
    text = await scenario.expect_event("InvalidClusterSelector", on=world.manager)
    assert "8192 are the most" in text
    body = MergePatch({"metadata": {"annotations": {api_names.CLUSTER_SELECTOR_ANNOTATION: None}}})
    await world.manager.patch(JOBS, "train", NAMESPACE, body)
    await scenario.expect_pods(running=1)


@pytest.mark.real
async def test_an_agent_begins_beside_a_pod_whose_annotations_are_full(bare_east: World, urls: dict[str, str]) -> None:
    """It writes to each pod that the agent before may be about to let start, before it does anything else."""
    scenario = Scenario(bare_east, "Job", "train")
    async with fleet(bare_east, urls):
        await set_quota(bare_east, QUOTA_CPU)
        await scenario.submit()
        await scenario.expect_pods(running=1)
        worker = await scenario.worker()
    [before] = await scenario.pods()
    await worker.delete(PODS, before["metadata"]["name"], NAMESPACE)

    async def another() -> Manifest | None:
        pods = await scenario.pods()
        return pods[0] if len(pods) == 1 and is_gated(pods[0]) else None

    pod = await eventually(another, "another pod has taken its place")
    assert pod is not None
    await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, MergePatch(filling(pod, NOTES)))
    async with fleet(bare_east, urls):
        await scenario.expect_pods(running=1)
        [started] = await scenario.pods()
        assert started["metadata"]["labels"][api_names.EPOCH_ANNOTATION].isdigit()
