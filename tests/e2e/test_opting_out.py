"""A user changes whether slicebus runs a job, or the queue of it, after it was taken."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, LOCALQUEUES, PODS
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.requirements import OPT_IN_REMOVED, QUEUE_CHANGED
from slicebus.slices.api import api_names, kueue
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
OTHER = "other"
OPT_OUTS = {
    "the annotation": {"annotations": {kueue.ELASTIC_ANNOTATION: None}},
    "the queue label": {"labels": {kueue.QUEUE_NAME_LABEL: None}},
}


async def submitted(world: World, name: str, pods: int) -> Scenario:
    manifest = elastic("Job", name)
    manifest["spec"] |= {"parallelism": pods, "completions": 3}
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def shows(scenario: Scenario, is_shown: bool) -> None:
    """Whether the manager's job says what has no effect."""

    async def look() -> bool:
        job = await scenario.world.manager.get(JOBS, scenario.name, NAMESPACE)
        return (annotation(job, api_names.UNHEEDED_ANNOTATION) is not None) is is_shown

    await eventually(look, f"{scenario.name} shows what has no effect: {is_shown}")


async def end_pods(scenario: Scenario) -> None:
    for pod in await scenario.pods():
        body = MergePatch({"status": {"phase": "Succeeded"}})
        await (await scenario.worker()).patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")


@pytest.mark.parametrize("removed", OPT_OUTS.values(), ids=OPT_OUTS.keys())
async def test_a_job_that_opts_out_runs_on_and_its_end_frees_the_quota(world: World, removed: Manifest) -> None:
    await set_quota(world, 3)
    scenario = await submitted(world, "leaves", 2)
    await scenario.expect_pods(running=2)
    pods = {pod["metadata"]["uid"] for pod in await scenario.pods()}
    later = await submitted(world, "later", 3)
    await later.expect_unfinished(3)

    await world.manager.patch(JOBS, scenario.name, NAMESPACE, MergePatch({"metadata": removed}))
    await shows(scenario, True)
    assert "it stays in LocalQueue main, and runs on" in await scenario.expect_event(OPT_IN_REMOVED, on=world.manager)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    assert pods < {pod["metadata"]["uid"] for pod in await scenario.pods()}

    await end_pods(scenario)
    await later.expect_pods(running=3)
    assert all(slice.finished for slice in await scenario.chain())


async def test_what_waits_moves_to_another_queue_and_what_runs_stays(world: World) -> None:
    await set_quota(world, 1)
    [_, (_, cluster_queue), (_, local_queue)] = objects.quota(1)
    others = ((CLUSTERQUEUES, cluster_queue, {}), (LOCALQUEUES, local_queue, {"clusterQueue": OTHER}))
    for resource, made, spec in others:
        named = {"metadata": made["metadata"] | {"name": OTHER}, "spec": made["spec"] | spec}
        await world.ensure(world.manager, resource, made | named)
    runs = await submitted(world, "runs", 1)
    await runs.expect_pods(running=1)
    waits = await submitted(world, "waits", 1)
    await waits.expect_unfinished(1)

    for scenario in (runs, waits):
        body = MergePatch({"metadata": {"labels": {kueue.QUEUE_NAME_LABEL: OTHER}}})
        await world.manager.patch(JOBS, scenario.name, NAMESPACE, body)
    await waits.expect_pods(running=1)
    [moved] = await waits.expect_unfinished(1)
    assert moved.queue == OTHER
    await shows(runs, True)
    await runs.expect_event(QUEUE_CHANGED, on=world.manager)
    [stayed] = await runs.expect_unfinished(1)
    assert stayed.queue == objects.QUEUE
    await runs.expect_pods(running=1)

    body = MergePatch({"metadata": {"labels": {kueue.QUEUE_NAME_LABEL: objects.QUEUE}}})
    await world.manager.patch(JOBS, runs.name, NAMESPACE, body)
    await shows(runs, False)
