"""A slice whose admission the API server refuses keeps its quota from nobody, and preempts for it ever less often.

One whose eviction it refuses is no victim for a while: others lose their quota in its place, or what is free goes to
others.
"""

import asyncio

import pytest

from slicebus.proto.errors import ForbiddenError, InvalidError, SlicebusError, WebhookError
from slicebus.sandbox.apiserver.patches import merge_patch
from unit.kube.loop_time import LoopTime
from unit.manager.test_admitter import World, a_pending, a_queue, admitting

FOR_EVER = 100_000
REFUSALS = [ForbiddenError("403"), InvalidError("422"), WebhookError("500")]


def submit(world: World, name: str, priority: int) -> None:
    world.write(merge_patch(a_pending(name), {"spec": {"priority": priority}}))


def preempting(cpu: int) -> World:
    """A world whose queue has priorities."""
    world = World(cpu=cpu)
    policy = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    world.store.cluster_queues.put(merge_patch(a_queue(cpu, version=2), policy))
    return world


def evicted(world: World, name: str) -> bool:
    return any(condition["type"] == "Evicted" for condition in world.workload(name)["status"]["conditions"])


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_others_get_the_quota_of_one_that_the_server_refuses_for_ever(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World(cpu=1)
    world.errors = {"high": [error] * FOR_EVER}
    submit(world, "high", 10)
    submit(world, "low", 0)
    async with admitting(world):
        await asyncio.sleep(120)
    assert world.admitted == ["low"]


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_one_that_the_server_takes_again_is_admitted_with_what_is_free(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = World(cpu=1)
    world.errors = {"high": [error] * FOR_EVER}
    submit(world, "high", 10)
    async with admitting(world):
        await asyncio.sleep(120)
        world.errors.clear()
        await asyncio.sleep(35)
    assert world.admitted == ["high"]


async def test_one_that_is_refused_evicts_others_ever_less_often(jumping: LoopTime) -> None:
    """It gets the quota of its victims each time, and the victim is there again a minute later."""
    world = preempting(cpu=1)
    evictions, hours = list[int](), 6
    submit(world, "high", 10)
    async with admitting(world):
        for at in range(hours * 60):
            # The API server refuses each admission, and no other write.
            world.refuses = {"high": InvalidError("422")}
            name = f"low-{len(evictions)}"
            if world.store.workloads.get("team", name) is None:
                submit(world, name, 0)
            await asyncio.sleep(60)
            if evicted(world, name):
                evictions.append(at)
                world.store.workloads.remove(world.workload(name))
    assert hours <= len(evictions) <= 8 + (hours - 1) * 9, evictions
    assert world.admitted in ([], [f"low-{len(evictions)}"])


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_another_one_is_evicted_where_the_server_refuses_to_evict_the_first(
    jumping: LoopTime, error: SlicebusError
) -> None:
    world = preempting(cpu=2)
    for name in ("a", "b"):
        submit(world, name, 0)
    async with admitting(world):
        await asyncio.sleep(5)
        assert world.admitted == ["a", "b"]
        submit(world, "high", 10)
        world.errors = {"a": [error] * FOR_EVER}
        await asyncio.sleep(120)
    assert (evicted(world, "a"), evicted(world, "b")) == (False, True)


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_what_is_free_goes_to_others_where_the_server_refuses_each_eviction(
    jumping: LoopTime, error: SlicebusError
) -> None:
    """A job of two pods preempts one of one, and one more has room for one."""
    world = preempting(cpu=2)
    submit(world, "low", 0)
    async with admitting(world):
        await asyncio.sleep(5)
        world.errors = {"low": [error] * FOR_EVER}
        submit(world, "high", 10)
        world.resize("high", 2)
        submit(world, "small", 0)
        await asyncio.sleep(120)
        assert world.admitted == ["low", "small"]
        tries = len([name for name, _ in world.tried if name == "low"])
        await asyncio.sleep(600)
        assert len([name for name, _ in world.tried if name == "low"]) - tries <= 10
        world.errors.clear()
        world.store.workloads.remove(world.workload("small"))
        await asyncio.sleep(900)
    assert evicted(world, "low")
