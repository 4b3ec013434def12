"""A job with a notice is told which pods it loses, and keeps them until the deadline or until it agrees."""

from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import msgspec
import pytest

from e2e.test_preemption import allow_preemption
from e2e.test_reclaimed import BOTH, EAST, POD_SET, REAL_FOR_JOBS, Manifest, shrinkable, submit_high
from slicebus.ambient.clock import now
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, JOBS, WORKLOADS
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.slices.api import api_names
from slicebus.slices.jobs.suspension import is_suspended
from support import roles
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

ALLOWED = ManagerDecisionSettings(notice_cap_s=3600.0)
LONG = "30m"


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def submit_low(world: World, kind: str, *, notice: str, can_shrink: bool = True) -> Scenario:
    """The job that loses pods, with all eight."""
    await set_quota(world, 8 if kind == "Job" else 9)
    await allow_preemption(world)
    job = shrinkable(kind)
    job["metadata"]["annotations"][api_names.NOTICE_ANNOTATION] = notice
    if not can_shrink:
        del job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION]
    await world.manager.create(JOB_RESOURCES[kind], job)
    low = Scenario(world, kind, "low")
    await low.expect_pods(running=8)
    return low


async def told(low: Scenario, pods: int) -> dict[str, Any]:
    """What the job is told; so many of its pods are told the same."""

    async def look() -> dict[str, Any] | None:
        texts = [_note(one) for one in await low.pods() if _note(one)]
        job = msgspec.json.decode(_note(await low.worker_job()) or "{}")
        # The agent writes to one after the other.
        are_same = all(msgspec.json.decode(text).items() <= job.items() for text in texts)
        return job if job and len(texts) == pods and are_same else None

    found = await eventually(look, f"{pods} pods of {low.name} are told what the job is")
    assert found is not None
    return found


async def expect_untold(low: Scenario) -> None:
    async def look() -> bool:
        return not any(map(_note, [await low.worker_job(), *await low.pods()]))

    await eventually(look, f"{low.name} is told nothing any more")


async def expect_left(low: Scenario, workers: int) -> None:
    """So many workers run on; without any, the head is gone too."""
    if workers:
        await low.expect_pods(running=workers)
        return

    async def look() -> bool:
        return not await low.running()

    await eventually(look, f"{low.name} has no pod left")


async def agree(low: Scenario, id: str) -> None:
    """As the job's program does it."""
    body = MergePatch({"metadata": {"annotations": {api_names.RECLAIM_ACK_ANNOTATION: id}}})
    await (await low.worker()).patch(low.resource, low.name, NAMESPACE, body)


def _note(manifest: Manifest) -> str | None:
    return (manifest["metadata"].get("annotations") or {}).get(api_names.RECLAIM_ANNOTATION)


@REAL_FOR_JOBS
@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_pods_run_until_the_deadline(world: World, urls: dict[str, str], kind: str, can_shrink: bool) -> None:
    """It waits for a notice of four seconds."""
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, kind, notice="4s", can_shrink=can_shrink)
        began = await low.running()
        high = await submit_high(world)
        said = await told(low, 4 if can_shrink else 8 if kind == "Job" else 9)
        assert said["to"][POD_SET[kind]] == (4 if can_shrink else 0)
        deadline = datetime.fromisoformat(said["deadline"])

        async def loses() -> bool:
            running, at = await low.running(), now()
            assert running == began or at >= deadline, "before the deadline"
            return running != began

        await eventually(loses, "it loses pods")
        await high.expect_pods(running=4)
        await expect_left(low, 4 if can_shrink else 0)
        await expect_untold(low)


@BOTH
@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_it_agrees_earlier(world: World, urls: dict[str, str], kind: str, can_shrink: bool) -> None:
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, kind, notice=LONG, can_shrink=can_shrink)
        high = await submit_high(world)
        said = await told(low, 4 if can_shrink else 8 if kind == "Job" else 9)
        assert said["why"]
        await low.expect_event(api_names.RECLAIM_NOTICE, on=await low.worker())
        await low.expect_pods(running=8)
        await agree(low, said["id"])
        await high.expect_pods(running=4)
        await expect_left(low, 4 if can_shrink else 0)


@BOTH
@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_it_keeps_its_pods_where_nobody_waits_any_more(
    world: World, urls: dict[str, str], kind: str, can_shrink: bool
) -> None:
    """The manager looks every five seconds."""
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, kind, notice=LONG, can_shrink=can_shrink)
        began = await low.running()
        await submit_high(world)
        await told(low, 4 if can_shrink else 8 if kind == "Job" else 9)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await expect_untold(low)
        assert await low.running() == began
        await low.expect_unfinished(8)
        await low.expect_event("ReclaimWithdrawn", on=world.manager)
        assert not is_suspended(await world.manager.get(low.resource, low.name, NAMESPACE))


