"""A fleet in this process: a manager and its agents, on API servers that are embedded or real."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.embedded import EmbeddedApiServer
from slicebus.kube.resources import CRDS, NAMESPACES, NODES, RAYJOBS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.kube.standins import crds as ray_crds
from slicebus.kube.standins.jobs import JobController
from slicebus.kube.standins.pods import PodRunner
from slicebus.kube.standins.ray import RayClusterController, RayJobController
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.errors import AlreadyExistsError
from slicebus.proto.messages import ClusterName

Manifest = dict[str, Any]

_EMBEDDED_NODE_CPU = 64


class World(msgspec.Struct, frozen=True):
    """Connected clients: the manager's cluster, and each worker by its name."""

    manager: KubeClient
    workers: dict[ClusterName, KubeClient]

    async def ensure(self, client: KubeClient, resource: Resource, manifest: Manifest) -> None:
        """Create an object unless it is there."""
        try:
            await client.create(resource, manifest)
        except AlreadyExistsError:
            return


@asynccontextmanager
async def embedded_world(names: Sequence[str] = ("east", "west")) -> AsyncIterator[World]:
    """Embedded API servers with their stand-ins: one for the manager, one for each worker."""
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(len(names) + 1):
            server = await stack.enter_async_context(EmbeddedApiServer())
            clients.append(await stack.enter_async_context(KubeClient.from_url(server.url)))
        world = World(manager=clients[0], workers=dict(zip(map(ClusterName, names), clients[1:], strict=True)))
        await prepare(world)
        tasks = []
        for name, client in world.workers.items():
            await world.ensure(client, NODES, objects.node(f"{name}-1", cpu=_EMBEDDED_NODE_CPU))
            # Status is dropped in a create.
            node = objects.node(f"{name}-1", cpu=_EMBEDDED_NODE_CPU)
            await client.replace(NODES, node, subresource="status")
            tasks += [
                asyncio.create_task(standin.run(), name=f"{name}:{type(standin).__name__}")
                for standin in (
                    JobController(client),
                    RayClusterController(client),
                    RayJobController(client),
                    PodRunner(client),
                )
            ]
        try:
            yield world
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def prepare(world: World) -> None:
    """The definitions and namespaces that manager, agents and jobs need, on every cluster."""
    for client in (world.manager, *world.workers.values()):
        definitions = custom_resource_definitions()
        if not await client.serves(RAYJOBS):
            definitions += custom_resource_definitions(ray_crds.__name__)
        for definition in definitions:
            await world.ensure(client, CRDS, definition)
        for resource in (WORKLOADS, RAYJOBS, WORKERCLUSTERS):
            while not await client.serves(resource):
                await asyncio.sleep(0.1)
        for name in (objects.NAMESPACE, objects.SYSTEM_NAMESPACE):
            await world.ensure(client, NAMESPACES, objects.namespace(name))


@asynccontextmanager
async def fleet(world: World, amqp_urls: Mapping[str, str]) -> AsyncIterator[None]:
    """A manager and an agent for each worker, until the context is left.

    `amqp_urls` gives each role's broker address: `manager`, and the worker's names.
    """
    async with AsyncExitStack() as stack:
        manager_bus = await connect(amqp_urls["manager"], name="slicebus-manager")
        stack.push_async_callback(manager_bus.aclose)
        settings = ManagerSettings(
            amqp_url=amqp_urls["manager"], namespace=objects.SYSTEM_NAMESPACE, identity="manager-1"
        )
        manager = Manager(settings, client=world.manager, bus=manager_bus)
        roles = [manager.run()]
        started = [manager.leading]
        for name, client in world.workers.items():
            bus = await connect(amqp_urls[name], name=f"slicebus-agent {name}")
            stack.push_async_callback(bus.aclose)
            await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name, broker_user=bus.user))
            agent = Agent(
                AgentSettings(
                    cluster=name,
                    amqp_url=amqp_urls[name],
                    namespace=objects.SYSTEM_NAMESPACE,
                    identity=f"{name}-1",
                    heartbeat_s=2.0,
                    status_interval_s=0.1,
                ),
                client=client,
                bus=bus,
            )
            roles.append(agent.run())
            started.append(agent.speaking)
        running = asyncio.gather(*roles)
        try:
            for event in started:
                await _started(event, running)
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _started(event: asyncio.Event, running: "asyncio.Future[Any]") -> None:
    """Wait for a role, or raise what has ended it."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        waiting.cancel()
        running.result()
