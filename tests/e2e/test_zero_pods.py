"""A group that begins with no pods: its first pods get the flavor that has room, and run on the nodes of that."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, NODES, RESOURCEFLAVORS, WORKERCLUSTERS, WORKLOADS
from slicebus.slices.api import api_names
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
SPARE = "spare"
NODE_LABELS = {"slicebus.dev/test-pool": "spare"}
GROUP = "small-group"
HEAD_CPU = 1


async def label_nodes(world: World, labels: dict[str, Any]) -> None:
    """One node of each worker is of the flavor."""
    for client in world.workers.values():
        name = (await client.list(NODES)).items[0]["metadata"]["name"]
        await client.patch(NODES, name, None, MergePatch({"metadata": {"labels": labels}}))


@pytest.fixture
async def two_flavors(world: World) -> AsyncIterator[World]:
    """The queue has three cores of the first flavor, and eight of one with nodes of its own."""
    await label_nodes(world, NODE_LABELS)
    flavor = {"apiVersion": RESOURCEFLAVORS.api_version, "kind": RESOURCEFLAVORS.kind, "metadata": {"name": SPARE}}
    await world.manager.create(RESOURCEFLAVORS, flavor | {"spec": {"nodeLabels": NODE_LABELS}})
    await set_quota(world, HEAD_CPU + 2)
    [group] = (await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE))["spec"]["resourceGroups"]
    resources = [{"name": "cpu", "nominalQuota": "8"}, {"name": "memory", "nominalQuota": "32Gi"}]
    group["flavors"].append({"name": SPARE, "resources": resources})
    body = MergePatch({"spec": {"resourceGroups": [group]}})
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)

    async def are_known() -> bool:
        """Before every agent has counted its nodes by both flavors, a job gets the one that is known."""
        statuses = [(await world.manager.get(WORKERCLUSTERS, name)).get("status", {}) for name in world.workers]
        return all({objects.FLAVOR, SPARE} <= status.get("capacity", {}).keys() for status in statuses)

    try:
        await eventually(are_known, "every cluster says how much it has of both flavors")
        yield world
    finally:
        await label_nodes(world, dict.fromkeys(NODE_LABELS))
        await world.manager.delete(RESOURCEFLAVORS, SPARE, None)


async def workers_of(scenario: Scenario) -> list[Manifest]:
    return [pod for pod in await scenario.pods() if pod["metadata"]["labels"].get("ray.io/node-type") == "worker"]


async def flavors_of(scenario: Scenario, pod_set: str) -> dict[str, str]:
    [slice] = await scenario.expect_unfinished(len(await workers_of(scenario)))
    assert slice.admission is not None
    return dict(slice.admission.flavors_of(pod_set))


@pytest.mark.real
async def test_the_first_workers_land_where_there_is_room(two_flavors: World) -> None:
    scenario, manifest = Scenario(two_flavors, "RayCluster", "zero"), elastic("RayCluster", "zero")
    manifest["spec"]["workerGroupSpecs"][0]["replicas"] = 0
    await two_flavors.manager.create(scenario.resource, manifest)
    await scenario.expect_pods(running=0)
    assert await flavors_of(scenario, GROUP) == {}
    [head] = await scenario.pods()

    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    assert (await flavors_of(scenario, GROUP))["cpu"] == SPARE
    assert (await flavors_of(scenario, "head"))["cpu"] == objects.FLAVOR
    first = await workers_of(scenario)
    assert all(pod["metadata"]["labels"][api_names.UNPLACED_LABEL] == "true" for pod in first)
    assert [pod["spec"]["nodeSelector"] for pod in first] == [NODE_LABELS] * 4
    assert head["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in await scenario.pods()}

    await scenario.scale(8)
    await scenario.expect_pods(running=8)
    assert [pod["spec"]["nodeSelector"] for pod in await workers_of(scenario)] == [NODE_LABELS] * 8
    assert {pod["metadata"]["uid"] for pod in first} <= {pod["metadata"]["uid"] for pod in await scenario.pods()}

    # Now the flavor is kept, though the other has room.
    await scenario.scale(9)
    await scenario.expect_pods(running=8, gated=1)

    async def waits() -> bool:
        page = await two_flavors.manager.list(WORKLOADS, namespace=NAMESPACE)
        found = [each for workload in page.items for each in workload.get("status", {}).get("conditions", ())]
        return any("insufficient" in each["message"] and SPARE in each["message"] for each in found)

    await eventually(waits, "the ninth waits for its flavor")
