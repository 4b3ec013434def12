"""Somebody deletes a job's Workload on its worker: no pod starts while nothing says what it is charged for."""

from contextlib import AsyncExitStack

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.resources import PODS, WORKLOADS
from slicebus.slices.workload.waiting import WORKLOAD_MISSING
from support import roles
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def delete_copies(scenario: Scenario) -> None:
    worker = await scenario.worker()
    for copy in (await worker.list(WORKLOADS, namespace=NAMESPACE)).items:
        await worker.delete(WORKLOADS, copy["metadata"]["name"], NAMESPACE)


async def test_pods_wait_for_the_manager_to_send_it_again(world: World, urls: dict[str, str]) -> None:
    await set_quota(world, 10)
    scenario = Scenario(world, "Job", "train")
    async with AsyncExitStack() as manager:
        await manager.enter_async_context(roles.manager(world, urls))
        async with roles.agent(world, urls, "east"):
            await scenario.submit()
            await scenario.expect_pods(running=1)
            worker, [before] = await scenario.worker(), await scenario.pods()
            await manager.aclose()
            await delete_copies(scenario)
            await worker.delete(PODS, before["metadata"]["name"], NAMESPACE)
            await scenario.expect_pods(running=0, gated=1)
            told = await scenario.expect_event(WORKLOAD_MISSING, on=worker)
            assert "somebody has deleted the job's Workload on this cluster" in told
            async with roles.manager(world, urls):
                await scenario.expect_pods(running=1)


async def test_it_is_there_again_at_once(world: World, urls: dict[str, str]) -> None:
    """Not with the next regular inventory, and growth goes on."""
    await set_quota(world, 10)
    scenario = Scenario(world, "RayCluster", "grid")
    async with roles.manager(world, urls), roles.agent(world, urls, "east", inventory_s=3600.0):
        await scenario.submit()
        await scenario.expect_pods(running=1)
        await delete_copies(scenario)
        worker = await scenario.worker()

        async def is_there() -> bool:
            return bool((await worker.list(WORKLOADS, namespace=NAMESPACE)).items)

        await eventually(is_there, "the copy is made again")
        await scenario.scale(3)
        await scenario.expect_pods(running=3)
