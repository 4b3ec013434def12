"""A job that can shrink loses pods to one of higher priority instead of all, and has them back by itself."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from e2e.test_preemption import HIGH, allow_preemption
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    EVENTS,
    JOB_RESOURCES,
    JOBS,
    PODS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
)
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.waiting import Waiting, shown_on
from support import finalizers, roles
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")
POD_SET = {"Job": "main", "RayCluster": "small-group", "RayService": "small-group"}
BOTH = pytest.mark.parametrize("kind", ["Job", "RayCluster"])
REAL_FOR_JOBS = pytest.mark.parametrize("kind", [pytest.param("Job", marks=pytest.mark.real), "RayCluster"])


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


def shrinkable(kind: str, *, size: int = 8, least: int = 2) -> Manifest:
    """A job of a size that is its user's, with its least size."""
    job = elastic(kind, "low")
    job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = f"{POD_SET[kind]}={least}"
    if kind == "Job":
        job["spec"]["parallelism"] = size
    else:
        job["spec"]["enableInTreeAutoscaling"] = False
        job["spec"]["workerGroupSpecs"][0]["replicas"] = size
    return job


async def submit_low(world: World, kind: str, **how: int) -> Scenario:
    """The job that can shrink, with all of its pods."""
    await set_quota(world, 8 if kind == "Job" else 9)
    await allow_preemption(world)
    await world.manager.create(JOB_RESOURCES[kind], shrinkable(kind, **how))
    low = Scenario(world, kind, "low")
    await low.expect_pods(running=how.get("size", 8))
    return low


async def submit_high(world: World, size: int = 4, *, name: str = "high", priority: str = "high") -> Scenario:
    """The job that takes pods of the other."""
    job = objects.job(name, parallelism=size)
    job["metadata"].setdefault("labels", {})[kueue.PRIORITY_CLASS_LABEL] = priority
    await world.manager.create(JOBS, job)
    return Scenario(world, "Job", name)


async def submit_both(world: World, kind: str) -> Scenario:
    """The job that can shrink, after the other one has taken half of its pods."""
    low = await submit_low(world, kind)
    await (await submit_high(world)).expect_pods(running=4)
    await low.expect_unfinished(4, 8)
    return low


async def say(world: World, name: str, value: str | None) -> None:
    """Annotate every ClusterQueue."""
    for queue in (await world.manager.list(CLUSTERQUEUES)).items:
        body = MergePatch({"metadata": {"annotations": {name: value}}})
        await world.manager.patch(CLUSTERQUEUES, queue["metadata"]["name"], None, body)


async def resize_there(low: Scenario, size: int) -> None:
    """As its user does it on the worker."""
    group = JsonPatch([{"op": "add", "path": "/spec/workerGroupSpecs/0/replicas", "value": size}])
    body = MergePatch({"spec": {"parallelism": size}}) if low.kind == "Job" else group
    await (await low.worker()).patch(low.resource, low.name, NAMESPACE, body)


async def expect_note(low: Scenario, **wanted: Any) -> None:
    """Wait until the slice with quota has a note with these fields; without any, until none of the job's has one."""

    async def look() -> bool:
        slices = [slice for slice in await low.chain() if not slice.finished]
        notes = [slice.reclaimed for slice in slices if slice.admission is not None]
        if not wanted:
            return not any(slice.reclaimed for slice in slices)
        [note] = notes
        return note is not None and all(getattr(note, name) == value for name, value in wanted.items())

    await eventually(look, f"{low.name} has the note {wanted}")


async def going(low: Scenario) -> list[Manifest]:
    """The pods of a job that are being deleted."""
    return [pod for pod in await low.pods() if "deletionTimestamp" in pod["metadata"]]


async def expect_going(low: Scenario, count: int) -> None:
    async def look() -> bool:
        return len(await going(low)) == count

    await eventually(look, f"{count} pods of {low.name} are going")


async def events_of(world: World, reason: str) -> list[str]:
    return [each["message"] for each in (await world.manager.list(EVENTS)).items if each["reason"] == reason]


