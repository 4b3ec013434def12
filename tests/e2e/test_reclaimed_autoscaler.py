"""A cluster whose size Ray's autoscaler owns loses pods by that, or by its agent where Ray does not act, and has them
back."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from e2e.test_preemption import allow_preemption
from e2e.test_reclaimed import EAST, expect_note, shrinkable, submit_high
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch
from slicebus.kube.resources import JOB_RESOURCES, JOBS, RAYCLUSTERS
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from slicebus.slices.api import api_names
from support import roles
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
Submit = Callable[[World], Awaitable[Scenario]]
Acts = Callable[[Scenario], Awaitable[None]]
GROUP = "/spec/workerGroupSpecs/0"
MOST, LEAST = f"{GROUP}/maxReplicas", f"{GROUP}/minReplicas"


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def submit_low(world: World, kind: str = "RayCluster") -> Scenario:
    """A cluster of eight workers, which may have ten and has to have one."""
    await set_quota(world, 9)
    await allow_preemption(world)
    job = shrinkable("RayCluster")
    job["spec"]["enableInTreeAutoscaling"] = True
    job["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 1, "maxReplicas": 10}
    await world.manager.create(JOB_RESOURCES[kind], job)
    low = Scenario(world, kind, "low")
    await low.expect_pods(running=8)
    return low


async def group_of(low: Scenario) -> tuple[Manifest, bool]:
    """The group on the worker, and whether a cap is noted."""
    cluster = await (await low.worker()).get(RAYCLUSTERS, "low", NAMESPACE)
    return cluster["spec"]["workerGroupSpecs"][0], api_names.CAPPED_ANNOTATION in cluster["metadata"]["annotations"]


async def expect_most(low: Scenario, most: int, *, capped: bool) -> None:
    async def look() -> bool:
        group, is_capped = await group_of(low)
        return (group["maxReplicas"], is_capped) == (most, capped)

    await eventually(look, f"the workers of {low.name} may be {most}")


async def submit_both(world: World) -> tuple[Scenario, Scenario]:
    """The cluster, capped at half of its workers, and the job that waits for the others."""
    low, high = await submit_low(world), await submit_high(world)
    await expect_most(low, 4, capped=True)
    return low, high


async def by_ray(low: Scenario) -> None:
    await RayAutoscaler(await low.worker(), "low", NAMESPACE).settle()


async def by_nobody(low: Scenario) -> None:
    """Ray does nothing."""


@pytest.mark.parametrize(("acts", "patience_s"), [(by_ray, 60.0), (by_nobody, 1.0)], ids=["Ray acts", "Ray does not"])
async def test_it_loses_pods_and_has_them_back(
    world: World, urls: dict[str, str], acts: Acts, patience_s: float
) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=patience_s):
        low = await submit_low(world)
        began = await low.running()
        high = await submit_high(world)
        await expect_most(low, 4, capped=True)
        await acts(low)
        await low.expect_pods(running=4)
        await high.expect_pods(running=4)
        kept = await low.running()
        assert kept < began
        group, _ = await group_of(low)
        assert group["replicas"] == 4
        await low.expect_unfinished(4, 8)

        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=8)
        assert kept < await low.running()
        await low.expect_unfinished(8)
        await expect_most(low, 10, capped=False)


async def test_what_its_user_allows_meanwhile_stands(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=60.0):
        low, high = await submit_both(world)
        await by_ray(low)
        await high.expect_pods(running=4)
        patch = JsonPatch([{"op": "replace", "path": MOST, "value": 6}])
        await (await low.worker()).patch(RAYCLUSTERS, "low", NAMESPACE, patch)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_unfinished(4)
        await expect_note(low)
        await expect_most(low, 6, capped=False)
        await low.expect_pods(running=4)


async def test_a_least_size_that_is_raised_on_the_worker_keeps_nobody_waiting(
    world: World, urls: dict[str, str]
) -> None:
    """KubeRay does nothing for a group whose least size is above its greatest one."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=3.0):
        low, high = await submit_both(world)
        patch = JsonPatch([{"op": "replace", "path": LEAST, "value": 7}])
        await (await low.worker()).patch(RAYCLUSTERS, "low", NAMESPACE, patch)
        await high.expect_pods(running=4)
        await low.expect_pods(running=4)
        group, _ = await group_of(low)
        assert group["minReplicas"] == 4
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=8)
        await expect_most(low, 10, capped=False)
        group, _ = await group_of(low)
        assert group["minReplicas"] == 7


async def test_bounds_that_come_from_the_manager_leave_the_cap(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=60.0):
        low, high = await submit_both(world)
        await by_ray(low)
        await high.expect_pods(running=4)
        wider = [{"op": "replace", "path": path, "value": value} for path, value in ((MOST, 20), (LEAST, 2))]
        await world.manager.patch(RAYCLUSTERS, "low", NAMESPACE, JsonPatch(wider))

        async def is_noted() -> bool:
            cluster = await (await low.worker()).get(RAYCLUSTERS, "low", NAMESPACE)
            return '"most":20' in cluster["metadata"]["annotations"].get(api_names.CAPPED_ANNOTATION, "")

        await eventually(is_noted, "the wider bounds are noted for later")
        await expect_most(low, 4, capped=True)
        await low.expect_unfinished(4, 8)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=8)
        await expect_most(low, 20, capped=False)


async def test_a_smaller_size_that_ray_wants_by_itself_stands(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=60.0):
        low, high = await submit_both(world)
        scaler = RayAutoscaler(await low.worker(), "low", NAMESPACE)
        await scaler.scale(3)
        await scaler.settle()
        await high.expect_pods(running=4)
        await expect_note(low)
        await low.expect_unfinished(3)
        await expect_most(low, 10, capped=False)
