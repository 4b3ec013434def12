"""A queue spends its budget: who comes waits until something is back, also after a take-over, or who spends goes."""

import orjson
import pytest

from e2e.test_eviction import expect_condition, expect_no_pods
from e2e.test_reclaimed import EAST
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition
from support import roles
from support.scenario import Scenario, set_quota
from support.waiting import eventually


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def submit(world: World, name: str) -> Scenario:
    """A job of two cores."""
    await world.manager.create(JOBS, objects.job(name, parallelism=2))
    return Scenario(world, "Job", name)


async def give_budget(world: World, mode: str) -> None:
    """What two cores spend in four seconds, in thirty."""
    await set_quota(world, 8)
    [queue] = (await world.manager.list(CLUSTERQUEUES)).items
    budget = orjson.dumps({"cpu": "0.00223h/30s"}).decode()
    said = {api_names.BUDGET_ANNOTATION: budget, api_names.BUDGET_MODE_ANNOTATION: mode}
    await world.manager.patch(
        CLUSTERQUEUES, queue["metadata"]["name"], None, MergePatch({"metadata": {"annotations": said}})
    )


async def expect_spent(world: World) -> None:
    async def look() -> bool:
        [queue] = (await world.manager.list(CLUSTERQUEUES)).items
        conditions = queue.get("status", {}).get("conditions", ())
        return any((one["type"], one["status"]) == (api_names.BUDGET_CONDITION, "False") for one in conditions)

    await eventually(look, "the budget is spent")


async def expect_waits(scenario: Scenario) -> None:
    async def look() -> bool:
        reserved = [slice.conditions.get(Condition.QUOTA_RESERVED, {}) for slice in await scenario.chain()]
        return [one.get("reason") for one in reserved] == [api_names.BUDGET_SPENT]

    await eventually(look, f"{scenario.name} waits for the budget")


async def test_whoever_comes_waits_until_something_is_back(world: World, urls: dict[str, str]) -> None:
    await give_budget(world, "hard")
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        first = await submit(world, "first")
        await first.expect_pods(running=2)
        await expect_spent(world)
        second = await submit(world, "second")
        await expect_waits(second)
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        third = await submit(world, "third")
        await expect_waits(third)
        await first.expect_pods(running=2)
        await world.manager.delete(JOBS, "first", objects.NAMESPACE)
        await second.expect_pods(running=2)


async def test_whoever_spends_goes_and_comes_back_with_the_budget(world: World, urls: dict[str, str]) -> None:
    await give_budget(world, "drain")
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        job = await submit(world, "job")
        await job.expect_pods(running=2)
        await expect_condition(job, Condition.EVICTED, "True", api_names.BUDGET_SPENT)
        await expect_no_pods(job)
        await job.expect_pods(running=2)
        await expect_condition(job, Condition.REQUEUED, "True", "BudgetBack")
