"""A RayCluster with GCS fault tolerance goes when its data in Redis has: its clean-up pod needs no quota to start.

Without that, such a cluster stays until the clean-up Job has passed its deadline of 300 s.
"""

from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS, RAYCLUSTERS, WORKLOADS
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
REDIS = "redis:6379"


def by_options(manifest: Manifest, cluster_spec: Manifest) -> None:
    cluster_spec["gcsFaultToleranceOptions"] = {"redisAddress": REDIS}


def by_annotation(manifest: Manifest, cluster_spec: Manifest) -> None:
    manifest["metadata"]["annotations"]["ray.io/ft-enabled"] = "true"
    container = cluster_spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "RAY_REDIS_ADDRESS", "value": REDIS}]


async def submitted(world: World, kind: str, name: str, turn_on: Any = by_options) -> Scenario:
    """A job whose cluster is fault tolerant, with one worker that runs."""
    await set_quota(world, 5)
    scenario, manifest = Scenario(world, kind, name), elastic(kind, name)
    turn_on(manifest, manifest["spec"].get("rayClusterSpec", manifest["spec"]))
    await world.manager.create(scenario.resource, manifest)
    await scenario.expect_pods(running=1)
    return scenario


async def clusters(client: KubeClient) -> list[Manifest]:
    return (await client.list(RAYCLUSTERS, namespace=NAMESPACE)).items


async def expect_cleaned_up(worker: KubeClient) -> None:
    """Wait until the RayCluster has gone, and with it the Job that KubeRay has made for it."""

    async def look() -> bool:
        jobs = (await worker.list(JOBS, namespace=NAMESPACE)).items
        return not await clusters(worker) and not jobs

    await eventually(look, "the RayCluster has gone")


@pytest.mark.parametrize("turn_on", [pytest.param(by_options, marks=pytest.mark.real), by_annotation])
async def test_a_raycluster_that_is_deleted_goes_within_seconds(world: World, turn_on: Any) -> None:
    scenario = await submitted(world, "RayCluster", "tolerant", turn_on)
    worker = await scenario.worker()
    [cluster] = await clusters(worker)
    assert cluster["metadata"]["finalizers"] == ["ray.io/gcs-ft-redis-cleanup-finalizer"]
    await world.manager.delete(RAYCLUSTERS, scenario.name, NAMESPACE)
    await expect_cleaned_up(worker)
    await scenario.expect_nothing_left()


async def test_the_cluster_of_a_rayjob_goes_within_seconds_after_its_job(world: World) -> None:
    """It outlives the RayJob: nothing of ours is left on the worker by then but its pods' labels."""
    scenario = await submitted(world, "RayJob", "tolerant-job")
    worker = await scenario.worker()
    await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
    await expect_cleaned_up(worker)
    await scenario.expect_nothing_left()


async def test_the_cluster_of_an_evicted_rayjob_goes_within_seconds(world: World) -> None:
    """An evicted job has no grant. KubeRay deletes the cluster of a suspended RayJob."""
    scenario = await submitted(world, "RayJob", "tolerant-evicted")
    worker, [running] = await scenario.worker(), await scenario.expect_unfinished(1)
    await world.manager.patch(WORKLOADS, running.name, NAMESPACE, MergePatch({"spec": {"active": False}}))
    await expect_cleaned_up(worker)