@REAL_FOR_JOBS
async def test_it_loses_pods_and_has_them_back(world: World, urls: dict[str, str], kind: str) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_low(world, kind)
        began, [first] = await low.running(), await low.expect_unfinished(8)
        high = await submit_high(world)
        await high.expect_pods(running=4)
        await low.expect_pods(running=4)
        kept = await low.running()
        assert kept < began, "no pod was made anew"
        told = await low.expect_event(api_names.RECLAIMED, on=world.manager)
        assert told.startswith(f"Took back 4 of 8 pods of {POD_SET[kind]} for {NAMESPACE}/")
        await low.expect_event(api_names.RECLAIMED, on=await low.worker())
        shows = Waiting.from_manifest(await low.worker_job())
        assert shows is not None
        assert (shows.reason, shows.wanted[POD_SET[kind]]) == (api_names.RECLAIMED, 8)
        held, waits = await low.expect_unfinished(4, 8)
        assert (held.key, waits.replaces) == (first.key, first.key)
        assert waits.queued_since == first.conditions["QuotaReserved"]["lastTransitionTime"]

        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=8)
        assert kept < await low.running()
        await low.expect_unfinished(8)

        async def waits_no_more() -> bool:
            return shown_on(await low.worker_job()) is None

        await eventually(waits_no_more, "its worker's job shows no wait")
        await low.expect_event(api_names.RESTORED, on=await low.worker())
        await expect_used(world, "8" if kind == "Job" else "8500m")
        assert not any(slice.evicted for slice in await low.chain())
        assert await events_of(world, "EvictedDueToPreempted") == []


async def test_a_ray_cluster_loses_the_pods_that_wait_first(world: World, urls: dict[str, str]) -> None:
    """KubeRay takes any pods, where none are named."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        await set_quota(world, 7)
        await allow_preemption(world)
        await world.manager.create(JOB_RESOURCES["RayCluster"], shrinkable("RayCluster", size=6))
        low = Scenario(world, "RayCluster", "low")
        await low.expect_pods(running=6)
        began = await low.running()
        await resize_there(low, 8)
        await low.expect_pods(running=6, gated=2)
        await (await submit_high(world)).expect_pods(running=4)
        await low.expect_pods(running=2)
        assert await low.running() < began
        worker = await low.worker()

        async def cleared() -> bool:
            job = await worker.get(low.resource, "low", NAMESPACE)
            return bool(job["spec"]["workerGroupSpecs"][0]["scaleStrategy"] == {"workersToDelete": []})

        await eventually(cleared, "the names of the pods that have gone are taken out")


@BOTH
async def test_it_has_back_what_there_is(world: World, urls: dict[str, str], kind: str) -> None:
    """Two others come, and go one after the other."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_low(world, kind)
        await (await submit_high(world, 3)).expect_pods(running=3)
        await (await submit_high(world, 3, name="more")).expect_pods(running=3)
        await low.expect_pods(running=2)
        await low.expect_unfinished(2, 8)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=5)
        await low.expect_unfinished(8, 8)
        await world.manager.delete(JOBS, "more", NAMESPACE)
        await low.expect_pods(running=8)
        await low.expect_unfinished(8)


@BOTH
@pytest.mark.parametrize("restarts", [False, True], ids=["agent runs", "agent restarts"])
async def test_the_first_does_not_wait_for_pods_that_the_second_takes(
    world: World, urls: dict[str, str], kind: str, restarts: bool
) -> None:
    async with AsyncExitStack() as agents, roles.manager(world, urls):
        await agents.enter_async_context(roles.agent(world, urls, EAST))
        await world.ensure(world.manager, WORKLOADPRIORITYCLASSES, HIGH | {"metadata": {"name": "middle"}, "value": 50})
        low = await submit_low(world, kind)
        worker, pod_set = await low.worker(), POD_SET[kind]
        for pod in await low.pods():
            await finalizers.hold(worker, PODS, pod["metadata"]["name"])

        async def has_earlier_word() -> bool:
            return api_names.EARLIER_WORDS_ANNOTATION in (await low.worker_job())["metadata"]["annotations"]

        first = await submit_high(world, 2)
        await expect_going(low, 2)
        second = await submit_high(world, 2, name="more", priority="middle")
        await eventually(has_earlier_word, "it has heard of both")
        if restarts:
            await agents.aclose()
        for pod in (await going(low))[:2]:
            await finalizers.let_go(worker, PODS, pod["metadata"]["name"])
        if restarts:
            await agents.enter_async_context(roles.agent(world, urls, EAST))
        await first.expect_pods(running=2)
        await low.expect_unfinished(6)
        [slice] = [slice for slice in await low.chain() if not slice.finished]
        assert slice.shrinks_to is not None
        assert slice.shrinks_to[pod_set] == 4
        await expect_going(low, 2)
        for pod in await low.pods():
            await finalizers.let_go(worker, PODS, pod["metadata"]["name"])
        await second.expect_pods(running=2)
        await low.expect_unfinished(4, 8)
        assert not await has_earlier_word()