async def test_it_keeps_the_pods_that_were_to_go_for_one_of_two(world: World, urls: dict[str, str]) -> None:
    """The other one waits no longer for that."""
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job", notice=LONG)
        began = await low.running()
        await submit_high(world, 3, name="first")
        before = await told(low, 3)
        second = await submit_high(world, 2, name="second")

        async def are_told() -> bool:
            return sum(bool(_note(one)) for one in await low.pods()) == 5

        await eventually(are_told, "pods are told for both")
        await world.manager.delete(JOBS, "first", NAMESPACE)
        after = await told(low, 2)
        assert (*map(len, (before["for"], after["for"])), after["to"]) == (1, 1, {"main": 6})
        assert after["for"] != before["for"]
        assert after["deadline"] == before["deadline"]
        assert await low.running() == began
        await agree(low, after["id"])
        await second.expect_pods(running=2)
        await expect_left(low, 6)


async def test_a_size_of_the_worker_outlasts_an_eviction_that_is_withdrawn(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job", notice=LONG, can_shrink=False)
        await low.scale(6)
        await low.expect_unfinished(6)
        await submit_high(world)
        await told(low, 6)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await expect_untold(low)
        await low.expect_pods(running=6)
        await low.scale(7)
        await low.expect_pods(running=7)
        await low.expect_unfinished(7)


@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_it_keeps_its_pods_while_the_queue_is_held(world: World, urls: dict[str, str], can_shrink: bool) -> None:
    """Whoever waits there gets nothing of them. When it may again, it takes them, after a notice of their own; the job
    asks for none any more then, and those that were told keep theirs."""
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job", notice=LONG, can_shrink=can_shrink)
        await submit_high(world)
        number = 4 if can_shrink else 8
        await told(low, number)
        await _stop(world, "Hold")
        await expect_untold(low)
        await low.expect_pods(running=8)
        await _stop(world, "None")
        await told(low, number)
        unasked = {"metadata": {"annotations": {api_names.NOTICE_ANNOTATION: None}}}
        await world.manager.patch(JOBS, "low", NAMESPACE, MergePatch(unasked))
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await expect_untold(low)
        await low.expect_pods(running=8)


@pytest.mark.parametrize("how", ["drained", "deactivated", "suspended"])
@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_who_stops_it_ends_its_pods_at_once(
    world: World, urls: dict[str, str], can_shrink: bool, how: str
) -> None:
    """A notice is of what others take."""
    async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job", notice=LONG, can_shrink=can_shrink)
        await submit_high(world)
        await told(low, 4 if can_shrink else 8)
        match how:
            case "drained":
                await _stop(world, "HoldAndDrain")
            case "deactivated":
                [slice] = await low.chain()
                await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, MergePatch({"spec": {"active": False}}))
            case _:
                unmarked = {"metadata": {"annotations": {api_names.SUSPENDED_ANNOTATION: None}}}
                body = MergePatch(unmarked | {"spec": {"suspend": True}})
                await world.manager.patch(JOBS, "low", NAMESPACE, body)
        await expect_left(low, 0)


async def _stop(world: World, policy: str) -> None:
    body = MergePatch({"spec": {"stopPolicy": policy}})
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)


async def test_without_leave_nothing_waits(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low = await submit_low(world, "Job", notice=LONG)
        await (await submit_high(world)).expect_pods(running=4)
        await low.expect_pods(running=4)


@BOTH
@pytest.mark.parametrize("can_shrink", [True, False], ids=["shrink", "eviction"])
async def test_roles_that_end_in_the_middle(world: World, urls: dict[str, str], kind: str, can_shrink: bool) -> None:
    """The same notice runs on."""
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls, decisions=ALLOWED), roles.agent(world, urls, EAST):
            low = await submit_low(world, kind, notice=LONG, can_shrink=can_shrink)
            high = await submit_high(world)
            before = await told(low, number := 4 if can_shrink else 8 if kind == "Job" else 9)
        await outlasting.enter_async_context(roles.manager(world, urls, decisions=ALLOWED))
        await outlasting.enter_async_context(roles.agent(world, urls, EAST))
        await low.expect_pods(running=8)
        assert await told(low, number) == before
        await agree(low, before["id"])
        await high.expect_pods(running=4)
