"""A job ends while its agent is away: its end is told, or that nobody knows it; it is never taken for deleted."""

from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from slicebus.slices.api.conditions import conditions_of
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def submitted(world: World, name: str, *, ttl_s: int | None = None) -> Scenario:
    """A job that runs on east until its pod is told to end."""
    await set_quota(world, 4)
    manifest = elastic("Job", name)
    manifest["spec"] |= {"completions": 1, "parallelism": 1}
    manifest["spec"] |= {"ttlSecondsAfterFinished": ttl_s} if ttl_s is not None else {}
    await world.manager.create(JOBS, manifest)
    scenario = Scenario(world, "Job", name)
    await scenario.expect_pods(running=1)
    return scenario


async def ended(client: KubeClient, name: str) -> bool:
    job = await client.get(JOBS, name, NAMESPACE)
    return any(entry["type"] == "Complete" and entry["status"] == "True" for entry in conditions_of(job))


async def is_gone(client: KubeClient, name: str) -> bool:
    try:
        await client.get(JOBS, name, NAMESPACE)
    except NotFoundError:
        return True
    return False


def said(manifest: Manifest, type: str = "slicebus.dev/EndKnown") -> tuple[str, str] | None:
    found = (entry for entry in conditions_of(manifest) if entry["type"] == type)
    return next(((entry["status"], entry["reason"]) for entry in found), None)


async def end_pods(client: KubeClient, name: str) -> None:
    """The job's pods succeed now."""
    for pod in (await client.list(PODS, namespace=NAMESPACE)).items:
        if pod["metadata"]["name"].startswith(name):
            status = MergePatch({"status": {"phase": "Succeeded"}})
            await client.patch(PODS, pod["metadata"]["name"], NAMESPACE, status, subresource="status")


@pytest.mark.real
async def test_a_job_that_ended_while_its_agent_was_away_is_complete_and_then_goes_by_its_time_to_live(
    world: World, urls: dict[str, str]
) -> None:
    worker, seen = world.workers[EAST], list[bool]()
    page = await world.manager.list(JOBS, namespace=NAMESPACE)
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, "east"):
            scenario = await submitted(world, "brief", ttl_s=0)
        await end_pods(worker, "brief")
        await eventually(lambda: ended(worker, "brief"), "the worker's job is complete")
        async with roles.agent(world, urls, "east"):
            await scenario.expect_nothing_left()
    async for event in world.manager.watch(JOBS, resource_version=page.resource_version, namespace=NAMESPACE):
        seen.append(any(entry["type"] == "Complete" for entry in conditions_of(event.object)))
        if event.type == "DELETED":
            break
    assert seen[-1], "it was complete when it went"


async def test_a_copy_that_vanished_with_its_end_leaves_the_managers_job_with_an_unknown_end(
    world: World, urls: dict[str, str]
) -> None:
    worker = world.workers[EAST]
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, "east"):
            scenario = await submitted(world, "older")
        # A user of the worker gives the copy a time to live.
        await worker.patch(JOBS, "older", NAMESPACE, MergePatch({"spec": {"ttlSecondsAfterFinished": 0}}))
        await end_pods(worker, "older")
        await eventually(lambda: is_gone(worker, "older"), "the worker's job is gone")
        async with roles.agent(world, urls, "east"):
            told = await scenario.expect_event("VanishedOnWorker", on=world.manager)

            async def rests() -> bool:
                [slice] = await scenario.chain()
                job = await world.manager.get(JOBS, "older", NAMESPACE)
                return slice.admission is None and not slice.active and not job.get("status", {}).get("active")

            async def is_unknown() -> bool:
                job = await world.manager.get(JOBS, "older", NAMESPACE)
                workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
                return said(job) == said(workload) == ("False", "VanishedOnWorker")

            await eventually(rests, "the job has given its quota back")
            [slice] = await scenario.chain()
            await eventually(is_unknown, "both objects say that its end is unknown")
            assert slice.name in told
            assert await is_gone(worker, "older")

            active = MergePatch({"spec": {"active": True}})
            await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, active)
            await scenario.expect_pods(running=1)

            async def known() -> bool:
                job = await world.manager.get(JOBS, "older", NAMESPACE)
                workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
                return said(job) is None and said(workload) == ("True", "StartedAnew")

            await eventually(known, "it says that it runs anew")
