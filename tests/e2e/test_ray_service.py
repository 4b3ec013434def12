"""A RayService: the cluster that serves, and the one that an upgrade prepares beside it, which waits for its share."""

from typing import Any

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import JsonPatch, MergePatch
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


async def upgrade(scenario: Scenario) -> None:
    """As a user does it where the service runs."""
    path = "/spec/rayClusterConfig/headGroupSpec/rayStartParams"
    patch = JsonPatch([{"op": "add", "path": path, "value": {"num-cpus": "2"}}])
    await (await scenario.worker()).patch(RAYSERVICES, scenario.name, NAMESPACE, patch)


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


async def test_an_upgrade_waits_for_quota_while_the_old_cluster_serves(world: World) -> None:
    scenario = await serving(world, 3)
    [before, _] = await expect_clusters(scenario, active=True, pending=False)
    runs = await scenario.running()

    await upgrade(scenario)
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
