"""A RayService: the cluster that serves, and the one that an upgrade prepares beside it, which waits for its share."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, RAYCLUSTERS, RAYSERVICES
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
STATUSES = ("activeServiceStatus", "pendingServiceStatus")


async def serving(world: World, cpu: int) -> Scenario:
    """A service whose cluster serves: one core for the head, and one for a worker."""
    await set_quota(world, cpu)
    service = elastic("RayService", "chat")
    service["spec"]["rayClusterDeletionDelaySeconds"] = 1
    await world.manager.create(RAYSERVICES, service)
    scenario = Scenario(world, "RayService", "chat")
    await scenario.expect_pods(running=1)
    await expect_clusters(scenario, active=True, pending=False)
    return scenario


async def expect_clusters(scenario: Scenario, *, active: bool, pending: bool) -> list[str]:
    """Wait until the manager's service shows such clusters; the name of each, or nothing."""
    found: list[str] = []

    async def look() -> bool:
        status = (await scenario.world.manager.get(RAYSERVICES, scenario.name, NAMESPACE)).get("status", {})
        found[:] = [(status.get(which) or {}).get("rayClusterName", "") for which in STATUSES]
        return [*map(bool, found)] == [active, pending]

    await eventually(look, f"{scenario.name} has clusters: active {active}, pending {pending}")
    return found


CLUSTER = "/spec/rayClusterConfig"


async def edit(client: KubeClient, path: str, value: object) -> None:
    """Set a field of the service; None removes it."""
    change = {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}
    await client.patch(RAYSERVICES, "chat", NAMESPACE, JsonPatch([change]))


async def expect_applications(worker: KubeClient, wanted: str) -> None:
    """Wait until the worker's copy has these."""

    async def has_them() -> bool:
        spec: Manifest = (await worker.get(RAYSERVICES, "chat", NAMESPACE))["spec"]
        return bool(spec["serveConfigV2"] == wanted)

    await eventually(has_them, f"the worker's service has {wanted}")


async def upgrade(client: KubeClient) -> None:
    """As a user does it, where the service runs or on the manager."""
    await edit(client, f"{CLUSTER}/headGroupSpec/rayStartParams", {"num-cpus": "2"})


async def test_its_autoscaler_grows_and_shrinks_the_cluster_that_serves(world: World) -> None:
    scenario = await serving(world, 8)
    await expect_used(world, "2")
    runs = await scenario.running()
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    assert runs < await scenario.running()
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    await expect_used(world, "3")


@pytest.mark.parametrize("at", [pytest.param("worker", marks=pytest.mark.real), "manager"])
async def test_an_upgrade_waits_for_quota_while_the_old_cluster_serves(world: World, at: str) -> None:
    scenario = await serving(world, 3)
    [before, _] = await expect_clusters(scenario, active=True, pending=False)
    runs = await scenario.running()

    await upgrade(world.manager if at == "manager" else await scenario.worker())
    [active, pending] = await expect_clusters(scenario, active=True, pending=True)
    await scenario.expect_pods(running=1, gated=2)
    assert active == before
    assert await scenario.running() == runs
    [held, asked] = await scenario.expect_unfinished(1, 2)
    assert (held.counts["head"], asked.counts["head"], asked.admission) == (1, 2, None)
    await expect_used(world, "2")

    await set_quota(world, 4)
    await expect_clusters(scenario, active=True, pending=False)
    await scenario.expect_pods(running=1)
    assert not runs & await scenario.running()
    assert await expect_clusters(scenario, active=True, pending=False) == [pending, ""]
    await scenario.expect_unfinished(1)
    await expect_used(world, "2")


async def test_its_applications_are_updated_in_place_from_the_manager(world: World) -> None:
    scenario = await serving(world, 8)
    clusters = await expect_clusters(scenario, active=True, pending=False)
    worker, runs = await scenario.worker(), await scenario.running()
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await edit(world.manager, "/spec/serveConfigV2", "applications: [next]")
    await expect_applications(worker, "applications: [next]")
    assert runs < await scenario.running()
    await edit(world.manager, f"{CLUSTER}/workerGroupSpecs/0/maxReplicas", 7)
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    assert await expect_clusters(scenario, active=True, pending=False) == clusters
    assert len((await worker.list(RAYCLUSTERS, namespace=NAMESPACE)).items) == 1


async def test_what_it_cannot_have_is_told_and_the_rest_waits_with_it(world: World) -> None:
    scenario = await serving(world, 8)
    worker, resources = await scenario.worker(), f"{CLUSTER}/workerGroupSpecs/0/template/spec/containers/1"
    await edit(world.manager, resources, {"name": "more", "image": "i", "resources": {"requests": {"cpu": "1"}}})
    await edit(world.manager, "/spec/serveConfigV2", "applications: [next]")
    assert "keeps its pods" in await scenario.expect_event("StructuralChange", on=world.manager)
    before = (await worker.get(RAYSERVICES, scenario.name, NAMESPACE))["spec"]

    await edit(world.manager, resources, None)
    await expect_applications(worker, "applications: [next]")
    after = (await worker.get(RAYSERVICES, scenario.name, NAMESPACE))["spec"]
    assert (before["serveConfigV2"], before["rayClusterConfig"]) == ("applications: []", after["rayClusterConfig"])


@pytest.mark.real
async def test_it_loses_its_quota_comes_back_and_goes(world: World) -> None:
    scenario = await serving(world, 8)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    for policy, used in (("HoldAndDrain", "0"), ("None", "2")):
        body = MergePatch({"spec": {"stopPolicy": policy}})
        await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, body)
        await expect_used(world, used)
    await scenario.expect_pods(running=1)
    await expect_clusters(scenario, active=True, pending=False)

    worker = await scenario.worker()
    await world.manager.delete(RAYSERVICES, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()
    assert (await worker.list(RAYCLUSTERS, namespace=NAMESPACE)).items == []
    await expect_used(world, "0")
