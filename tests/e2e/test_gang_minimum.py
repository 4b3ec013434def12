"""A gang loses pods to one of higher priority down to the minimum that it was made with, and below that all of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.test_preemption import allow_preemption
from e2e.test_reclaimed import events_of, submit_high
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, WORKLOADS
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names
from support import roles
from support.scenario import NAMESPACE, Scenario, set_quota
from support.schedulers import GROVE, KAI, VOLCANO, Backend, chosen, install, made_for, open_queue, profiles, remove
from support.waiting import eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")
MIN = api_names.MIN_SIZE_ANNOTATION
MINIMUM = {
    KAI: lambda spec: spec["subGroups"][0]["minMember"],
    VOLCANO: lambda spec: spec["subGroupPolicy"][0]["subGroupSize"],
    GROVE: lambda spec: spec["podgroups"][0]["minReplicas"],
}


@pytest.fixture(params=[KAI, VOLCANO, GROVE], ids=["kai", "volcano", "grove"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


@pytest.fixture
async def world(bare_east: World, backend: Backend) -> AsyncIterator[World]:
    """Clusters without roles, with the backend's definitions on the worker."""
    east = bare_east.workers[EAST]
    await install(east, backend)
    await open_queue(east, backend)
    await set_quota(bare_east, 8)
    await allow_preemption(bare_east)
    yield bare_east
    await remove(east, backend)


async def submit_low(world: World, backend: Backend, *, least: int | None) -> Scenario:
    """A gang of eight pods that run, when the manager knows its minimum."""
    job = chosen(objects.job("low", parallelism=8), backend)
    job["metadata"]["annotations"] |= {MIN: f"main={least}"} if least is not None else {}
    await world.manager.create(JOBS, job)
    low = Scenario(world, "Job", "low")
    await low.expect_pods(running=8)
    minimum = 8 if least is None else least
    [group] = await made_for(world.workers[EAST], backend, "low")
    assert MINIMUM[backend](group["spec"]) == minimum

    async def is_noted() -> bool:
        [slice] = await low.chain()
        workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
        return workload["metadata"]["annotations"].get(api_names.GANG_ANNOTATION) == f'{{"main":{minimum}}}'

    await eventually(is_noted, f"the Workload says that {minimum} pods start together")
    return low


async def say_least(low: Scenario, least: int) -> None:
    """Its user says another least size, which the manager has heard."""
    body = MergePatch({"metadata": {"annotations": {MIN: f"main={least}"}}})
    await low.world.manager.patch(JOBS, low.name, NAMESPACE, body)

    async def is_taken() -> bool:
        return all(slice.elasticity.least == {"main": least} for slice in await low.chain())

    await eventually(is_taken, f"its slices say {least}")


async def test_a_gang_shrinks_to_its_minimum_and_no_further(
    world: World, urls: dict[str, str], backend: Backend
) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=profiles(backend)):
        low = await submit_low(world, backend, least=2)
        began = await low.running()
        await say_least(low, 1)
        told = await low.expect_event("NotHonored", on=world.manager)
        assert "keeps main=2 until it starts anew" in told
        await (await submit_high(world, 6)).expect_pods(running=6)
        await low.expect_pods(running=2)
        assert await low.running() < began, "no pod was made anew"
        [group] = await made_for(world.workers[EAST], backend, "low")
        assert MINIMUM[backend](group["spec"]) == 2
        assert await events_of(world, "EvictedDueToPreempted") == []

        more = await submit_high(world, 1, name="more")
        await more.expect_pods(running=1)
        await low.expect_pods(running=0)
        assert len(await events_of(world, "EvictedDueToPreempted")) == 2, "on the job and on its Workload"

        for name in ("high", "more"):
            await world.manager.delete(JOBS, name, NAMESPACE)
        await low.expect_pods(running=8)
        [group] = await made_for(world.workers[EAST], backend, "low")
        assert MINIMUM[backend](group["spec"]) == 1, "it starts anew with its least size"


async def test_a_gang_of_its_whole_size_loses_all_of_its_pods(
    world: World, urls: dict[str, str], backend: Backend
) -> None:
    """It was made before its user said a least size."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=profiles(backend)):
        low = await submit_low(world, backend, least=None)
        await say_least(low, 1)
        await (await submit_high(world, 1)).expect_pods(running=1)
        await low.expect_pods(running=0)
        assert len(await events_of(world, "EvictedDueToPreempted")) == 2, "on the job and on its Workload"
        assert await events_of(world, api_names.RECLAIMED) == []
