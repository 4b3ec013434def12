"""A job with a greatest size grows into quota that nobody waits for, and whoever comes gets that back at once."""

from typing import Any

import msgspec
import pytest

from e2e.test_preemption import allow_preemption
from e2e.test_reclaimed import BOTH, EAST, POD_SET, REAL_FOR_JOBS, resize_there, say
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, JOBS
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.slices.api import api_names, kueue
from support import roles
from support.scenario import Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
OFTEN = ManagerDecisionSettings(idle_growth_s=2.0, idle_headroom=0.0)


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def submit(world: World, kind: str, *, size: int = 2, most: int = 6, quota: int = 6) -> Scenario:
    """A job of a high priority that takes more than its size."""
    await set_quota(world, quota if kind == "Job" else quota + 1)
    await allow_preemption(world)
    job = elastic(kind, "takes")
    job["metadata"]["annotations"][api_names.MAX_SIZE_ANNOTATION] = f"{POD_SET[kind]}={most}"
    job["metadata"].setdefault("labels", {})[kueue.PRIORITY_CLASS_LABEL] = "high"
    if kind == "Job":
        job["spec"]["parallelism"] = size
    else:
        cluster = job["spec"].get("rayClusterConfig", job["spec"])
        cluster["enableInTreeAutoscaling"] = False
        cluster["workerGroupSpecs"][0] |= {"replicas": size, "maxReplicas": 50}
    await world.manager.create(JOB_RESOURCES[kind], job)
    return Scenario(world, kind, "takes")


async def submit_other(world: World, size: int, name: str = "other") -> Scenario:
    """A job without a priority: the policies let it preempt nobody."""
    await world.manager.create(JOBS, objects.job(name, parallelism=size))
    return Scenario(world, "Job", name)


async def expect_asked(takes: Scenario, asked: int | None) -> None:
    """Wait until the job's slices say that so many of its pods are asked for; None: all of them are."""

    async def look() -> bool:
        found = [slice.asked_counts for slice in await takes.chain() if not slice.finished]
        sizes = [counts[POD_SET[takes.kind]] if counts is not None else None for counts in found]
        return sizes == [asked]

    await eventually(look, f"{takes.name} asks for {asked} pods")


@REAL_FOR_JOBS
async def test_it_grows_and_gives_way(world: World, urls: dict[str, str], kind: str) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        takes = await submit(world, kind)
        await takes.expect_pods(running=2)
        began = await takes.running()
        await takes.expect_pods(running=6)
        assert began < await takes.running()
        await takes.expect_unfinished(6)
        await expect_asked(takes, 2)
        told = await takes.expect_event(api_names.GROWN, on=world.manager)
        assert f"{POD_SET[kind]}=6 in quota that nobody waits for" in told
        await takes.expect_event(api_names.GROWN, on=await takes.worker())
        await expect_used(world, "6" if kind == "Job" else "6500m")

        other = await submit_other(world, 3)
        await other.expect_pods(running=3)
        await takes.expect_pods(running=3)
        assert began & await takes.running()
        await takes.expect_event(api_names.RECLAIMED, on=world.manager)
        await (await submit_other(world, 1, "last")).expect_pods(running=1)
        await takes.expect_pods(running=2)
        await takes.expect_unfinished(2)
        waits = await submit_other(world, 1, "waits")
        await waits.expect_unfinished(1)

        for name in ("other", "last", "waits"):
            await world.manager.delete(JOBS, name, objects.NAMESPACE)
        await takes.expect_pods(running=6)
        await expect_asked(takes, 2)
        assert not any(slice.evicted for slice in await takes.chain())


@BOTH
@pytest.mark.parametrize("size", [4, 7])
async def test_a_resize_on_the_worker_wins(world: World, urls: dict[str, str], kind: str, size: int) -> None:
    seldom = msgspec.structs.replace(OFTEN, idle_growth_s=4.0)
    async with roles.manager(world, urls, decisions=seldom), roles.agent(world, urls, EAST):
        takes = await submit(world, kind, most=7, quota=7)
        await takes.expect_pods(running=7)
        await resize_there(takes, size)
        if size < 7:
            await takes.expect_pods(running=size)
            await expect_asked(takes, None)
            await takes.expect_pods(running=7)
        await expect_asked(takes, size if size < 7 else 2)


async def test_a_resize_at_the_manager_wins(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        takes = await submit(world, "Job")
        await takes.expect_pods(running=6)
        await world.manager.patch(JOBS, "takes", objects.NAMESPACE, MergePatch({"spec": {"parallelism": 3}}))
        await takes.expect_pods(running=6)
        await expect_asked(takes, 3)


async def test_the_cluster_that_serves_grows_too(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        takes = await submit(world, "RayService")
        await takes.expect_pods(running=6)
        await expect_asked(takes, 2)
        began = await takes.running()
        await (await submit_other(world, 3)).expect_pods(running=3)
        await takes.expect_pods(running=3)
        assert await takes.running() < began
        await world.manager.delete(JOBS, "other", objects.NAMESPACE)
        await takes.expect_pods(running=6)


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
async def test_a_smaller_greatest_size_gives_pods_back(world: World, urls: dict[str, str], kind: str) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        takes = await submit(world, kind)
        await takes.expect_pods(running=6)
        await expect_asked(takes, 2)
        for most, left in ((f"{POD_SET[kind]}=4", 4), (None, 2)):
            began = await takes.running()
            body = MergePatch({"metadata": {"annotations": {api_names.MAX_SIZE_ANNOTATION: most}}})
            await world.manager.patch(takes.resource, takes.name, objects.NAMESPACE, body)
            await takes.expect_pods(running=left)
            assert await takes.running() < began
            await takes.expect_unfinished(left)
            await expect_asked(takes, 2 if left > 2 else None)


async def test_a_queue_may_say_no(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        await say(world, api_names.OPPORTUNISTIC_ANNOTATION, "false")
        takes = await submit(world, "Job")
        await takes.expect_pods(running=2)
        assert len(await takes.running()) == 2
        await say(world, api_names.OPPORTUNISTIC_ANNOTATION, None)
        await takes.expect_pods(running=6)


async def test_an_eviction_brings_it_back_as_it_was_asked_for(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, decisions=OFTEN), roles.agent(world, urls, EAST):
        takes = await submit(world, "Job")
        await takes.expect_pods(running=6)
        [queue] = (await world.manager.list(CLUSTERQUEUES)).items
        name = queue["metadata"]["name"]
        await world.manager.patch(CLUSTERQUEUES, name, None, MergePatch({"spec": {"stopPolicy": "HoldAndDrain"}}))
        await takes.expect_pods(running=0)
        [slice] = await takes.expect_unfinished(2)
        assert slice.reclaimed is None
