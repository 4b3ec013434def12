"""A stolen agent asks for more than its jobs may have, or for all that they may have: others keep their quota."""

from collections.abc import AsyncIterator

import pytest

from slicebus.agent.act.identity import cluster_uid
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, WORKERCLUSTERS, WORKLOADPRIORITYCLASSES
from slicebus.manager.decide.job.size_bounds import PAST_BOUNDS
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.proto.codec import encode
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ScaleRequest
from slicebus.proto.topology import UP
from slicebus.slices.admission.growth_limit import GROWTH_LIMITED
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.waiting import Waiting
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
OTHERS = 4


async def fill(world: World, *, max_size: str = "") -> tuple[Scenario, list[Scenario]]:
    """A queue that is full: a job of the thief's, and others of a lower priority."""
    await set_quota(world, OTHERS + 1)
    preempts = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch(preempts))
    greedy, others = Scenario(world, "Job", "greedy"), [Scenario(world, "Job", f"other-{n}") for n in range(OTHERS)]
    priority = {
        "apiVersion": kueue.API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    await world.ensure(world.manager, WORKLOADPRIORITYCLASSES, priority)
    job = elastic("Job", "greedy")
    job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "high"
    if max_size:
        job["metadata"]["annotations"][api_names.MAX_SIZE_ANNOTATION] = max_size
    await world.manager.create(JOBS, job)
    await greedy.expect_pods(running=1)
    for other in others:
        await other.submit()
        await other.expect_pods(running=1)
    return greedy, others


async def ask(world: World, urls: dict[str, str], scenario: Scenario, wanted: int) -> None:
    """Publish a request in the name of the agent's user."""
    job, worker = await world.manager.get(JOBS, scenario.name, NAMESPACE), await scenario.worker_job()
    [slice] = await scenario.chain()
    request = ScaleRequest(
        job=job_ref(job),
        workload=slice.name,
        worker_uid=worker["metadata"]["uid"],
        worker_generation=worker["metadata"]["generation"],
        granted={"main": 1},
        wanted={"main": wanted},
    )
    thief = await connect(urls[EAST], name="thief")
    try:
        epoch = (await world.manager.get(WORKERCLUSTERS, EAST))["status"]["epoch"]
        issuer = Issuer(epoch=epoch, user=thief.user, now=now, random=random_bytes)
        uid = await cluster_uid(world.workers[EAST])
        await thief.publish(UP, encode(issuer.envelope(request, EAST, uid), request))
    finally:
        await thief.aclose()


@pytest.fixture
async def world(bare_east: World, urls: dict[str, str]) -> AsyncIterator[World]:
    limits = ManagerDecisionSettings(growth_victims=2, resize_factor=10)
    async with roles.manager(bare_east, urls, decisions=limits), roles.agent(bare_east, urls, EAST):
        yield bare_east


@pytest.mark.parametrize(("max_size", "wanted"), [("", 11), ("3", 5)], ids=["the factor", "its own word"])
async def test_a_request_past_the_jobs_bounds_is_refused_and_told(
    world: World, urls: dict[str, str], max_size: str, wanted: int
) -> None:
    greedy, others = await fill(world, max_size=max_size)
    runs = [await other.running() for other in others]
    await ask(world, urls, greedy, wanted)
    assert f"asks for main={wanted}" in await greedy.expect_event(PAST_BOUNDS, on=world.manager)

    async def is_shown() -> bool:
        waiting = Waiting.from_manifest(await world.manager.get(JOBS, "greedy", NAMESPACE))
        return waiting is not None and waiting.reason == PAST_BOUNDS

    await eventually(is_shown, "the job says it")
    await greedy.expect_unfinished(1)
    assert [await other.running() for other in others] == runs


async def test_one_request_preempts_no_more_than_growth_may(world: World, urls: dict[str, str]) -> None:
    greedy, others = await fill(world)
    runs = [await other.running() for other in others]
    await ask(world, urls, greedy, OTHERS + 1)

    async def waits() -> bool:
        waiting = Waiting.from_manifest(await world.manager.get(JOBS, "greedy", NAMESPACE))
        return waiting is not None and waiting.reason == GROWTH_LIMITED and "may preempt 2 workloads" in waiting.message

    await eventually(waits, "the growth waits")
    assert [await other.running() for other in others] == runs
    await greedy.scale(3)
    await greedy.expect_pods(running=3)
    assert sum([bool(await other.running()) for other in others]) == OTHERS - 2
