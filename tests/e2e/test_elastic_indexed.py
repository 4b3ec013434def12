"""Indexed Jobs with as many completions as pods: both travel with a resize, and the end names every index. What others
take lowers the completions too, unless these are to stay."""

from contextlib import suppress
from typing import Any

import pytest

from e2e.test_preemption import allow_preemption
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, PODS, WORKERCLUSTERS
from slicebus.proto.errors import NotFoundError
from slicebus.sandbox.controllers.job_indexes import INDEX
from slicebus.slices.api import api_names, kueue
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]


async def submitted(
    world: World, pods: int, *, quota: int = 10, least: int | None = None, follows: bool = True, **spec: Any
) -> Scenario:
    await set_quota(world, quota)
    manifest = objects.job("sweep", parallelism=pods)
    if least is not None:
        manifest["metadata"].setdefault("annotations", {})[api_names.MIN_SIZE_ANNOTATION] = f"main={least}"
    if not follows:
        manifest["metadata"].setdefault("annotations", {})[kueue.SYNC_COMPLETIONS_ANNOTATION] = "false"
    manifest["spec"] |= {"completions": pods, "completionMode": "Indexed"} | spec
    await world.manager.create(JOBS, manifest)
    scenario = Scenario(world, "Job", "sweep")
    await scenario.expect_pods(running=pods)
    return scenario


async def resize(client: KubeClient, pods: int, completions: int, **spec: Any) -> None:
    body = MergePatch({"spec": {"parallelism": pods, "completions": completions} | spec})
    await client.patch(JOBS, "sweep", NAMESPACE, body)


async def succeed(scenario: Scenario, *, all_of: int) -> None:
    """Every pod ends well, until so many have; the copy goes soon after its end."""
    worker = await scenario.worker()

    async def look() -> bool:
        for pod in await scenario.pods():
            if pod.get("status", {}).get("phase") == "Running":
                body = MergePatch({"status": {"phase": "Succeeded", "conditions": []}})
                with suppress(NotFoundError):
                    await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")
        try:
            status = (await scenario.worker_job()).get("status", {})
        except NotFoundError:
            return True
        return bool(status.get("succeeded") == all_of)

    await eventually(look, f"{all_of} pods have succeeded")


async def expect_size(client: KubeClient, pods: int, completions: int) -> None:
    async def look() -> bool:
        spec = (await client.get(JOBS, "sweep", NAMESPACE))["spec"]
        return (spec["parallelism"], spec["completions"]) == (pods, completions)

    await eventually(look, f"the Job on {client.host} has {pods} pods of {completions}")


async def expect_end(scenario: Scenario, indexes: str, completions: int) -> None:
    """The manager's job is complete with these indexes, and its quota is free."""
    manager = scenario.world.manager

    async def look() -> bool:
        job = await manager.get(JOBS, "sweep", NAMESPACE)
        ended = {entry["type"] for entry in job["status"].get("conditions", ()) if entry["status"] == "True"}
        shown = job["spec"]["completions"], job["status"].get("succeeded"), job["status"].get("completedIndexes")
        return "Complete" in ended and shown == (completions, completions, indexes)

    await eventually(look, f"the manager's job is complete with {completions} completions, the indexes {indexes}")
    await expect_used(scenario.world, "0")


def indexes_of(count: int) -> str:
    """As Kubernetes writes them."""
    return "0,1" if count == 2 else f"0-{count - 1}"


RESIZES = {"grown": (2, 4), "shrunk": (4, 2)}


@pytest.mark.real
@pytest.mark.parametrize(("before", "after"), RESIZES.values(), ids=RESIZES.keys())
async def test_a_resize_where_it_runs_reaches_its_end(world: World, before: int, after: int) -> None:
    scenario = await submitted(world, before)
    await resize(await scenario.worker(), after, after)
    await scenario.expect_pods(running=after)
    await scenario.expect_unfinished(after)
    await expect_size(world.manager, before, before)
    await succeed(scenario, all_of=after)
    await expect_end(scenario, indexes_of(after), after)


@pytest.mark.parametrize(("before", "after"), RESIZES.values(), ids=RESIZES.keys())
async def test_a_resize_on_the_manager_reaches_the_worker(world: World, before: int, after: int) -> None:
    scenario = await submitted(world, before)
    await resize(world.manager, after, after)
    await expect_size(await scenario.worker(), after, after)
    await scenario.expect_pods(running=after)
    await scenario.expect_unfinished(after)
    await succeed(scenario, all_of=after)
    await expect_end(scenario, indexes_of(after), after)


async def test_less_parallelism_alone_leaves_the_completions(world: World) -> None:
    scenario = await submitted(world, 3)
    await resize(world.manager, 1, 3)
    await expect_size(await scenario.worker(), 1, 3)
    await scenario.expect_pods(running=1)
    await scenario.expect_unfinished(1)
    await succeed(scenario, all_of=3)
    await expect_end(scenario, "0-2", 3)


