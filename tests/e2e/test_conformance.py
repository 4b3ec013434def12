"""The points of Kueue's conformance list that no other test holds (docs/conformance.md)."""

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, PODS, RESOURCEFLAVORS
from slicebus.slices.api.quantities import amount
from slicebus.slices.workload.ungate import is_gated
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

SPOT = {"apiVersion": RESOURCEFLAVORS.api_version, "kind": RESOURCEFLAVORS.kind, "metadata": {"name": "spot"}}


async def uses(world: World, cpu: int) -> None:
    """Wait until the ClusterQueue says that so many cores are used."""

    async def look() -> bool:
        status = (await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)).get("status", {})
        used = [resource for flavor in status.get("flavorsUsage", ()) for resource in flavor["resources"]]
        return {amount("cpu", one["total"]) for one in used if one["name"] == "cpu"} == {1000 * cpu}

    await eventually(look, f"{cpu} cores are used")


@pytest.mark.real
async def test_quota_is_counted_once_and_rapid_cycles_leak_none(world: World) -> None:
    """Points 12 and 14."""
    await set_quota(world, 8)
    scenario = Scenario(world, "Job", "rapid")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    await uses(world, 5)
    [grown] = await scenario.expect_unfinished(5)
    await scenario.scale(3)
    [shrunk] = await scenario.expect_unfinished(3)
    assert shrunk.name == grown.name
    await uses(world, 3)
    for size in (7, 2, 8, 1, 6, 4, 8, 2):
        await scenario.scale(size)
    await scenario.expect_unfinished(2)
    await scenario.expect_pods(running=2)
    await uses(world, 2)
    other = Scenario(world, "Job", "other")
    await other.submit()
    await other.expect_pods(running=1)
    await other.scale(6)
    await other.expect_pods(running=6)
    await uses(world, 8)


@pytest.mark.real
async def test_a_pod_that_is_made_again_starts_within_what_is_granted(world: World) -> None:
    """Point 11."""
    await set_quota(world, 3)
    scenario = Scenario(world, "Job", "capped")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await scenario.scale(6)
    await scenario.expect_pods(running=3, gated=3)
    started = [pod["metadata"] for pod in await scenario.pods() if not is_gated(pod)]
    await (await scenario.worker()).delete(PODS, started[0]["name"], NAMESPACE, uid=started[0]["uid"])

    async def is_replaced() -> bool:
        return started[0]["uid"] not in {pod["metadata"]["uid"] for pod in await scenario.pods()}

    await eventually(is_replaced, "the pod has gone")
    await scenario.expect_pods(running=3, gated=3)


@pytest.mark.real
async def test_a_resize_stays_on_its_flavor(world: World) -> None:
    """Point 16."""
    await set_quota(world, 2)
    await world.ensure(world.manager, RESOURCEFLAVORS, SPOT)
    queue = await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)
    [group] = queue["spec"]["resourceGroups"]
    resources = [{"name": name, "nominalQuota": quota} for name, quota in (("cpu", "20"), ("memory", "80Gi"))]
    groups = [group | {"flavors": [*group["flavors"], {"name": "spot", "resources": resources}]}]
    await world.manager.patch(
        CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"resourceGroups": groups}})
    )
    scenario = Scenario(world, "Job", "sticky")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(4)
    [first, second] = await scenario.expect_unfinished(1, 4)
    assert first.admission is not None
    assert first.admission.flavors_of("main") == {"cpu": objects.FLAVOR}

    async def says_why() -> str | None:
        waiting = next(slice for slice in await scenario.chain() if slice.name == second.name)
        message: str | None = waiting.conditions.get("QuotaReserved", {}).get("message")
        return message

    said = await eventually(says_why, "the slice says why it waits")
    assert f"couldn't change flavor from: {objects.FLAVOR} to: spot" in (said or "")
    await scenario.expect_pods(running=1, gated=3)
