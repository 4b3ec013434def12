"""Pods that have quota and do not get ready: their job goes to another cluster, or its scale-up alone is taken back."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from e2e.conftest import clusters_of
from slicebus.cli.demo.world import World, fleet
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import EVENTS, JOBS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs.batch import JOB_NAME_LABEL
from slicebus.slices.workload.workload import Slice
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
_HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture
async def impatient(parts: str, urls: dict[str, str], request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A fleet whose manager waits for pods for a few seconds."""
    async with (
        clusters_of(parts, request) as world,
        fleet(world, urls, decisions=ManagerDecisionSettings(pods_ready_s=6.0)),
    ):
        await set_quota(world, 20)
        yield world


async def submitted(world: World, name: str, **pod: Any) -> Scenario:
    """A Job; `pod` is more of its pods' spec."""
    manifest = elastic("Job", name)
    manifest["spec"]["template"]["spec"] |= pod
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def cordon(world: World, name: str, *, cordoned: bool = True) -> None:
    await world.manager.patch(WORKERCLUSTERS, name, None, MergePatch({"spec": {"cordoned": cordoned}}))


async def newest(scenario: Scenario) -> Slice:
    return (await scenario.chain())[-1]


async def expect_ready(scenario: Scenario) -> None:
    async def look() -> bool:
        return (await newest(scenario)).condition(Condition.PODS_READY)

    await eventually(look, f"the pods of {scenario.name} are ready")


async def test_a_job_whose_pods_do_not_start_goes_to_another_cluster(impatient: World) -> None:
    """Only one cluster has the node that it wants; the manager does not know."""
    await cordon(impatient, "west")
    scenario = await submitted(impatient, "picky", nodeSelector={_HOSTNAME: "west-1"})
    assert await scenario.cluster() == "east"
    await cordon(impatient, "west", cordoned=False)
    message = await scenario.expect_event("EvictedDueToPodsReadyTimeout", on=impatient.manager)
    assert message == f"Exceeded the PodsReady timeout {NAMESPACE}/{(await newest(scenario)).name}"

    async def moved() -> bool:
        return (await newest(scenario)).cluster == "west"

    await eventually(moved, "it is on the other cluster")
    await scenario.expect_pods(running=1)
    left = (await impatient.workers[ClusterName("east")].list(JOBS, namespace=NAMESPACE)).items
    assert left == [], "it was removed before it went elsewhere"

    async def forgotten() -> bool:
        workload = await impatient.manager.get(WORKLOADS, (await newest(scenario)).name, NAMESPACE)
        return api_names.AVOIDED_CLUSTERS_ANNOTATION not in workload["metadata"]["annotations"]

    await eventually(forgotten, "it avoids no cluster any more")
    await expect_used(impatient, "1")


def taken_back(size: int) -> str:
    return f"Pods of the scale-up to main={size} were not ready after 2 s: the size is main=3 again"


async def expect_taken_back(scenario: Scenario, size: int) -> None:
    """Wait until both sides say that a scale-up to this size is taken back, and the size is 3 again."""
    world, cluster = scenario.world, await scenario.cluster()
    for client in (world.manager, world.workers[cluster]):

        async def told(client: KubeClient = client) -> bool:
            events = (await client.list(EVENTS, namespace=NAMESPACE)).items
            return taken_back(size) in [each["message"] for each in events if each["reason"] == "ScaleUpTakenBack"]

        await eventually(told, f"{client.host} says that the scale-up to {size} is taken back")
    await scenario.expect_unfinished(3)
    await scenario.expect_pods(running=3)


@pytest.mark.real(only=True)
async def test_a_scale_up_whose_pods_do_not_start_is_taken_back(bare: World, urls: dict[str, str]) -> None:
    """No two of its pods may be on one of the three nodes: only a real scheduler knows where the others are. The first
    manager is patient, as a busy machine may need longer than the second one waits."""
    apart = {"topologyKey": _HOSTNAME, "labelSelector": {"matchLabels": {JOB_NAME_LABEL: "apart"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    async with AsyncExitStack() as outlasting:
        async with roles.manager(bare, urls):
            for name in bare.workers:
                await outlasting.enter_async_context(roles.agent(bare, urls, name))
            await set_quota(bare, 20)
            scenario = await submitted(bare, "apart", affinity=affinity)
            await scenario.expect_pods(running=1)
            await scenario.scale(3)
            await scenario.expect_pods(running=3)
            await expect_ready(scenario)
        async with roles.manager(
            bare, urls, decisions=ManagerDecisionSettings(pods_ready_s=600.0, scale_up_ready_s=2.0)
        ):
            surviving, cluster = await scenario.running(), await scenario.cluster()
            await scenario.scale(5)
            await expect_taken_back(scenario, 5)
            assert await scenario.running() == surviving
            assert (await scenario.worker_job())["spec"]["parallelism"] == 3
            assert (await bare.manager.get(JOBS, "apart", NAMESPACE))["spec"]["parallelism"] == 1
            await expect_used(bare, "3")

            await scenario.scale(4)
            await expect_taken_back(scenario, 4)
            assert await scenario.running() == surviving

            await scenario.scale(2)
            await scenario.expect_unfinished(2)
            await scenario.expect_pods(running=2)
            await expect_used(bare, "2")
            assert await scenario.cluster() == cluster
