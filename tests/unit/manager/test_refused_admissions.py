"""A slice whose admission the API server refuses keeps its quota from nobody, and preempts for it ever less often."""

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
    world = World(cpu=1)
    queue = merge_patch(a_queue(1), {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
    world.store.cluster_queues.put(queue)
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
            if any(condition["type"] == "Evicted" for condition in world.workload(name)["status"]["conditions"]):
                evictions.append(at)
                world.store.workloads.remove(world.workload(name))
    assert len(evictions) <= 8 + (hours - 1) * 9, evictions
    assert world.admitted in ([], [f"low-{len(evictions)}"])
