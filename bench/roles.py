"""A manager or an agent in a process of its own, which tells what it takes."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from broker import MANAGER
from prometheus_client import CollectorRegistry

from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.bus.contract import Bus
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.messages import ClusterName
from slicebus.runtime.logs import configure_logging
from support.processes import cpu_s_of, memory_bytes_of, most_memory_bytes_of

Before = Callable[[str, KubeClient], Awaitable[None]]
"""What a process does before its role starts, given the role: `manager`, or a cluster's name. A function of a module:
it is called in another process."""


class Place(NamedTuple):
    """Where a role works: its API server, and its address at the broker."""

    role: str
    """`manager`, or a cluster's name."""
    server: Path | str
    """A kubeconfig, or the URL of an embedded API server."""
    url: str
    shards: int = 1
    """Of the manager."""


class Start(NamedTuple):
    """Seconds that something took before the start, and the start of the role until it works."""

    before_s: float
    ready_s: float


async def nothing(role: str, client: KubeClient) -> None:
    """Do nothing before the start."""


class RoleProcess:
    """A role in a process of its own."""

    def __init__(self, place: Place, before: Before = nothing) -> None:
        spawn = get_context("spawn")
        self._pipe, there = spawn.Pipe()
        self._process = spawn.Process(target=_live, args=(place, before, there), daemon=True)
        self._process.start()
        there.close()

    async def started(self) -> Start:
        """Return when the role works. Raises EOFError where its process ends before."""
        found: Start = await asyncio.to_thread(self._pipe.recv)
        return found

    def check(self) -> None:
        """Raises RuntimeError where it has ended, which nobody has told it."""
        if not self._process.is_alive():
            raise RuntimeError(f"the process of the role has ended with {self._process.exitcode}")

    @property
    def resident_mb(self) -> float:
        """What of its memory is resident now."""
        return memory_bytes_of(self._pid) / 1e6

    @property
    def most_resident_mb(self) -> float:
        """The most of its memory that has been resident so far."""
        return most_memory_bytes_of(self._pid) / 1e6

    @property
    def cpu_s(self) -> float:
        """The processor time that it has taken so far."""
        return cpu_s_of(self._pid)

    async def share_of_a_core(self, seconds: float) -> float:
        """What part of a core it takes in the next seconds."""
        began, began_cpu = time.perf_counter(), self.cpu_s
        await asyncio.sleep(seconds)
        return (self.cpu_s - began_cpu) / (time.perf_counter() - began)

    async def end(self) -> None:
        """Let it end, and return when it has."""
        self._pipe.send("end")
        await asyncio.to_thread(self._process.join)

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


def _live(place: Place, before: Before, pipe: Connection) -> None:
    """The other process."""
    configure_logging(format="console", level="ERROR")

    async def live() -> None:
        async with await _client(place.server) as client, bus_of(place.url, name=f"bench {place.role}") as bus:
            began = time.perf_counter()
            await before(place.role, client)
            before_s = time.perf_counter() - began
            gc.collect()
            role = _role(place, client, bus)
            began = time.perf_counter()
            working = asyncio.create_task(role.run_alone())
            try:
                await _until(role.leading, working)
                pipe.send(Start(before_s, time.perf_counter() - began))
                told = asyncio.Event()
                asyncio.get_running_loop().add_reader(pipe.fileno(), told.set)
                await _until(told, working)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    asyncio.run(live())


async def _until(event: asyncio.Event, working: asyncio.Task[None]) -> None:
    """Wait for the event. Raises what ends the role before."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((waiting, working), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        waiting.cancel()


async def _client(server: Path | str) -> KubeClient:
    return KubeClient.from_url(server) if isinstance(server, str) else await KubeClient.from_kubeconfig(server)


def _role(place: Place, client: KubeClient, bus: Bus) -> Manager | Agent:
    identity = f"bench-{os.getpid()}"
    common: dict[str, Any] = {"amqp_url": place.url, "namespace": objects.SYSTEM_NAMESPACE, "identity": identity}
    if place.role == MANAGER:
        return Manager(ManagerSettings(**common, shards=place.shards), client, bus, CollectorRegistry())
    settings = AgentSettings(**common, cluster=ClusterName(place.role), manager_user=MANAGER)
    return Agent(settings, client, bus, CollectorRegistry())
