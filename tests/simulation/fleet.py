"""A fleet in one process: API servers, a broker, roles that die and come back, and the controllers around them."""

import asyncio
import random as global_random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry

from simulation.faults import NONE, Broker, Faults, FaultyBus, FaultyTransport, Link
from simulation.rules import Rules, Violation
from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.bus.contract import Bus
from slicebus.bus.memory import MemoryBroker, MemoryBus
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, prepare
from slicebus.kube.client import KubeClient
from slicebus.kube.clock import ambient
from slicebus.kube.embedded.api import Api
from slicebus.kube.embedded.inprocess import InProcessTransport
from slicebus.kube.resources import NODES, WORKERCLUSTERS
from slicebus.kube.standins.jobs import JobController
from slicebus.kube.standins.pods import PodRunner
from slicebus.kube.standins.ray import RayClusterController, RayJobController
from slicebus.kube.transport import Answer, Request
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import ClusterName

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = ("east", "west")
_RESTART_S = (1.0, 20.0)
_SKEW_S = 120.0
_GRACE_S = 60.0


class ObservedTransport(InProcessTransport):
    """Shows every change to the rules, before anybody else can act on it."""

    def __init__(self, fleet: "Fleet", name: str) -> None:
        super().__init__(fleet.apis[name], host=name)
        self._fleet = fleet

    async def request(self, request: Request) -> Answer:
        # A server has its own clock, not that of who asks.
        with ambient(clock=self._fleet.now, random=self._fleet.random):
            answer = await super().request(request)
        self._fleet.rules.look()
        return answer


class Process:
    """One role's pod: its container is started again whenever it ends."""

    def __init__(self, fleet: "Fleet", name: str, start: Callable[[Link], Awaitable[None]]) -> None:
        self.name = name
        self._fleet = fleet
        self._start = start
        self._task: asyncio.Task[None] | None = None
        self.link: Link | None = None

    async def run(self) -> None:
        """Start it again and again."""
        while True:
            link = Link(lambda: self._fleet.faults, self._fleet.random, crash=self._kill)
            self.link = link
            skew = timedelta(seconds=self._fleet.random.uniform(-_SKEW_S, _SKEW_S))
            with ambient(clock=lambda skew=skew: self._fleet.now() + skew, random=self._fleet.random):
                self._task = asyncio.create_task(self._one(link), name=self.name)
            await self._ended(self._task, link)
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                raise error
            await asyncio.sleep(self._fleet.random.uniform(*_RESTART_S))

    async def _ended(self, task: asyncio.Task[None], link: Link) -> None:
        """Wait until the role has ended. One that outlives its own death has swallowed a cancellation."""
        dead = asyncio.ensure_future(link.died.wait())
        await asyncio.wait((task, dead), return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        _, pending = await asyncio.wait((task,), timeout=_GRACE_S)
        if pending:
            raise Violation(f"{self.name} lives on after it was cancelled")

    async def _one(self, link: Link) -> None:
        try:
            await self._start(link)
        except* SlicebusError as group:
            self._fleet.note(f"{self.name} ended: {group.exceptions[0]!r}")

    def _kill(self) -> None:
        self._fleet.note(f"{self.name} is killed")
        if self._task is not None:
            self._task.cancel()


class Fleet:
    """Everything that a seed determines."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        # tenacity's jitter knows no other source.
        global_random.seed(seed)
        self.faults: Faults = NONE
        self.trace: list[str] = []
        self.ended_s = 0.0
        """Virtual time at the end."""
        self.broker = Broker()
        self.memory = MemoryBroker(clock=self.now)
        self.apis = {name: Api(history=500) for name in ("manager", *WORKERS)}
        self.rules = Rules(self.apis)
        self.processes = [Process(self, "manager-1", self._manager("manager-1"))]
        for name in WORKERS:
            self.processes.append(Process(self, f"agent-{name}", self._agent(name, f"agent-{name}")))

    def now(self) -> datetime:
        """Virtual time."""
        return BEGAN + timedelta(seconds=asyncio.get_running_loop().time())

    def note(self, text: str) -> None:
        """Write down what happened."""
        self.trace.append(f"{asyncio.get_running_loop().time():9.3f} {text}")

    def client(self, name: str) -> KubeClient:
        """A client without faults, for users and controllers."""
        return KubeClient(ObservedTransport(self, name))

    def world(self) -> World:
        """As the demo and the end-to-end tests see a fleet."""
        return World(manager=self.client("manager"), workers={ClusterName(name): self.client(name) for name in WORKERS})

    async def run(self, story: Callable[["Fleet"], Awaitable[None]]) -> None:
        """Everything starts, the story is played, everything ends. Raises Violation."""
        with ambient(clock=self.now, random=self.random):
            world = self.world()
            await prepare(world)
            for name, client in world.workers.items():
                await client.create(NODES, objects.node(f"{name}-1", cpu=64))
                await client.replace(NODES, objects.node(f"{name}-1", cpu=64), subresource="status")
                await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name))
            running = [asyncio.create_task(work) for work in (*self._controllers(world), *self._roles())]
            playing = asyncio.ensure_future(story(self))
            try:
                await asyncio.wait((playing, *running), return_when=asyncio.FIRST_COMPLETED)
                for task in (playing, *running):
                    if task.done():
                        task.result()
            finally:
                self.ended_s = asyncio.get_running_loop().time()
                for task in (playing, *running):
                    task.cancel()
                await asyncio.gather(playing, *running, return_exceptions=True)

    def _controllers(self, world: World) -> list[Coroutine[Any, Any, None]]:
        kinds = (JobController, RayClusterController, RayJobController, PodRunner)
        return [kind(client).run() for client in world.workers.values() for kind in kinds]

    def _roles(self) -> list[Coroutine[Any, Any, None]]:
        return [process.run() for process in self.processes]

    def _manager(self, identity: str) -> Callable[[Link], Awaitable[None]]:
        async def start(link: Link) -> None:
            settings = ManagerSettings(
                amqp_url="memory://manager@sim", namespace=objects.SYSTEM_NAMESPACE, identity=identity
            )
            client, bus = self._connections("manager", "manager", link)
            await Manager(settings, client, bus, CollectorRegistry()).run()

        return start

    def _agent(self, cluster: str, identity: str) -> Callable[[Link], Awaitable[None]]:
        async def start(link: Link) -> None:
            settings = AgentSettings(
                cluster=ClusterName(cluster),
                amqp_url=f"memory://{cluster}@sim",
                namespace=objects.SYSTEM_NAMESPACE,
                identity=identity,
            )
            client, bus = self._connections(cluster, cluster, link)
            await Agent(settings, client, bus, CollectorRegistry()).run()

        return start

    def _connections(self, api: str, user: str, link: Link) -> tuple[KubeClient, Bus]:
        transport = FaultyTransport(ObservedTransport(self, api), link)
        bus: Any = FaultyBus(MemoryBus(self.memory, user=user), self.broker, link)
        return KubeClient(transport), bus