async def test_completions_that_differ_from_the_pods_are_set_in_two_steps(world: World) -> None:
    """The worker's Job got fewer completions than the manager's has, whose parallelism is then edited."""
    scenario = await submitted(world, 4)
    worker = await scenario.worker()
    await resize(worker, 2, 2)
    await scenario.expect_unfinished(2)
    await resize(world.manager, 3, 4)
    await expect_size(worker, 3, 4)
    await scenario.expect_pods(running=3)
    await succeed(scenario, all_of=4)
    await expect_end(scenario, "0-3", 4)


@pytest.mark.parametrize("indexes", [0, 3], ids=["none done", "some done"])
async def test_an_eviction_brings_both_back_to_the_spec(world: World, indexes: int) -> None:
    scenario = await submitted(world, 2)
    worker = await scenario.worker()
    await resize(worker, 4, 4)
    await scenario.expect_pods(running=4)
    for pod in (await scenario.pods())[:indexes]:
        body = MergePatch({"status": {"phase": "Succeeded", "conditions": []}})
        await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")
    stop = {"spec": {"stopPolicy": "HoldAndDrain"}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch(stop))
    await expect_used(world, "0")
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": "None"}}))
    await expect_size(worker, 2, 2)
    await succeed(scenario, all_of=2)
    await expect_end(scenario, "0,1", 2)


async def preempted(world: World, *, done: int, follows: bool, **spec: Any) -> Scenario:
    """Of six indexes so many have succeeded, and another job takes pods of the others until three are left."""
    scenario = await submitted(world, 6, quota=6, least=2, follows=follows, **spec)
    await allow_preemption(world)
    worker = await scenario.worker()
    for pod in await scenario.pods():
        if int(pod["metadata"]["labels"][INDEX]) < done:
            body = MergePatch({"status": {"phase": "Succeeded", "conditions": []}})
            await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")
    await expect_used(world, str(6 - done))
    high = objects.job("high", parallelism=3)
    high["metadata"].setdefault("labels", {})[kueue.PRIORITY_CLASS_LABEL] = "high"
    await world.manager.create(JOBS, high)
    await Scenario(world, "Job", "high").expect_pods(running=3)
    await expect_size(worker, *((3 + done, 3 + done) if follows else (3, 6)))
    await scenario.expect_pods(running=3)
    await expect_size(world.manager, 6, 6)
    return scenario


@pytest.mark.real
async def test_a_preemption_takes_pods_and_leaves_each_index(world: World) -> None:
    """The job ends before it has its pods back, with all of its indexes."""
    scenario = await preempted(world, done=0, follows=False)
    await succeed(scenario, all_of=6)
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await expect_end(scenario, "0-5", 6)


async def test_pods_come_back_for_the_indexes_that_are_left(world: World) -> None:
    scenario = await preempted(world, done=0, follows=False)
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await expect_size(await scenario.worker(), 6, 6)
    await scenario.expect_pods(running=6)
    await succeed(scenario, all_of=6)
    await expect_end(scenario, "0-5", 6)


async def test_a_preemption_takes_the_highest_index_that_runs_where_completions_follow(world: World) -> None:
    """Two have succeeded before, and all of them do in the end."""
    scenario = await preempted(world, done=2, follows=True)
    worker = await scenario.worker()
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await expect_size(worker, 6, 6)
    await scenario.expect_pods(running=4)
    await succeed(scenario, all_of=6)
    await expect_end(scenario, "0-5", 6)


FAILURES: Manifest = {"backoffLimitPerIndex": 1, "maxFailedIndexes": 5}
"""An API server takes no fewer completions than indexes that may fail."""


async def test_a_preemption_leaves_fewer_completions_than_may_fail(world: World) -> None:
    scenario = await preempted(world, done=0, follows=True, **FAILURES)
    assert (await scenario.worker_job())["spec"]["maxFailedIndexes"] == 3
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await expect_size(await scenario.worker(), 6, 6)
    assert (await scenario.worker_job())["spec"]["maxFailedIndexes"] == 5


async def test_the_manager_lowers_what_may_fail_with_the_completions(world: World) -> None:
    scenario = await submitted(world, 6, **FAILURES)
    await resize(world.manager, 2, 2, maxFailedIndexes=1)
    await expect_size(await scenario.worker(), 2, 2)
    assert (await scenario.worker_job())["spec"]["maxFailedIndexes"] == 1
    await scenario.expect_pods(running=2)


async def test_an_end_with_fewer_completions_than_may_fail_is_shown(world: World) -> None:
    scenario = await submitted(world, 6, **FAILURES)
    await resize(await scenario.worker(), 2, 2, maxFailedIndexes=2)
    await scenario.expect_pods(running=2)
    await succeed(scenario, all_of=2)
    await expect_end(scenario, "0,1", 2)


async def test_a_move_takes_the_managers_completions_along(world: World) -> None:
    scenario = await submitted(world, 2)
    first = await scenario.cluster()
    await resize(world.manager, 3, 3)
    await scenario.expect_pods(running=3)
    await world.manager.patch(WORKERCLUSTERS, first, None, MergePatch({"spec": {"drain": True}}))

    async def moved() -> bool:
        return await scenario.cluster() != first

    await eventually(moved, "the job has another cluster")
    await expect_size(await scenario.worker(), 3, 3)
    await scenario.expect_pods(running=3)
    await succeed(scenario, all_of=3)
    await expect_end(scenario, "0-2", 3)
