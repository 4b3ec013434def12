"""Somebody on the worker deletes a job without its pods: they keep its quota, and the manager's job says why."""

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES, PODS
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import Waiting
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.waiting import eventually


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
async def test_a_cluster_that_is_left_alone_is_told_until_it_is_gone(world: World, kind: str) -> None:
    scenario, worker = await left_alone(world, kind)
    assert "its RayCluster: " in await scenario.expect_event("PodsOrphaned", on=world.manager)
    for resource in (JOB_RESOURCES["RayCluster"], JOB_RESOURCES["Job"]):
        for made in (await worker.list(resource, namespace=NAMESPACE)).items:
            await worker.delete(resource, made["metadata"]["name"], NAMESPACE)
    await expect_gone(world, scenario)
    await expect_used(world, "0")


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
async def test_what_they_hold_is_told_until_they_are_gone(world: World, kind: str) -> None:
    scenario, worker = await left_alone(world, kind)
    assert "without its pods" in await scenario.expect_event("PodsOrphaned", on=world.manager)
    job = await world.manager.get(scenario.resource, "left", NAMESPACE)
    shown = Waiting.from_manifest(job)
    assert shown is not None
    assert (shown.reason, api_names.WAITING_ANNOTATION in job["metadata"]["annotations"]) == ("PodsOrphaned", True)
    pods = (await worker.list(PODS, namespace=NAMESPACE)).items
    for pod in pods:
        await worker.delete(PODS, pod["metadata"]["name"], NAMESPACE)

    await expect_gone(world, scenario)
    await expect_used(world, "0")
    await scenario.expect_nothing_left()


async def left_alone(world: World, kind: str) -> tuple[Scenario, KubeClient]:
    """A job that ran, and that somebody has deleted on its worker without what it made; and that worker."""
    await set_quota(world, 10)
    scenario = Scenario(world, kind, "left")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    worker = await scenario.worker()
    await worker.delete(scenario.resource, "left", NAMESPACE, propagation="Orphan")
    return scenario, worker


async def expect_gone(world: World, scenario: Scenario) -> None:
    """Wait until the manager's job has gone too."""

    async def is_gone() -> bool:
        return not (await world.manager.list(scenario.resource, namespace=NAMESPACE)).items

    await eventually(is_gone, "the job goes as if its user had deleted it with its pods")
