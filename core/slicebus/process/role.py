"""Runs a role's process: probes first, then its connections, then its work."""

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.kube.client import KubeClient
from slicebus.process.health import health_server


class Role(Protocol):
    """A manager or an agent."""

    async def run(self) -> None:
        """Work until cancelled."""


async def run_role(
    make: Callable[[KubeClient, Bus, CollectorRegistry], Role],
    *,
    name: str,
    amqp_url: str,
    kubeconfig: str | None,
    health_address: str,
) -> None:
    """Work until cancelled.

    A broker that is not there is waited for, alive and not ready: ending would only make the wait longer. A standby is
    ready while it waits for the lease. Raises ForbiddenError when the broker refuses the user.
    """
    registry, connected = CollectorRegistry(), asyncio.Event()
    async with (
        health_server(health_address, ready=connected.is_set, registry=registry),
        await KubeClient.connect(kubeconfig=kubeconfig) as client,
    ):
        bus = await connect(amqp_url, name=name, settings=BusSettings(connect_s=math.inf))
        try:
            connected.set()
            await make(client, bus, registry).run()
        finally:
            await bus.aclose()
