"""A fleet for each test: once all in this process, once on real servers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet, real_world
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    CONFIGMAPS,
    EVENTS,
    JOBS,
    LEASES,
    LOCALQUEUES,
    PODS,
    RAYCLUSTERS,
    RAYJOBS,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from support.controlplane import ControlPlane
from support.rabbitmq import RabbitBroker
from support.waiting import eventually

REAL = [pytest.mark.rabbitmq, pytest.mark.controlplane, pytest.mark.timeout(240)]


@pytest.fixture(params=["embedded", pytest.param("real", marks=REAL)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A manager and two agents, started."""
    async with AsyncExitStack() as stack:
        if request.param == "embedded":
            name = request.getfixturevalue("broker_name")
            made = await stack.enter_async_context(embedded_world())
            urls = {role: f"memory://{role}@{name}" for role in ("manager", *made.workers)}
        else:
            control_plane: ControlPlane = request.getfixturevalue("control_plane")
            broker: RabbitBroker = request.getfixturevalue("rabbitmq")
            vhost: str = request.getfixturevalue("vhost")
            made = await stack.enter_async_context(wiped_world(control_plane))
            urls = {role: broker.url(vhost, role, role) for role in ("manager", *made.workers)}
        await stack.enter_async_context(fleet(made, urls))
        yield made


@asynccontextmanager
async def wiped_world(control_plane: ControlPlane) -> AsyncIterator[World]:
    """Real API servers, schedulers and Job controllers, nodes by KWOK, and a stand-in for KubeRay."""
    kubeconfigs = {ClusterName(name): cluster.kubeconfig for name, cluster in control_plane.clusters.items()}
    manager = kubeconfigs.pop(ClusterName("manager"))
    async with real_world(manager, kubeconfigs, ray_stand_in=True) as world:
        try:
            yield world
        finally:
            await wipe(world)


async def wipe(world: World) -> None:
    """Take away what a test has left: the next one uses the same names."""
    for client in (world.manager, *world.workers.values()):
        for resource in (RAYJOBS, RAYCLUSTERS, JOBS, WORKLOADS, PODS, EVENTS, LOCALQUEUES):
            await wipe_resource(client, resource, objects.NAMESPACE)
        for resource in (LEASES, CONFIGMAPS):
            await wipe_resource(client, resource, objects.SYSTEM_NAMESPACE)
        for resource in (CLUSTERQUEUES, WORKERCLUSTERS):
            await wipe_resource(client, resource, None)


async def wipe_resource(client: KubeClient, resource: Resource, namespace: str | None) -> None:
    async def empty() -> bool:
        page = await client.list(resource, namespace=namespace)
        for item in page.items:
            metadata = item["metadata"]
            with suppress(NotFoundError):
                if metadata.get("finalizers"):
                    free = MergePatch({"metadata": {"finalizers": None}})
                    await client.patch(resource, metadata["name"], namespace, free)
                await client.delete(resource, metadata["name"], namespace)
        return not page.items

    await eventually(empty, f"no {resource.plural} left")
