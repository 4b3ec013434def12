"""A tenant of a worker gives the pods of a job more than its slice is charged for: they stay gated."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import NODES, PODS, RAYCLUSTERS, RESOURCEFLAVORS
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.waiting import PODS_PAST_SLICE, Waiting
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
TEMPLATE = "/spec/workerGroupSpecs/0/template"
REQUEST = f"{TEMPLATE}/spec/containers/0/resources/requests/cpu"
CONTAINERS = f"{TEMPLATE}/spec/containers"
LABEL = f"{TEMPLATE}/metadata/labels/{kueue.POD_SET_LABEL.replace('/', '~1')}"
MORE = {"name": "more", "image": "busybox", "resources": {"requests": {"cpu": "30"}}}
EDITS: dict[str, tuple[str, Any, str]] = {
    "larger requests": (REQUEST, "30", "cpu 30 in place of 1"),
    "another container": (f"{CONTAINERS}/-", MORE, "cpu 31 in place of 1"),
}


async def edit(scenario: Scenario, path: str, value: Any, op: str = "add") -> None:
    """Patch the RayCluster of the job on its worker."""
    name = scenario.name
    if KINDS[scenario.kind].child_kind:
        [name] = KINDS[scenario.kind].children(await scenario.worker_job()) or []
    change = JsonPatch([{"op": op, "path": path} | ({"value": value} if op == "add" else {})])
    await (await scenario.worker()).patch(RAYCLUSTERS, name, NAMESPACE, change)


async def expect_told(world: World, scenario: Scenario, text: str) -> None:
    """Wait until the job says it on both sides, and an Event of each side does."""
    for side in (await scenario.worker(), world.manager):

        async def is_shown(side: Any = side) -> bool:
            waiting = Waiting.from_manifest(await side.get(scenario.resource, scenario.name, NAMESPACE))
            return waiting is not None and waiting.reason == PODS_PAST_SLICE and text in waiting.message

        await eventually(is_shown, f"{side.host} says {text!r}")
        assert text in await scenario.expect_event(PODS_PAST_SLICE, on=side)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
@pytest.mark.parametrize(("path", "value", "text"), EDITS.values(), ids=EDITS.keys())
async def test_edited_pods_stay_gated_and_are_told(world: World, kind: str, path: str, value: Any, text: str) -> None:
    await set_quota(world, 50)
    scenario = Scenario(world, kind, "grid")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    runs = await scenario.running()
    await edit(scenario, path, value)
    await scenario.scale(2, settles=False)
    await scenario.expect_pods(running=1, gated=1)
    await expect_told(world, scenario, text)
    assert await scenario.running() == runs

    [gated] = [pod for pod in await scenario.pods() if is_gated(pod)]
    await edit(scenario, path, "1") if path == REQUEST else await edit(scenario, f"{CONTAINERS}/1", None, op="remove")
    worker = await scenario.worker()
    # Whatever the agent decides of the pod that was made meanwhile, it decides before it lets another one go.
    await scenario.scale(3, settles=False)
    await scenario.expect_pods(running=2, gated=1)
    assert is_gated(await worker.get(PODS, gated["metadata"]["name"], NAMESPACE))
    await worker.delete(PODS, gated["metadata"]["name"], NAMESPACE)
    await scenario.expect_pods(running=3)


async def test_pods_for_the_nodes_of_another_flavor_stay_gated(world: World) -> None:
    """A tenant takes the node labels out of the template: its pods would run anywhere, charged for the flavor."""
    labels = {"slicebus.dev/test-pool": "cheap"}
    worker_nodes = [(client, node) for client in world.workers.values() for node in (await client.list(NODES)).items]
    for client, node in worker_nodes:
        await client.patch(NODES, node["metadata"]["name"], None, MergePatch({"metadata": {"labels": labels}}))
    await set_quota(world, 50)
    await world.manager.patch(RESOURCEFLAVORS, objects.FLAVOR, None, MergePatch({"spec": {"nodeLabels": labels}}))
    try:
        scenario = Scenario(world, "RayCluster", "grid")
        await scenario.submit()
        await scenario.expect_pods(running=1)
        assert [pod["spec"]["nodeSelector"] for pod in await scenario.pods()] == [labels] * 2
        await edit(scenario, f"{TEMPLATE}/spec/nodeSelector", None, op="remove")
        await scenario.scale(2, settles=False)
        await scenario.expect_pods(running=1, gated=1)
        await expect_told(world, scenario, "nodes with any labels in place of slicebus.dev/test-pool=cheap")
    finally:
        await world.manager.patch(RESOURCEFLAVORS, objects.FLAVOR, None, MergePatch({"spec": {"nodeLabels": None}}))
        for client, node in worker_nodes:
            gone = MergePatch({"metadata": {"labels": dict.fromkeys(labels)}})
            await client.patch(NODES, node["metadata"]["name"], None, gone)


@pytest.mark.real
async def test_pods_with_the_label_of_another_set_stay_gated(world: World) -> None:
    """The head's grant is free while the head is made anew."""
    await set_quota(world, 50)
    scenario = Scenario(world, "RayCluster", "grid")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await edit(scenario, LABEL, "head")
    await scenario.scale(3, settles=False)
    await scenario.expect_pods(running=1, gated=2)
    worker = await scenario.worker()
    [head] = [pod for pod in await scenario.pods() if "-head" in pod["metadata"]["name"]]
    await worker.delete(PODS, head["metadata"]["name"], NAMESPACE)
    await expect_told(world, scenario, "made for pod set 'small-group', and labelled as of 'head'")

    await edit(scenario, LABEL, "small-group")

    async def is_new() -> bool:
        heads = [pod for pod in await scenario.pods() if "-head" in pod["metadata"]["name"]]
        return [pod.get("status", {}).get("phase") for pod in heads] == ["Running"] and heads[0] != head

    await eventually(is_new, "the head runs again")
    await scenario.expect_pods(running=1, gated=2)
