"""The whole life of a RayJob: retries, each on a cluster of its own, and its end; its quota follows every step."""

from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import PODS, RAYCLUSTERS, RAYJOBS
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition, FinishedReason
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]


async def submitted(world: World, *, autoscales: bool = True, **spec: Any) -> Scenario:
    """A RayJob with one worker, whose submitter is tried once."""
    await set_quota(world, 8)
    job = elastic("RayJob", "tune")
    job["spec"] |= {"submitterConfig": {"backoffLimit": 0}} | spec
    job["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = autoscales
    await world.manager.create(RAYJOBS, job)
    scenario = Scenario(world, "RayJob", "tune")
    await scenario.expect_pods(running=1)
    return scenario


async def end_submitter(scenario: Scenario, phase: str) -> None:
    [pod] = [each for each in await scenario.pods() if "job-name" in each["metadata"].get("labels", {})]
    worker, body = await scenario.worker(), MergePatch({"status": {"phase": phase}})
    await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")


async def expect_status(scenario: Scenario, **expected: Any) -> None:
    """Wait for the manager's RayJob to show this."""

    async def look() -> bool:
        status = (await scenario.world.manager.get(RAYJOBS, scenario.name, NAMESPACE)).get("status", {})
        return expected.items() <= status.items()

    await eventually(look, f"the manager's RayJob shows {expected}")


async def expect_no_cluster(scenario: Scenario) -> None:
    """Wait until its cluster and its pods have gone; the submitter's pod, which has ended, may stay."""
    worker = await scenario.worker()

    async def look() -> bool:
        pods = [pod for pod in await scenario.pods() if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        return not (pods or (await worker.list(RAYCLUSTERS, namespace=NAMESPACE)).items)

    await eventually(look, "the RayCluster and its pods have gone")


async def expect_tried_again(scenario: Scenario, first: str) -> None:
    """Wait until it has another cluster than the first."""

    async def look() -> bool:
        return (await scenario.worker_job())["status"].get("rayClusterName") not in ("", first)

    await eventually(look, "the RayJob has another cluster")


@pytest.mark.real
async def test_each_retry_begins_at_the_specs_size_and_the_last_failure_frees_the_quota(world: World) -> None:
    scenario = await submitted(world, backoffLimit=1)
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    first, before = (await scenario.worker_job())["status"]["rayClusterName"], await scenario.running()
    await expect_used(world, "5500m")

    await end_submitter(scenario, "Failed")
    await expect_tried_again(scenario, first)
    await scenario.expect_pods(running=1)
    assert not before & await scenario.running()
    await scenario.expect_unfinished(1)
    await expect_used(world, "2500m")
    await expect_status(scenario, jobDeploymentStatus="Running", failed=1)

    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await end_submitter(scenario, "Failed")
    await expect_status(scenario, jobDeploymentStatus="Failed", jobStatus="FAILED", failed=2)
    await expect_no_cluster(scenario)
    await expect_used(world, "0")
    last = (await scenario.chain())[-1]
    assert last.conditions[Condition.FINISHED]["reason"] == FinishedReason.FAILED


async def test_a_retry_begins_at_the_size_that_somebody_has_edited(world: World) -> None:
    """It began at the one before, and the manager took that for another edit."""
    scenario = await submitted(world, autoscales=False, backoffLimit=1)
    first = (await scenario.worker_job())["status"]["rayClusterName"]
    edit = {"op": "replace", "path": "/spec/rayClusterSpec/workerGroupSpecs/0/replicas", "value": 3}
    await world.manager.patch(RAYJOBS, scenario.name, NAMESPACE, JsonPatch([edit]))
    await scenario.expect_pods(running=3)

    await end_submitter(scenario, "Failed")
    await expect_tried_again(scenario, first)
    await scenario.expect_pods(running=3)
    await scenario.expect_unfinished(3)


@pytest.mark.parametrize("ttl_s", [None, 3600], ids=["no time to live", "an hour to live"])
async def test_its_end_frees_the_quota_at_once(world: World, ttl_s: int | None) -> None:
    """A cluster that KubeRay kept for an hour would hold quota for nothing."""
    scenario = await submitted(world, **({} if ttl_s is None else {"ttlSecondsAfterFinished": ttl_s}))
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    await end_submitter(scenario, "Succeeded")
    await expect_status(scenario, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    await expect_no_cluster(scenario)
    await expect_used(world, "0")
    assert all(slice.finished for slice in await scenario.chain())


async def test_past_its_deadline_it_shows_its_end_and_is_charged_for_what_runs(world: World) -> None:
    """KubeRay ends it without its submitter's pod, which runs until somebody ends it."""
    scenario = await submitted(world, activeDeadlineSeconds=3)
    await expect_status(scenario, jobDeploymentStatus="Failed", reason="DeadlineExceeded")
    await expect_used(world, "500m")
    [left] = await scenario.chain()
    assert (left.finished, left.conditions[api_names.PODS_GONE_CONDITION]["status"]) == (False, "False")
    await scenario.expect_event("PodsLeft", on=world.manager)

    await end_submitter(scenario, "Failed")
    await expect_used(world, "0")
    [left] = await scenario.chain()
    assert left.conditions[Condition.FINISHED]["reason"] == FinishedReason.FAILED


async def test_what_it_has_left_goes_with_it(world: World) -> None:
    scenario = await submitted(world, activeDeadlineSeconds=3)
    await expect_used(world, "500m")
    await world.manager.delete(RAYJOBS, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()
    await expect_used(world, "0")
