"""A manager and agents that a test starts and stops one by one, with settings of its own."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry

from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, running
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.messages import ClusterName

AGENT = {"heartbeat_s": 0.5, "status_interval_s": 0.1}
LEASE = {"lease_s": 30.0, "lease_renew_s": 1.0}
"""So long that a slow machine does not lose it: a role that is stopped gives it back, so the next does not wait."""


class Running(msgspec.Struct, frozen=True):
    """A role that leads."""

    bus: Bus
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def manager(
    world: World, urls: Mapping[str, str], *, client: KubeClient | None = None, **how: Any
) -> AsyncIterator[Running]:
    """The manager, until the context is left; `client` stands between it and its API server."""
    bus, registry = await connect(urls["manager"], name="manager"), CollectorRegistry()
    given = {"amqp_url": urls["manager"], "namespace": objects.SYSTEM_NAMESPACE, "identity": "manager-1"}
    role = Manager(ManagerSettings(**given | LEASE | how), client or world.manager, bus, registry)
    try:
        async with running(role.run(), started=[role.leading]):
            yield Running(bus, registry)
    finally:
        await bus.aclose()


@asynccontextmanager
async def agent(
    world: World, urls: Mapping[str, str], name: str, *, client: KubeClient | None = None, **how: Any
) -> AsyncIterator[Running]:
    """The agent of one worker, until the context is left; `client` stands between it and its API server."""
    bus, registry = await connect(urls[name], name=name), CollectorRegistry()
    cluster = ClusterName(name)
    given = {"cluster": cluster, "amqp_url": urls[name], "namespace": objects.SYSTEM_NAMESPACE, "identity": name}
    given["manager_user"] = urlsplit(urls["manager"]).username
    role = Agent(AgentSettings(**given | LEASE | AGENT | how), client or world.workers[cluster], bus, registry)
    try:
        await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name, broker_user=bus.user))
        async with running(role.run(), started=[role.leading]):
            yield Running(bus, registry)
    finally:
        await bus.aclose()
