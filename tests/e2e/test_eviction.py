"""Queues that are drained, and workloads that are deactivated: pods go, quota comes free, and jobs come back.

Kueue's conformance point 13: a job that was evicted by a stopped ClusterQueue goes on with the same chain.
"""

import asyncio
from pathlib import Path

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, LOCALQUEUES, PODS, WORKLOADS, Resource
from slicebus.proto.messages import ClusterName
from slicebus.slices.api.kueue import MAX_EXECUTION_TIME_LABEL, Condition
from slicebus.slices.workload.workload import Slice
from support import roles
from support.installation import run_cli
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota, straggler
from support.waiting import eventually

EAST = ClusterName("east")


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def stop(world: World, policy: str, resource: Resource = CLUSTERQUEUES) -> None:
    """Another stopPolicy of the queue."""
    name, namespace = (objects.QUEUE, NAMESPACE) if resource == LOCALQUEUES else (objects.CLUSTER_QUEUE, None)
    await world.manager.patch(resource, name, namespace, MergePatch({"spec": {"stopPolicy": policy}}))


async def grown(world: World, kind: str) -> tuple[Scenario, Slice]:
    """A job with one worker that has grown to five, and its first slice."""
    await set_quota(world, 20)
    scenario = Scenario(world, kind, "evicted")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [first] = await scenario.expect_unfinished(1)
    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    await scenario.expect_unfinished(5)
    return scenario, first


async def expect_condition(scenario: Scenario, type: str, status: str, reason: str) -> Slice:
    """Wait for a condition of the one slice that has not finished."""

    async def look() -> Slice | None:
        [slice] = [slice for slice in await scenario.chain() if not slice.finished]
        said = slice.conditions.get(type, {})
        return slice if (said.get("status"), said.get("reason")) == (status, reason) else None

    found = await eventually(look, f"{scenario.name} says {type}={status} {reason}")
    assert found is not None
    return found


async def expect_suspended(scenario: Scenario, suspended: bool) -> None:
    """Wait until the manager's own job says so."""

    async def look() -> bool:
        job = await scenario.world.manager.get(scenario.resource, scenario.name, NAMESPACE)
        return bool(job["spec"].get("suspend")) is suspended

    await eventually(look, f"the manager's {scenario.name} is suspended: {suspended}")


async def expect_no_pods(scenario: Scenario) -> None:
    worker = await scenario.worker()

    async def look() -> bool:
        return not (await worker.list(PODS, namespace=NAMESPACE)).items

    await eventually(look, f"{scenario.name} has no pods")


@pytest.mark.parametrize("kind", [pytest.param("Job", marks=pytest.mark.real), "RayCluster", "RayJob"])
async def test_a_drained_job_comes_back_at_its_specs_size_in_the_same_chain(
    world: World, urls: dict[str, str], kubeconfig: Path, kind: str
) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        scenario, first = await grown(world, kind)
        await stop(world, "HoldAndDrain")
        assert "The ClusterQueue is stopped" in await scenario.expect_event(
            "EvictedDueToClusterQueueStopped", on=world.manager
        )
        await expect_no_pods(scenario)
        waits = await expect_condition(scenario, Condition.QUOTA_RESERVED, "False", "Inadmissible")
        assert waits.conditions[Condition.EVICTED]["reason"] == "ClusterQueueStopped"
        assert waits.conditions[Condition.REQUEUED]["status"] == "False"
        await expect_suspended(scenario, True)
        assert scenario.workers_of(waits) == 1
        await expect_used(world, "0")
        await stop(world, "None")
        await scenario.expect_pods(running=1)
        back = await expect_condition(scenario, Condition.EVICTED, "False", "QuotaReserved")
        assert (back.name, back.chain) == (waits.name, first.chain)
        assert back.conditions[Condition.REQUEUED]["reason"] == "ClusterQueueRestarted"
        await expect_suspended(scenario, False)
        await scenario.scale(3)
        await scenario.expect_pods(running=3)
        told = await asyncio.to_thread(run_cli, "explain", "team-a/evicted", env={"KUBECONFIG": str(kubeconfig)})
        assert told.returncode == 0, told.stderr
        steps = [" ".join(line.split()[1:]) for line in told.stdout.splitlines()]
        assert [step for step in steps if step.startswith("admitted on cluster east for ") and "=5" in step], told
        assert "evicted: ClusterQueueStopped: The ClusterQueue is stopped" in steps


