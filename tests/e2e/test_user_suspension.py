"""Somebody sets `spec.suspend`: on the manager's job it is obeyed, on its copy it is undone and told."""

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, WORKLOADS
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import Waiting
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

KINDS = ["Job", "RayCluster", "RayJob", "RayService"]


async def suspend(scenario: Scenario, client: KubeClient, suspended: bool) -> None:
    body = MergePatch({"spec": {"suspend": suspended}})
    await client.patch(scenario.resource, scenario.name, NAMESPACE, body)


async def expect_told(scenario: Scenario) -> None:
    async def look() -> bool:
        job = await scenario.world.manager.get(scenario.resource, scenario.name, NAMESPACE)
        why = Waiting.from_manifest(job)
        return why is not None and why.reason == "SuspendedByUser"

    await eventually(look, f"{scenario.name} says that its user has suspended it")
    assert "spec.suspend to false" in await scenario.expect_event("SuspendedByUser", on=scenario.world.manager)


async def expect_given_back(scenario: Scenario) -> None:
    """It has no quota, and had no pod when it lost that."""

    async def look() -> bool:
        return all(slice.finished or slice.admission is None for slice in await scenario.chain())

    await eventually(look, f"{scenario.name} has no quota")
    assert await scenario.running() == set()
    await expect_used(scenario.world, "0")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_is_submitted_suspended_waits_until_it_is_resumed(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "later")
    job = elastic(kind, "later")
    job["spec"]["suspend"] = True
    await world.manager.create(scenario.resource, job)
    await expect_told(scenario)
    assert (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items == []
    await suspend(scenario, world.manager, False)
    await scenario.expect_pods(running=1)


@pytest.mark.parametrize("kind", [pytest.param("Job", marks=pytest.mark.real), *KINDS[1:]])
async def test_a_job_that_is_suspended_while_it_runs_gives_its_quota_back(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "pause")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    for _ in range(2):
        await suspend(scenario, world.manager, True)
        await expect_told(scenario)
        await expect_given_back(scenario)
        await suspend(scenario, world.manager, False)
        await scenario.expect_pods(running=1)
    job = await world.manager.get(scenario.resource, scenario.name, NAMESPACE)
    assert Waiting.from_manifest(job) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_is_suspended_is_resumed_and_says_so(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "copy")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [slice] = await scenario.expect_unfinished(1)
    worker = await scenario.worker()
    await suspend(scenario, worker, True)
    assert "on the manager's cluster" in await scenario.expect_event("SuspensionUndone", on=worker)

    async def is_resumed() -> bool:
        return (await scenario.worker_job())["spec"]["suspend"] is False

    # Its pods are the same ones where its controller has not seen the suspension before it was undone.
    await eventually(is_resumed, "it is resumed")
    await scenario.expect_pods(running=1)
    [after] = await scenario.expect_unfinished(1)
    assert (after.name, after.admission) == (slice.name, slice.admission), "it has kept its quota"
    # Who does it again is answered later, told on the manager's job, and holds nobody up.
    await suspend(scenario, worker, True)
    assert "again and again" in await scenario.expect_event("SuspendedOnWorker", on=world.manager)
    other = Scenario(world, kind, "other")
    await other.submit()
    await other.expect_pods(running=1)
    assert (await scenario.worker_job())["spec"]["suspend"] is True


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
async def test_a_job_that_the_manager_has_suspended_stays_so_without_its_mark(world: World, kind: str) -> None:
    """To set `spec.suspend` once more changes nothing on the object, so an Event says what does."""

    async def stop(policy: str) -> None:
        body = MergePatch({"spec": {"stopPolicy": policy}})
        await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)

    await set_quota(world, 20)
    scenario = Scenario(world, kind, "kept")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await stop("HoldAndDrain")
    assert api_names.SUSPENDED_ANNOTATION in await scenario.expect_event("Suspended", on=world.manager)
    await expect_given_back(scenario)
    unmarked = MergePatch({"metadata": {"annotations": {api_names.SUSPENDED_ANNOTATION: None}}})
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, unmarked)
    await expect_told(scenario)
    await stop("None")
    other = Scenario(world, kind, "other")
    await other.submit()
    await other.expect_pods(running=1)
    assert await scenario.running() == set()
    await suspend(scenario, world.manager, False)
    await scenario.expect_pods(running=1)
