"""Where jobs run: by the room of a flavor, away from a drained cluster, and from a lost one, which removes its copy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, NODES, RESOURCEFLAVORS, WORKERCLUSTERS
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.manager.state.worker_clusters import GIVEN_UP
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import amount
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

EAST, WEST = ClusterName("east"), ClusterName("west")
LABEL = "slicebus.dev/test-pool"


@pytest.fixture
def world(bare: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare


@asynccontextmanager
async def pool_on(world: World, cluster: ClusterName) -> AsyncIterator[None]:
    """The flavor is one node of one cluster."""
    client = world.workers[cluster]
    node = (await client.list(NODES)).items[0]

    async def label(value: str | None) -> None:
        body = MergePatch({"metadata": {"labels": {LABEL: value}}})
        await client.patch(NODES, node["metadata"]["name"], None, body)

    async def select(labels: dict[str, str] | None) -> None:
        body = MergePatch({"spec": {"nodeLabels": labels}})
        await world.manager.patch(RESOURCEFLAVORS, objects.FLAVOR, None, body)

    async def has_that_room_only() -> bool:
        """Not so before the last agent has counted its nodes by the flavor as it is now."""
        for name in world.workers:
            status = (await world.manager.get(WORKERCLUSTERS, name)).get("status", {})
            cpu = status.get("capacity", {}).get(objects.FLAVOR, {}).get("cpu", "0")
            expected = node["status"]["allocatable"]["cpu"] if name == cluster else "0"
            if amount("cpu", cpu) != amount("cpu", expected):
                return False
        return True

    await label("big")
    await select({LABEL: "big"})
    try:
        await eventually(has_that_room_only, f"only {cluster} says that it has a node of the flavor, and one")
        yield
    finally:
        await select(None)
        await label(None)


async def set_cluster(world: World, name: ClusterName, **spec: Any) -> None:
    await world.manager.patch(WORKERCLUSTERS, name, None, MergePatch({"spec": spec}))


async def expect_no_place(scenario: Scenario, why: str) -> None:
    async def look() -> bool:
        found = [slice.conditions.get(Condition.QUOTA_RESERVED, {}) for slice in await scenario.chain()]
        return any(each.get("reason") == NO_PLACE and why in each.get("message", "") for each in found)

    await eventually(look, f"{scenario.name} waits: {why}")


async def test_a_cluster_takes_its_tenants_jobs_up_to_its_cap(world: World, urls: dict[str, str]) -> None:
    """Whatever the tenant selects, and whatever the agent reports."""
    await set_quota(world, 9)
    async with roles.manager(world, urls), roles.agent(world, urls, EAST), roles.agent(world, urls, WEST):
        await set_cluster(world, EAST, labels={"zone": "east"}, clusterQueues=["other"])
        selecting = elastic("Job", "selecting")
        selecting["metadata"]["annotations"][api_names.CLUSTER_SELECTOR_ANNOTATION] = "zone=east"
        scenario = Scenario(world, "Job", "selecting")
        await world.manager.create(JOBS, selecting)
        await expect_no_place(scenario, f"takes no jobs of ClusterQueue {objects.CLUSTER_QUEUE}")
        await set_cluster(world, EAST, clusterQueues=None, namespaceSelector={"matchLabels": {"team": "other"}})
        await expect_no_place(scenario, f"takes no jobs of namespace {NAMESPACE}")
        await set_cluster(world, EAST, namespaceSelector=None, maxRoom={"cpu": "500m"})
        await expect_no_place(scenario, "lacks 500m more cpu of its maxRoom")
        await set_cluster(world, EAST, maxRoom={"cpu": 2})
        await expect_on(scenario, EAST)
        await scenario.expect_pods(running=1)
        await scenario.scale(3)
        await expect_no_place(scenario, "1 more cpu of its maxRoom needed")


async def expect_on(scenario: Scenario, cluster: ClusterName) -> None:
    async def look() -> bool:
        return await scenario.cluster() == cluster

    await eventually(look, f"{scenario.name} is on {cluster}")


async def expect_no_copy(scenario: Scenario, cluster: ClusterName) -> None:
    async def look() -> bool:
        try:
            await scenario.world.workers[cluster].get(scenario.resource, scenario.name, NAMESPACE)
        except NotFoundError:
            return True
        return False

    await eventually(look, f"{cluster} has no copy of {scenario.name}")


async def test_a_job_goes_where_its_flavor_has_room_and_grows_no_further(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST), roles.agent(world, urls, WEST):
        await set_quota(world, 200)
        async with pool_on(world, WEST):
            scenario = Scenario(world, "Job", "placed")
            await scenario.submit()
            await expect_on(scenario, WEST)
            await scenario.expect_pods(running=1)
            await scenario.scale(70)
            told = await scenario.expect_event("NoPlace", on=world.manager)
            assert "cluster west, where the job runs, has no room for it" in told
            assert "more cpu in flavor default" in told
            await scenario.expect_pods(running=1, gated=69)
            await set_cluster(world, WEST, flavorCapacity={objects.FLAVOR: "Unlimited"})
            await scenario.expect_unfinished(70)


async def test_a_drained_clusters_job_goes_elsewhere(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST), roles.agent(world, urls, WEST):
        await set_quota(world, 20)
        scenario = Scenario(world, "Job", "drained")
        await scenario.submit()
        await scenario.expect_pods(running=1)
        first = await scenario.cluster()
        second = WEST if first == EAST else EAST
        await set_cluster(world, first, drain=True)
        assert f"The cluster {first} is drained" in await scenario.expect_event(
            "EvictedDueToWorkerClusterDrained", on=world.manager
        )
        await expect_on(scenario, second)
        await expect_no_copy(scenario, first)
        await scenario.expect_pods(running=1)


@pytest.mark.real
async def test_a_lost_clusters_job_goes_elsewhere_and_its_copy_is_removed_when_it_is_back(
    world: World, urls: dict[str, str]
) -> None:
    short = {"cluster_lost_s": 2.0, "decisions": ManagerDecisionSettings(cluster_lost_requeue_s=6.0)}
    async with roles.manager(world, urls, **short), roles.agent(world, urls, WEST):
        await set_quota(world, 20)
        async with roles.agent(world, urls, EAST):
            await set_cluster(world, WEST, cordoned=True)
            scenario = Scenario(world, "Job", "lost")
            await scenario.submit()
            await scenario.expect_pods(running=1)
            await expect_on(scenario, EAST)
            await set_cluster(world, WEST, cordoned=False)
            await eventually(lambda: keeps_a_fence(world, EAST), "east keeps a fence")
        await expect_on(scenario, WEST)
        await scenario.expect_pods(running=1)
        assert await world.workers[EAST].get(scenario.resource, scenario.name, NAMESPACE), (
            "nobody was there to remove it"
        )
        assert await standing(world, EAST) == ("True", "ClusterLost")
        async with roles.agent(world, urls, EAST):
            await expect_no_copy(scenario, EAST)
            await eventually(lambda: is_back(world, EAST), "east is back")
            assert await scenario.cluster() == WEST


async def keeps_a_fence(world: World, name: ClusterName) -> bool:
    return "fenceSeconds" in (await world.manager.get(WORKERCLUSTERS, name)).get("status", {})


async def standing(world: World, name: ClusterName) -> tuple[str, str]:
    conditions = (await world.manager.get(WORKERCLUSTERS, name))["status"]["conditions"]
    return next((entry["status"], entry["reason"]) for entry in conditions if entry["type"] == GIVEN_UP)


async def is_back(world: World, name: ClusterName) -> bool:
    return await standing(world, name) == ("False", "Returned")