async def test_quota_is_held_for_as_long_as_a_pod_runs_whatever_becomes_of_the_agent(
    world: World, urls: dict[str, str]
) -> None:
    """The pod that is left goes while no agent is there; the next one notices and reports."""
    async with roles.manager(world, urls):
        async with roles.agent(world, urls, EAST):
            scenario, _ = await grown(world, "Job")
            worker = await scenario.worker()
            left = await worker.create(PODS, straggler(await scenario.worker_job()))
            await stop(world, "HoldAndDrain", LOCALQUEUES)
            await expect_condition(scenario, Condition.EVICTED, "True", "LocalQueueStopped")

            async def one_is_left() -> bool:
                return [pod["metadata"]["name"] for pod in await scenario.pods()] == [left["metadata"]["name"]]

            await eventually(one_is_left, "all pods but one are gone")
            # As long as it ran beside the others it was charged too.
            await expect_used(world, "5")
        held = await expect_condition(scenario, "slicebus.dev/Dispatched", "False", "Suspending")
        assert held.admission is not None
        await worker.delete(PODS, left["metadata"]["name"], NAMESPACE)
        await expect_no_pods(scenario)
        async with roles.agent(world, urls, EAST):
            await expect_condition(scenario, "slicebus.dev/Dispatched", "True", "Suspended")
            await expect_condition(scenario, Condition.QUOTA_RESERVED, "False", "Inadmissible")
            await expect_used(world, "0")
            await stop(world, "None", LOCALQUEUES)
            await scenario.expect_pods(running=1)


async def test_a_deactivated_job_waits_until_it_is_active_again(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        scenario, _ = await grown(world, "Job")
        [slice] = await scenario.expect_unfinished(5)
        await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, MergePatch({"spec": {"active": False}}))
        await expect_no_pods(scenario)
        waits = await expect_condition(scenario, Condition.QUOTA_RESERVED, "False", "Inadmissible")
        assert waits.conditions[Condition.QUOTA_RESERVED]["message"] == "The workload is deactivated"
        await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, MergePatch({"spec": {"active": True}}))
        await scenario.expect_pods(running=1)
        await expect_condition(scenario, Condition.REQUEUED, "True", "Reactivated")


async def test_no_pods_of_another_job_keep_an_eviction_from_its_end(world: World, urls: dict[str, str]) -> None:
    """Their user has written the label that names the pods of the RayCluster into their template."""
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        await set_quota(world, 8)
        cluster, job = Scenario(world, "RayCluster", "grid"), Scenario(world, "Job", "beside")
        await cluster.submit()
        await cluster.expect_pods(running=1)
        manifest = elastic("Job", "beside")
        manifest["spec"]["template"]["metadata"] = {"labels": {"ray.io/cluster": "grid"}}
        await world.manager.create(JOBS, manifest)
        await job.expect_pods(running=1)
        [slice] = [one for one in await cluster.chain() if not one.finished]
        await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, MergePatch({"spec": {"active": False}}))
        await expect_condition(cluster, Condition.QUOTA_RESERVED, "False", "Inadmissible")
        await job.expect_pods(running=1)


async def test_a_job_whose_time_is_over_waits_until_it_is_active_again(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        await set_quota(world, 8)
        job = elastic("Job", "late")
        job["metadata"]["labels"] |= {MAX_EXECUTION_TIME_LABEL: "8"}
        await world.manager.create(JOBS, job)
        scenario = Scenario(world, "Job", "late")
        await scenario.expect_pods(running=1)
        await scenario.scale(3)
        await expect_no_pods(scenario)
        waits = await expect_condition(scenario, Condition.QUOTA_RESERVED, "False", "Inadmissible")
        told = "The workload is deactivated: exceeding the maximum execution time of 8 s"
        assert waits.conditions[Condition.QUOTA_RESERVED]["message"] == told
        await expect_used(world, "0")
        await world.manager.patch(WORKLOADS, waits.name, NAMESPACE, MergePatch({"spec": {"active": True}}))
        await scenario.expect_pods(running=1)
