"""Jobs without the elastic annotation, where a setting has them run: their size stays while they have quota."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.conftest import clusters_of
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, fleet
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, WORKLOADS
from slicebus.manager.state.requirements import FIXED_SIZE
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.slices.api import kueue
from slicebus.slices.workload.waiting import Waiting
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]


@pytest.fixture
async def both(parts: str, urls: dict[str, str], request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A fleet whose manager runs elastic jobs and others."""
    async with (
        clusters_of(parts, request) as world,
        fleet(world, urls, decisions=ManagerDecisionSettings(fixed_jobs=True)),
    ):
        await set_quota(world, 6)
        yield world


async def submitted(world: World, name: str, pods: int) -> Scenario:
    manifest = elastic("Job", name)
    del manifest["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    manifest["spec"]["parallelism"] = pods
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def edit(scenario: Scenario, body: Manifest) -> None:
    await scenario.world.manager.patch(JOBS, scenario.name, NAMESPACE, MergePatch(body))


async def test_its_size_stays_while_it_has_quota(both: World) -> None:
    scenario = await submitted(both, "fixed", 3)
    await scenario.expect_pods(running=3)
    [slice] = await scenario.chain()
    workload = await both.manager.get(WORKLOADS, slice.name, NAMESPACE)
    assert kueue.ELASTIC_ANNOTATION not in workload["metadata"]["annotations"]
    runs = await scenario.running()

    await scenario.scale(5)
    await scenario.expect_pods(running=3, gated=2)

    async def is_shown() -> bool:
        jobs = [await scenario.worker_job(), await both.manager.get(JOBS, scenario.name, NAMESPACE)]
        shown = [each and (each.reason, each.wanted, each.granted) for each in map(Waiting.from_manifest, jobs)]
        return shown == [(FIXED_SIZE, {"main": 5}, {"main": 3})] * 2

    await eventually(is_shown, "both sides say that its size is fixed")
    await expect_used(both, "3")

    await scenario.scale(1)
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await expect_used(both, "3")
    assert [each.uid for each in await scenario.chain()] == [slice.uid]
    assert runs & await scenario.running()


async def test_an_edit_counts_from_its_next_start(both: World) -> None:
    scenario = await submitted(both, "fixed", 2)
    await scenario.expect_pods(running=2)
    runs = await scenario.running()
    await edit(scenario, {"spec": {"parallelism": 4}})
    message = "it was started at the fixed size main=2, and keeps it while it has quota"
    assert await scenario.expect_event(FIXED_SIZE, on=both.manager) == message
    await edit(scenario, {"metadata": {"annotations": {kueue.ELASTIC_ANNOTATION: "true"}}})
    await scenario.expect_pods(running=2)
    assert await scenario.running() == runs

    for policy in ("HoldAndDrain", "None"):
        stop = MergePatch({"spec": {"stopPolicy": policy}})
        await both.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, stop)
        await expect_used(both, "0" if policy != "None" else "4")
    await scenario.expect_pods(running=4)
    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    assert (await scenario.expect_unfinished(5))[0].elastic
