"""API servers, a broker, and a manager and agents as processes of their own: as their users run them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from broker import MANAGER, VHOST

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, real_world
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, PODS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import kueue
from support.controlplane import ControlPlane
from support.fleet import Fleet, connected
from support.kuberay import KubeRay
from support.kueue import VARIABLES, Kueue
from support.rabbitmq import ADMIN, RabbitBroker
from support.rabbitmq_releases import releases
from support.scenario import set_quota
from support.servers import definitions
from support.tools import tools
from support.waiting import eventually

Manifest = dict[str, Any]
WORKERS = (ClusterName("east"), ClusterName("west"))
CPU = 10_000
_ROLE = {"SLICEBUS_HEARTBEAT_SECONDS": "10"}
"""The default of the agents; the tests' fleets have another one."""
_LOOKS_S = 0.25
_CLEARED_S = 180.0


class Installation(NamedTuple):
    """Servers without roles. Pods are played by kwok."""

    world: World
    plane: ControlPlane
    broker: RabbitBroker

    @property
    def admin_url(self) -> str:
        """The broker's address for one who may do everything."""
        return self.broker.url(VHOST, ADMIN)

    @asynccontextmanager
    async def fleet(self, **of_manager: str) -> AsyncIterator[Fleet]:
        """The roles until the context is left, each a process; `of_manager` are variables of the manager. Raises
        AssertionError where one had an error of ours."""
        of_role = {MANAGER: _ROLE | of_manager}
        with TemporaryDirectory() as folder:
            fleet = Fleet(Path(folder))
            fleet.add_all(self.plane, partial(self.broker.url, VHOST), lambda role: of_role.get(role, _ROLE))
            try:
                for role in fleet.roles.values():
                    role.launch()
                await fleet.ready()
                for name in self.world.workers:
                    await _until(partial(connected, self.world, name), f"{name} is connected")
                yield fleet
                for role in fleet.roles.values():
                    await asyncio.to_thread(role.terminate)
                fleet.expect_no_tracebacks()
            finally:
                for role in fleet.roles.values():
                    role.kill()

    async def clear(self, *, jobs: Resource = JOBS, without_fleet: bool = False) -> None:
        """Delete all jobs of a kind, and wait until nothing is left of them. Without a fleet also what it would
        delete."""
        clients = (self.world.manager, *self.world.workers.values())
        for client in clients if without_fleet else clients[:1]:
            for resource in (jobs, WORKLOADS) if without_fleet else (jobs,):
                names = await _names(client, resource)
                await asyncio.gather(*(_delete(client, resource, name) for name in names))
        for client in clients:
            for resource in (jobs, WORKLOADS, PODS):

                async def is_empty(client: KubeClient = client, resource: Resource = resource) -> bool:
                    return not await _names(client, resource)

                await _until(is_empty, f"no {resource.plural} on {client.host}")


def need_servers() -> None:
    """End the process where there is no API server or no RabbitMQ."""
    if not (releases() and (tools() / "kube-apiserver").exists()):
        sys.exit("the servers are not there: `make servers` installs and builds them")


@asynccontextmanager
async def installation(
    kueues: Mapping[str, Manifest] = {}, *, workers: Sequence[ClusterName] = WORKERS, kuberay: bool | None = None
) -> AsyncIterator[Installation]:
    """Servers of a bench's own, for a manager and the workers, with quota on the manager's. Ends the process where they
    are not installed.

    `kueues`: the clusters with a Kueue, each with its settings. `kuberay`: whether the workers have the KubeRay that
    the environment names, or a stand-in for it; None for neither. Raises RuntimeError where one does not start, with
    what it said.
    """
    need_servers()
    with TemporaryDirectory() as of_plane, TemporaryDirectory() as of_broker:
        plane = ControlPlane(Path(of_plane), tools(), (MANAGER, *workers))
        broker = RabbitBroker(Path(of_broker), releases()[0])
        controllers = [
            Kueue(plane.clusters[name], Path(of_plane, f"kueue-{name}"), settings=settings, **named_by_environment())
            for name, settings in kueues.items()
        ]
        operators = [
            KubeRay(plane.clusters[name], Path(of_plane, name), namespace=objects.NAMESPACE, replica_labels=False)
            for name in (workers if kuberay else ())
        ]
        try:
            plane.start()
            broker.start()
            broker.add_vhost(VHOST, *workers)
            for name, cluster in plane.clusters.items():
                cluster.define(*(file for file in definitions() if name not in kueues or not _is_of_kueue(file)))
            for controller in controllers:
                controller.install()
                controller.start()
            kubeconfigs = {name: plane.clusters[name].kubeconfig for name in workers}
            manager = plane.clusters[MANAGER].kubeconfig
            async with real_world(manager, kubeconfigs, ray_stand_in=kuberay is False) as world:
                for operator in operators:
                    await asyncio.to_thread(operator.start)
                await set_quota(world, CPU)
                for name in workers:
                    manifest = objects.worker_cluster(name, broker_user=name)
                    await world.ensure(world.manager, WORKERCLUSTERS, manifest)
                yield Installation(world, plane, broker)
        finally:
            for operator in operators:
                operator.stop()
            for controller in controllers:
                controller.server.kill()
            broker.stop()
            plane.stop()


def named_by_environment() -> dict[str, Path]:
    """The binary of a Kueue, and the folder with its definitions. Ends the process where the variables name none."""
    binary, definitions = (Path(os.environ.get(name, "")) for name in VARIABLES)
    if not binary.is_file() or not definitions.is_dir():
        sys.exit(f"there is no Kueue: {' and '.join(VARIABLES)} name its binary and the folder with its definitions")
    return {"binary": binary, "definitions": definitions}


def _is_of_kueue(file: str) -> bool:
    return Path(file).name.startswith(kueue.GROUP)


async def _until(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait without asking often: what is waited for needs the same processors."""

    async def paused() -> bool:
        found = await look()
        if not found:
            await asyncio.sleep(_LOOKS_S)
        return found

    await eventually(paused, what, within_s=_CLEARED_S)


async def _names(client: KubeClient, resource: Resource) -> list[str]:
    page = await client.list(resource, namespace=objects.NAMESPACE)
    return [item["metadata"]["name"] for item in page.items]


async def _delete(client: KubeClient, resource: Resource, name: str) -> None:
    try:
        await client.delete(resource, name, objects.NAMESPACE)
    except NotFoundError:
        return
