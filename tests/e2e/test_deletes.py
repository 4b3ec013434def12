"""Many jobs that go together: what somebody deleted goes at once, what is only inferred is held, says so, and waits."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS, NAMESPACES, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.messages import ClusterName
from slicebus.slices.api.api_names import HELD_CONDITION
from support import roles
from support.controlplane import ControlPlane
from support.installation import run_cli
from support.scenario import NAMESPACE, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
EAST = ClusterName("east")
BREAKER = {"breaker_count": 3}
"""The demo's jobs are few: of these more than three at once are too many."""


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def names(client: KubeClient) -> set[str]:
    return {job["metadata"]["name"] for job in (await client.list(JOBS, namespace=NAMESPACE)).items}


async def submitted(world: World, count: int) -> list[str]:
    """Jobs that run on east."""
    await set_quota(world, 2 * count)
    made = [f"many-{number}" for number in range(count)]
    for name in made:
        await world.manager.create(JOBS, elastic("Job", name))

    async def there() -> bool:
        return await names(world.workers[EAST]) == set(made)

    await eventually(there, f"{count} jobs on east")
    return made


async def nothing_left(world: World) -> None:
    for client in (world.manager, world.workers[EAST]):
        for resource in (JOBS, WORKLOADS):

            async def empty(client: KubeClient = client, resource: Any = resource) -> bool:
                return not (await client.list(resource, namespace=NAMESPACE)).items

            await eventually(empty, f"no {resource.plural} on {client.host}")


async def told(world: World) -> dict[str, str]:
    """The reasons on the Workloads, by the Workload; each says what releases it."""
    found = {}
    for workload in (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items:
        for condition in workload["status"].get("conditions", ()):
            if condition["type"] == HELD_CONDITION:
                assert "slicebus fleet release east" in condition["message"]
                found[workload["metadata"]["name"]] = condition["reason"]
    return found


async def held(world: World, reason: str, *, at_least: int) -> int:
    """Wait until so many deletes are held, each of which its Workload tells of, and no other job is left to be deleted;
    how many these are."""
    there = world.manager if reason == "GoneOnCluster" else world.workers[EAST]

    async def look() -> int:
        status = (await world.manager.get(WORKERCLUSTERS, "east")).get("status", {})
        count = int((status.get("heldDeletes") or {}).get("jobs", 0))
        said = list((await told(world)).values())
        is_all = len(await names(there)) == count
        return count if is_all and count >= at_least and said == [reason] * count else 0

    return await eventually(look, f"at least {at_least} deletes are held, {reason}") or 0


async def release(kubeconfig: Path) -> None:
    done = await asyncio.to_thread(run_cli, "fleet", "release", "east", "--yes", env={"KUBECONFIG": str(kubeconfig)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("how", ["Background", "Foreground", "Orphan"])
@pytest.mark.real
async def test_what_somebody_deletes_goes_at_once(world: World, urls: dict[str, str], how: Any) -> None:
    async with roles.manager(world, urls, **BREAKER), roles.agent(world, urls, "east"):
        for name in await submitted(world, 5):
            await world.manager.delete(JOBS, name, NAMESPACE, propagation=how)
        await nothing_left(world)
        assert (await world.manager.get(WORKERCLUSTERS, "east"))["status"].get("heldDeletes") is None


@pytest.mark.real(only=True)
@pytest.mark.parametrize(
    ("how", "count"), [("kubectl", 25), ("collection", 25), pytest.param("kubectl", 100, marks=pytest.mark.soak)]
)
async def test_more_jobs_than_the_breaker_allows_go_at_once(
    world: World, urls: dict[str, str], control_plane: ControlPlane, how: str, count: int
) -> None:
    """Twenty may go. A collection of batch/v1 Jobs that is deleted without options leaves its dependents as orphans."""
    kubectl = control_plane.clusters["manager"].kubectl
    async with roles.manager(world, urls), roles.agent(world, urls, "east"):
        await submitted(world, count)
        if how == "kubectl":
            await asyncio.to_thread(kubectl, "delete", "jobs", "--all", "--namespace", NAMESPACE, "--wait=false")
        else:
            await asyncio.to_thread(kubectl, "delete", "--raw", JOBS.path(NAMESPACE))
        await nothing_left(world)
        assert (await world.manager.get(WORKERCLUSTERS, "east"))["status"].get("heldDeletes") is None


@pytest.mark.real
async def test_a_namespace_that_goes_is_held(world: World, urls: dict[str, str], kubeconfig: Path) -> None:
    async with roles.manager(world, urls, **BREAKER), roles.agent(world, urls, "east"):
        await submitted(world, 8)
        await world.manager.delete(NAMESPACES, NAMESPACE)
        count = await held(world, "NamespaceTerminating", at_least=5)
        assert len(await names(world.workers[EAST])) == count
        await release(kubeconfig)
        await nothing_left(world)

        async def gone() -> bool:
            found = (await world.manager.list(NAMESPACES)).items
            return all(namespace["metadata"]["name"] != NAMESPACE for namespace in found)

        await eventually(gone, "the namespace is gone")


async def test_jobs_that_vanish_on_a_worker_are_held(world: World, urls: dict[str, str], kubeconfig: Path) -> None:
    async with AsyncExitStack() as outlasting:
        async with roles.manager(world, urls, **BREAKER):
            await outlasting.enter_async_context(roles.agent(world, urls, "east"))
            for name in await submitted(world, 8):
                await world.workers[EAST].delete(JOBS, name, NAMESPACE)
            count = await held(world, "GoneOnCluster", at_least=5)
        async with roles.manager(world, urls, **BREAKER):
            assert await held(world, "GoneOnCluster", at_least=5) == count
            assert len(await names(world.manager)) == count
            await release(kubeconfig)
            await nothing_left(world)


async def test_a_job_that_vanished_is_made_again_where_it_is_evicted(world: World, urls: dict[str, str]) -> None:
    async with roles.manager(world, urls, breaker_count=1), roles.agent(world, urls, "east"):
        for name in await submitted(world, 8):
            await world.workers[EAST].delete(JOBS, name, NAMESPACE)
        count = await held(world, "GoneOnCluster", at_least=7)
        for active in (False, True):
            for workload in await told(world) if not active else await left(world):
                body = MergePatch({"spec": {"active": active}})
                await world.manager.patch(WORKLOADS, workload, NAMESPACE, body)

        async def there() -> bool:
            return len(await names(world.workers[EAST])) == count and not await told(world)

        await eventually(there, "the jobs are on east again")


async def left(world: World) -> list[str]:
    """The Workloads, when their quota is back."""

    async def look() -> list[str] | None:
        found = (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items
        reserved = [each for each in found if each["status"].get("admission")]
        return None if reserved else [each["metadata"]["name"] for each in found]

    return await eventually(look, "nothing holds quota") or []
