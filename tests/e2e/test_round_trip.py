"""The first seed's two flows, end to end: scale-up 1 -> 5, scale-down 5 -> 3, and what happens when quota is short."""

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.slices.api import api_names, kueue
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

KINDS = ("Job", "RayCluster", "RayJob")
REAL_FOR_JOBS = [pytest.param("Job", marks=pytest.mark.real), "RayCluster", "RayJob"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.real
async def test_grow_shrink_and_delete(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "grow")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [first] = await scenario.expect_unfinished(1)
    one = await scenario.running()

    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    five = await scenario.running()
    assert one < five, "no pod is started again"
    [second] = await scenario.expect_unfinished(5)
    assert second.replaces == first.key
    assert second.chain == first.name
    assert second.cluster == first.cluster
    old = next(slice for slice in await scenario.chain() if slice.name == first.name)
    assert old.conditions["Finished"]["reason"] == "WorkloadSliceReplaced"

    async def relabelled() -> bool:
        metadata = (await scenario.worker_job())["metadata"]
        return metadata["labels"][kueue.PREBUILT_NAME] == metadata["annotations"][kueue.PREBUILT_NAME] == second.name

    await eventually(relabelled, "the worker's job names the second slice, as label and annotation")

    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    assert await scenario.running() < five
    [third] = await scenario.expect_unfinished(3)
    assert third.name == second.name, "a scale-down changes the slice in place"

    await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()


@pytest.mark.parametrize("kind", REAL_FOR_JOBS)
async def test_a_request_past_the_quota_waits_and_says_why(world: World, kind: str) -> None:
    await set_quota(world, 5)
    scenario = Scenario(world, kind, "wait")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(8)
    await scenario.expect_pods(running=1, gated=7)
    await scenario.expect_unfinished(1, 8)
    told = await scenario.expect_event("Pending", on=await scenario.worker())
    assert "insufficient quota for cpu in flavor default" in told
    assert "more cpu in flavor default of ClusterQueue batch" in told
    await set_quota(world, 30)
    await scenario.expect_pods(running=8)
    await scenario.expect_unfinished(8)


async def test_a_withdrawn_wish_ends_the_pending_slice(world: World) -> None:
    await set_quota(world, 5)
    scenario = Scenario(world, "Job", "withdraw")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(9)
    await scenario.expect_unfinished(1, 9)
    await scenario.scale(1)
    await scenario.expect_unfinished(1)
    await scenario.expect_pods(running=1)


async def test_a_resize_at_the_manager_reaches_the_worker(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "top")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await world.manager.patch(JOBS, "top", NAMESPACE, MergePatch({"spec": {"parallelism": 4}}))
    await scenario.expect_pods(running=4)
    await scenario.expect_unfinished(4)
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    await scenario.expect_unfinished(2)


@pytest.mark.parametrize("kind", REAL_FOR_JOBS)
async def test_a_job_deleted_on_the_worker_goes_on_the_manager(world: World, kind: str) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "gone")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await (await scenario.worker()).delete(scenario.resource, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()


@pytest.mark.real
async def test_a_job_that_ends_is_mirrored_and_cleaned_up(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "end")
    manifest = elastic("Job", "end")
    manifest["spec"] |= {"completions": 2, "parallelism": 2}
    manifest["spec"]["template"]["metadata"] = {"annotations": {"slicebus.dev/run-seconds": "0.2"}}
    await world.manager.create(JOBS, manifest)

    async def complete() -> bool:
        job = await world.manager.get(JOBS, "end", NAMESPACE)
        return any(entry["type"] == "Complete" for entry in job.get("status", {}).get("conditions", ()))

    await eventually(complete, "the manager's job is complete")
    worker = await scenario.worker()

    async def cleaned() -> bool:
        lists = [await worker.list(resource, namespace=NAMESPACE) for resource in (JOBS, WORKLOADS, PODS)]
        return not any(page.items for page in lists)

    await eventually(cleaned, "the worker has nothing left")
    [slice] = await scenario.chain()
    assert slice.conditions["Finished"]["reason"] == "Succeeded"


@pytest.mark.real
async def test_a_job_that_was_there_before_is_left_alone(world: World) -> None:
    await set_quota(world, 20)
    own = elastic("Job", "mine")
    del own["spec"]["managedBy"]
    for worker in world.workers.values():
        await worker.create(JOBS, own)
    scenario = Scenario(world, "Job", "mine")
    await scenario.submit()
    told = await scenario.expect_event("JobExists", on=world.manager)
    assert "was not made by slicebus" in told
    await world.manager.delete(JOBS, "mine", NAMESPACE)
    for worker in world.workers.values():
        job = await worker.get(JOBS, "mine", NAMESPACE)
        assert api_names.ORIGIN_LABEL not in job["metadata"].get("labels", {})
