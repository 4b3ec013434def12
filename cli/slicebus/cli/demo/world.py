"""A fleet in this process: a manager and its agents, on API servers that are embedded or real."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_fixed

from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.cli.broker.connection import broker_settings, bus_of
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import (
    CRDS,
    NAMESPACES,
    NODES,
    RAYCLUSTERS,
    RAYJOBS,
    RAYSERVICES,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.errors import AlreadyExistsError
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.controllers import crds as ray_crds
from slicebus.sandbox.controllers.jobs import JobController
from slicebus.sandbox.controllers.pods import PodRunner
from slicebus.sandbox.controllers.ray import RayClusterController
from slicebus.sandbox.controllers.ray_jobs import RayJobController
from slicebus.sandbox.controllers.ray_services import RayServiceController
from slicebus.sandbox.controllers.ttl import TtlController

Manifest = dict[str, Any]

_EMBEDDED_NODE_CPU = 64


class World(msgspec.Struct, frozen=True):
    """Connected clients: the manager's cluster, and each worker by its name."""

    manager: KubeClient
    workers: dict[ClusterName, KubeClient]
    apis: dict[str, Api] = {}
    """The embedded API servers, by the host of their clients; empty for real ones."""

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
        clients, apis = list[KubeClient](), dict[str, Api]()
        for _ in range(len(names) + 1):
            server = await stack.enter_async_context(EmbeddedApiServer())
            clients.append(await stack.enter_async_context(KubeClient.from_url(server.url)))
            apis[clients[-1].host] = server.api
        workers = dict(zip(map(ClusterName, names), clients[1:], strict=True))
        world = World(manager=clients[0], workers=workers, apis=apis)
        await prepare(world)
        standins: list[Coroutine[Any, Any, None]] = [TtlController(world.manager).run()]
        for name, client in world.workers.items():
            await world.ensure(client, NODES, objects.node(f"{name}-1", cpu=_EMBEDDED_NODE_CPU))
            # Status is dropped in a create.
            node = objects.node(f"{name}-1", cpu=_EMBEDDED_NODE_CPU)
            await client.replace(NODES, node, subresource="status")
            standins += [
                standin.run()
                for standin in (
                    JobController(client),
                    RayClusterController(client),
                    RayJobController(client),
                    RayServiceController(client),
                    PodRunner(client),
                    TtlController(client),
                )
            ]
        async with running(*standins):
            yield world


@asynccontextmanager
async def real_world(
    manager: Path, workers: Mapping[ClusterName, Path], *, ray_stand_in: bool | None = None
) -> AsyncIterator[World]:
    """Clusters by their kubeconfigs. The stand-in plays KubeRay; by default where a worker has no RayClusters."""
    async with AsyncExitStack() as stack:

        async def client(kubeconfig: Path) -> KubeClient:
            return await stack.enter_async_context(await KubeClient.from_kubeconfig(kubeconfig))

        world = World(
            manager=await client(manager), workers={name: await client(path) for name, path in workers.items()}
        )
        played = [
            worker
            for worker in world.workers.values()
            if (not await worker.serves(RAYCLUSTERS) if ray_stand_in is None else ray_stand_in)
        ]
        await prepare(world)
        kinds = (RayClusterController, RayJobController, RayServiceController)
        standins = (kind(worker).run() for worker in played for kind in kinds)
        async with running(*standins):
            yield world


async def prepare(world: World) -> None:
    """The definitions and namespaces that manager, agents and jobs need, on every cluster."""
    for client in (world.manager, *world.workers.values()):
        definitions = custom_resource_definitions()
        if not await client.serves(RAYJOBS):
            definitions += custom_resource_definitions(ray_crds.__name__)
        for definition in definitions:
            await world.ensure(client, CRDS, definition)
        for resource in (WORKLOADS, RAYJOBS, RAYSERVICES, WORKERCLUSTERS):
            await _served(client, resource)
        for name in (objects.NAMESPACE, objects.SYSTEM_NAMESPACE):
            await world.ensure(client, NAMESPACES, objects.namespace(name))


async def _served(client: KubeClient, resource: Resource) -> None:
    """Wait until a definition is established: a real server needs a moment."""
    unserved = retry_if_result(lambda serves: not serves)
    attempts = AsyncRetrying(retry=unserved, wait=wait_fixed(0.1), stop=stop_after_delay(30))
    await attempts(client.serves, resource)


@asynccontextmanager
async def fleet(
    world: World, amqp_urls: Mapping[str, str], *, schedulers: str = "", **of_the_manager: Any
) -> AsyncIterator[dict[str, CollectorRegistry]]:
    """A manager and an agent for each worker, until the context is left, with the metrics of each role.

    `amqp_urls` gives each role's broker address: `manager`, and the worker's names. `schedulers` are the profiles of
    every agent, as in its settings; `of_the_manager` are settings.
    """
    async with AsyncExitStack() as stack:
        manager_bus = await stack.enter_async_context(bus_of(amqp_urls["manager"], name="slicebus-manager"))
        broker = msgspec.structs.asdict(broker_settings(amqp_urls["manager"]))
        own = broker | of_the_manager
        settings = ManagerSettings(**own, namespace=objects.SYSTEM_NAMESPACE, identity="manager-1")
        metrics = {role: CollectorRegistry() for role in ("manager", *world.workers)}
        manager = Manager(settings, world.manager, manager_bus, metrics["manager"])
        roles = [manager.run()]
        started = [manager.leading]
        for name, client in world.workers.items():
            bus = await stack.enter_async_context(bus_of(amqp_urls[name], name=f"slicebus-agent {name}"))
            await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name, broker_user=bus.user))
            agent = Agent(
                AgentSettings(
                    **msgspec.structs.asdict(broker_settings(amqp_urls[name])),
                    cluster=name,
                    manager_user=manager_bus.user,
                    namespace=objects.SYSTEM_NAMESPACE,
                    identity=f"{name}-1",
                    heartbeat_s=2.0,
                    status_interval_s=0.1,
                    schedulers=schedulers,
                ),
                client,
                bus,
                metrics[name],
            )
            roles.append(agent.run())
            started.append(agent.leading)
        await stack.enter_async_context(running(*roles, started=started))
        yield metrics


@asynccontextmanager
async def running(*roles: Coroutine[Any, Any, None], started: Sequence[asyncio.Event] = ()) -> AsyncIterator[None]:
    """Run coroutines until the context is left. Raises what ends one before: at once until all have started, later when
    the context is left."""
    tasks = [asyncio.create_task(role) for role in roles]
    waiting = asyncio.create_task(_all_set(started), name="starting")
    try:
        await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in (waiting, *tasks):
            task.cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)
        for task in ended:
            task.result()


async def _all_set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()
