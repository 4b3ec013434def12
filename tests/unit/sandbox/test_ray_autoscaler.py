"""What Ray's autoscaler writes, on a RayCluster whose pods KubeRay's stand-in makes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import running
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import PODS, RAYCLUSTERS
from slicebus.sandbox.controllers.ray import RayClusterController
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from support.waiting import eventually
from unit.kube.servers import NAMESPACE

NAME = "train"


class Cluster:
    """A RayCluster, and every size and list of names that it has had."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.written: list[tuple[int, int]] = []
        """Replicas, and how many pods are named."""

    async def workers(self) -> list[str]:
        found = (await self.client.list(PODS, namespace=NAMESPACE, labels="ray.io/node-type=worker")).items
        return [pod["metadata"]["uid"] for pod in found]

    async def expect_workers(self, count: int) -> list[str]:
        async def are_there() -> list[str] | None:
            found = await self.workers()
            return found if len(found) == count else None

        return await eventually(are_there, f"{count} workers") or []

    async def watch(self, since: dict[str, Any]) -> None:
        version = since["metadata"]["resourceVersion"]
        async for event in self.client.watch(RAYCLUSTERS, resource_version=version, namespace=NAMESPACE, timeout_s=60):
            group = event.object["spec"]["workerGroupSpecs"][0]
            now = group["replicas"], len((group.get("scaleStrategy") or {}).get("workersToDelete") or ())
            if self.written[-1:] != [now]:
                self.written.append(now)


@pytest.fixture(params=[1, 2], ids=["single-host", "two-hosts"])
async def cluster(api: KubeClient, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """One with three replicas."""
    spec = objects.ray_cluster_spec(replicas=3)
    spec["workerGroupSpecs"][0]["numOfHosts"] = request.param
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    found = Cluster(api)
    async with running(RayClusterController(api).run()):
        created = await api.create(RAYCLUSTERS, manifest | {"spec": spec})
        await found.expect_workers(3 * request.param)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(found.watch(created))
            yield found
            watching.cancel()


async def test_size_and_names_come_in_one_patch_and_the_names_go_by_a_later_one(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    hosts = request.node.callspec.params["cluster"]
    before, autoscaler = await cluster.workers(), RayAutoscaler(cluster.client, NAME, NAMESPACE)
    await autoscaler.scale(1)
    await autoscaler.settle()
    left = await cluster.expect_workers(hosts)
    assert set(left) < set(before), "no pod is made anew"
    await autoscaler.scale(2)
    await autoscaler.settle()
    assert set(left) < set(await cluster.expect_workers(2 * hosts))

    async def is_watched() -> bool:
        return cluster.written[-1:] == [(2, 0)]

    await eventually(is_watched, "the last size")
    assert [entry for entry in cluster.written if entry != (3, 0)] == [(1, 2 * hosts), (2, 0)], (
        "the list with the next size"
    )


async def test_another_cluster_of_the_name_is_left_alone(cluster: Cluster) -> None:
    named = [{"op": "add", "path": "/spec/workerGroupSpecs/0/scaleStrategy", "value": {"workersToDelete": ["x"]}}]
    await cluster.client.patch(RAYCLUSTERS, NAME, NAMESPACE, JsonPatch(named))
    await RayAutoscaler(cluster.client, NAME, NAMESPACE, uid="another").settle()
    after = await cluster.client.get(RAYCLUSTERS, NAME, NAMESPACE)
    assert after["spec"]["workerGroupSpecs"][0]["scaleStrategy"] == {"workersToDelete": ["x"]}