@BOTH
@pytest.mark.parametrize("size", [3, 6])
async def test_a_resize_on_the_worker_wins(world: World, urls: dict[str, str], kind: str, size: int) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_both(world, kind)
        await resize_there(low, size)
        await expect_note(low)
        await low.expect_unfinished(*([3] if size == 3 else [4, 6]))
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_unfinished(size)
        await low.expect_pods(running=size)


@BOTH
@pytest.mark.parametrize("size", [2, 6])
async def test_a_resize_at_the_manager_wins(world: World, urls: dict[str, str], kind: str, size: int) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_both(world, kind)
        spec: Any = {"parallelism": size}
        if kind == "RayCluster":
            job = await world.manager.get(low.resource, "low", NAMESPACE)
            spec = {"workerGroupSpecs": [job["spec"]["workerGroupSpecs"][0] | {"replicas": size}]}
        await world.manager.patch(low.resource, "low", NAMESPACE, MergePatch({"spec": spec}))
        await expect_note(low)
        await low.expect_unfinished(*([2] if size == 2 else [4, 6]))
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_unfinished(size)
        await low.expect_pods(running=size)


@BOTH
async def test_roles_that_end_in_the_middle(world: World, urls: dict[str, str], kind: str) -> None:
    """The agent is away when pods are taken, and both roles when there is quota again."""
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls):
            async with roles.agent(world, urls, EAST):
                low = await submit_low(world, kind)
            high = await submit_high(world)
            await expect_note(low, to={"main": 4} if kind == "Job" else {"head": 1, "small-group": 4}, done=False)
            await low.expect_pods(running=8)
            async with roles.agent(world, urls, EAST):
                await low.expect_pods(running=4)
                await high.expect_pods(running=4)
                await low.expect_unfinished(4, 8)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await outlasting.enter_async_context(roles.manager(world, urls))
        await outlasting.enter_async_context(roles.agent(world, urls, EAST))
        await low.expect_pods(running=8)
        await low.expect_unfinished(8)


async def test_a_job_that_is_evicted_begins_anew(world: World, urls: dict[str, str]) -> None:
    """What it had lost is forgotten: it comes back at its spec's size."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_both(world, "Job")
        await (await submit_high(world, 3, name="more")).expect_pods(running=3)
        await expect_note(low)
        assert len(await events_of(world, "EvictedDueToPreempted")) == 2, "on the job and on its Workload"
        for name in ("high", "more"):
            await world.manager.delete(JOBS, name, NAMESPACE)
        await low.expect_pods(running=8)
        [slice] = await low.expect_unfinished(8)
        workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
        assert api_names.QUEUED_SINCE_ANNOTATION not in workload["metadata"]["annotations"]


async def test_a_queue_may_let_its_jobs_lose_all_or_nothing(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job")
        await say(world, api_names.PODS_BEFORE_JOBS_ANNOTATION, "false")

        async def is_told() -> bool:
            [slice] = [slice for slice in await low.chain() if not slice.finished]
            return "min-size" in slice.conditions.get(api_names.HONORED_CONDITION, {}).get("message", "")

        await (await submit_high(world)).expect_pods(running=4)
        await low.expect_pods(running=0)
        await eventually(is_told, "the job says that its least size is not honored")
