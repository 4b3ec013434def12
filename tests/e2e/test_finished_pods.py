"""Three of a Job's five pods have succeeded: its quota is two, and another job gets the rest."""

from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS
from slicebus.slices.workload.workload import Slice
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]


async def submitted(world: World, name: str, pods: int) -> Scenario:
    manifest = elastic("Job", name)
    manifest["spec"] |= {"completions": pods, "parallelism": pods}
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def succeed(scenario: Scenario, count: int) -> None:
    """So many of the job's pods that run end well."""
    running = [pod for pod in await scenario.pods() if pod.get("status", {}).get("phase") == "Running"]
    worker = await scenario.worker()
    for pod in running[:count]:
        body = MergePatch({"status": {"phase": "Succeeded", "conditions": []}})
        await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")


async def reclaimed(scenario: Scenario, count: int) -> Slice:
    async def look() -> Slice | None:
        found = [slice for slice in await scenario.chain() if not slice.finished]
        return found[0] if len(found) == 1 and found[0].reclaimable == {"main": count} else None

    return await eventually(look, f"{count} pods of {scenario.name} are reclaimable")


@pytest.mark.real
async def test_finished_pods_give_their_quota_back(world: World) -> None:
    await set_quota(world, 5)
    first = await submitted(world, "first", 5)
    await first.expect_pods(running=5)
    second = await submitted(world, "second", 3)
    await second.expect_unfinished(3)
    assert (await second.chain())[0].admission is None

    await succeed(first, 3)
    surviving = await first.running()
    slice = await reclaimed(first, 3)
    assert (slice.counts, slice.granted, slice.usage) == ({"main": 5}, {"main": 2}, {("default", "cpu"): 2000})
    await second.expect_pods(running=3)
    await first.expect_pods(running=2)
    assert await first.running() == surviving

    async def is_mirrored() -> bool:
        job = await world.manager.get(JOBS, "first", NAMESPACE)
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (5, 5)
        return bool(job["status"].get("succeeded") == 3)

    await eventually(is_mirrored, "the manager's job counts the three")

    await succeed(first, 2)

    async def over() -> bool:
        return all(slice.finished for slice in await first.chain())

    await eventually(over, "the first job has ended")
    third = await submitted(world, "third", 2)
    await third.expect_pods(running=2)
