"""Two agents of one name on two clusters: the second gets no orders and is not heard, until it is given the name."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slicebus.agent.act.identity import cluster_uid
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import EVENTS, JOBS, RAYCLUSTERS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.decide.cluster.identity import NAME_CONFLICT
from slicebus.manager.state.annotations import reported_status
from slicebus.proto.messages import ClusterName, WorkloadSpec
from slicebus.proto.topology import DEAD, agent_queue
from support import roles
from support.installation import run_cli
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

EAST, OTHER = ClusterName("east"), ClusterName("west")
Manifest = dict[str, Any]


@pytest.fixture
def world(bare: World) -> World:
    """Clusters without roles; what is called west here has an agent that says it is east."""
    return bare


async def east(world: World) -> Manifest:
    status: Manifest = (await world.manager.get(WORKERCLUSTERS, EAST)).get("status", {})
    return status


async def in_conflict_with(world: World, uid: str) -> None:
    """Wait until the WorkerCluster names another cluster."""

    async def look() -> bool:
        status = await east(world)
        conditions = {entry["type"]: entry["status"] for entry in status.get("conditions", ())}
        return status.get("otherCluster", {}).get("clusterUID") == uid and conditions.get(NAME_CONFLICT) == "True"

    await eventually(look, f"another cluster, {uid}, is told of")


async def nothing_on(client: KubeClient) -> bool:
    return not any([(await client.list(resource, namespace=NAMESPACE)).items for resource in (RAYCLUSTERS, WORKLOADS)])


async def shown_as_on(world: World, client: KubeClient) -> str:
    """Wait until the manager has the status of the Job as it runs on a cluster; when it was started there."""

    async def look() -> str | None:
        there = (await client.get(JOBS, "batch", NAMESPACE)).get("status", {})
        found = reported_status(await world.manager.get(JOBS, "batch", NAMESPACE))
        return str(there["startTime"]) if there.get("ready") == 1 and found == there else None

    started = await eventually(look, "the status is mirrored")
    assert started
    return started


async def test_orders_go_to_the_cluster_that_has_the_name(world: World, urls: dict[str, str], kubeconfig: Path) -> None:
    one, other = world.workers[EAST], world.workers[OTHER]
    uids = {client.host: await cluster_uid(client) for client in (one, other)}
    await set_quota(world, 9)
    first, second = Scenario(world, "RayCluster", "first"), Scenario(world, "RayCluster", "second")
    batch = Scenario(world, "Job", "batch")
    async with roles.manager(world, urls) as manager:
        async with roles.agent(world, urls, EAST):
            for scenario in (first, batch):
                await scenario.submit()
                await scenario.expect_pods(running=1)
            began = await shown_as_on(world, one)
        async with roles.agent(world, urls, EAST, client=other, identity="other") as impostor:
            await in_conflict_with(world, uids[other.host])
            # The one that has the name is away: what is ordered waits for it.
            await second.submit()
            await second.cluster()
            mine = agent_queue(EAST, WorkloadSpec.lane, uids[one.host])

            async def ordered() -> bool:
                return (await impostor.bus.depth(mine)).ready > 0

            await eventually(ordered, "the order waits for its cluster")
            assert await nothing_on(other)
            async with roles.agent(world, urls, EAST):
                await second.expect_pods(running=1)
                await first.scale(3)
                await first.expect_pods(running=3)
            assert await nothing_on(other)
            assert (await impostor.bus.depth(DEAD)).ready == 0
        assert (await east(world))["clusterUID"] == uids[one.host]

        async def conflicts() -> list[str]:
            events = (await world.manager.list(EVENTS)).items
            return [event["type"] for event in events if event["reason"] == NAME_CONFLICT]

        assert await eventually(conflicts, "an Event says that the name is taken") == ["Warning"]
        assert manager.metric("slicebus_manager_of_other_clusters_total", cluster=EAST, type="hello") == 1

        # It was no mistake: the first cluster is gone, and this one takes its place.
        env = {"KUBECONFIG": str(kubeconfig)}
        refused = await asyncio.to_thread(run_cli, "fleet", "repin", EAST, env=env)
        assert (refused.returncode, f"from the cluster {uids[one.host]}" in refused.stderr) == (2, True), refused
        done = await asyncio.to_thread(run_cli, "fleet", "repin", EAST, "--yes", env=env)
        assert done.stdout == f"{EAST} is bound to {uids[other.host]}: restart its agent\n", done.stderr
        async with roles.agent(world, urls, EAST, client=other, identity="other") as agent:

            async def made() -> bool:
                found = (await other.list(RAYCLUSTERS, namespace=NAMESPACE)).items
                return {job["metadata"]["name"] for job in found} == {"first", "second"}

            await eventually(made, "the jobs are made on the cluster that has the name now")
            assert await shown_as_on(world, other) > began, "its Job was made anew"
            status = await east(world)
            assert "otherCluster" not in status
            async with roles.agent(world, urls, EAST):
                await in_conflict_with(world, uids[one.host])
            assert (await agent.bus.depth(DEAD)).ready == 0


async def test_a_name_that_nobody_else_uses_is_not_given_away(world: World, kubeconfig: Path) -> None:
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(EAST))
    done = await asyncio.to_thread(run_cli, "fleet", "repin", EAST, env={"KUBECONFIG": str(kubeconfig)})
    assert (done.returncode, done.stderr) == (1, f"no other cluster has used the name {EAST}: name one with --uid\n")
