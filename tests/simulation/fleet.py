"""A fleet in one process: API servers, a broker, roles that die and come back, and the controllers around them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from simulation import additions, loop
from simulation.definitions import remove_at_first
from simulation.faults import Broker, FaultyBus, FaultyTransport, Link, Network, Target, Weather
from simulation.gangs import PROFILES, install
from simulation.idle_quota import GROWTH_S
from simulation.notices import CAP_S
from simulation.queues import FLAVORS, node_labels
from simulation.refusals import Refusals
from simulation.relocations import REQUEUE_S, crowd, fail_pods
from simulation.removals import delete_many, release_held
from simulation.rules import Rules
from simulation.schedule import (
    CONTROLLERS,
    ROLES,
    WORKERS,
    Crash,
    DeleteMany,
    Hold,
    Impostor,
    Noise,
    Schedule,
    Stall,
    Stop,
    other_of,
)
from simulation.violations import Violation
from slicebus.agent.app import Agent
from slicebus.agent.settings import AgentSettings
from slicebus.ambient.clock import ambient
from slicebus.bus.contract import Bus
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, prepare
from slicebus.kube.client import KubeClient
from slicebus.kube.failures import error_of
from slicebus.kube.resources import NODES, WORKERCLUSTERS
from slicebus.kube.transport import Answer, Request
from slicebus.manager.app import Manager
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.settings import AdmissionModeName, ManagerDecisionSettings
from slicebus.proto.errors import SlicebusError, UnavailableError
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.inprocess import InProcessTransport
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.sandbox.controllers.jobs import JobController
from slicebus.sandbox.controllers.pods import PodRunner
from slicebus.sandbox.controllers.ray import RayClusterController
from slicebus.sandbox.controllers.ray_jobs import RayJobController
from slicebus.sandbox.controllers.ray_services import RayServiceController
from slicebus.sandbox.controllers.ttl import TtlController
from support.failed_decisions import failed_decisions

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MANAGER = "manager"
_NEVER_S = 1e6
"""Between two reconciles that nothing asks for: nothing shall heal by these alone."""
_WAY_S = 0.0005
_RESTART_S = (1.0, 20.0)
_SKEW_S = 120.0
_GRACE_S = 60.0
_END_S = (0.1, 30.0)
"""How long a pod of a cluster takes to end when it is deleted."""
_ROLL_S = 8.0
"""Between two processes of a deployment that ends and begins them one after the other."""
_RECORD_WAIT_S = 0.05
_UNHEARD_S = 10.0
"""A broker closes the connection of a client that it has not heard of for two heartbeats."""


class SimulatedManager(Manager):
    """One with shorter batches of records: more crashes fall between two."""

    record_wait_s = _RECORD_WAIT_S


class SimulatedAgent(Agent):
    """The same of an agent."""

    record_wait_s = _RECORD_WAIT_S


class Server:
    """One API server: its state outlives a restart, what it remembers of the past does not."""

    def __init__(self, seed: int, name: str, now: Callable[[], datetime]) -> None:
        with ambient(clock=lambda: BEGAN, random=Random(f"{seed}/{name}/made")):
            self.api = Api(history=500)
        self.up = asyncio.Event()
        self.up.set()
        self.refusals = Refusals()
        self._now = now
        self._random = Random(f"{seed}/{name}/server")

    def answer(self, request: Request) -> Answer:
        """As the server answers, by its own clock."""
        with ambient(clock=self._now, random=self._random):
            return self.api.answer(request)

    async def restart(self, down_s: float) -> None:
        """Refuse connections for a while."""
        self.up.clear()
        self.api.store.forget()
        await asyncio.sleep(down_s)
        self.up.set()


class ObservedTransport(InProcessTransport):
    """Shows every change to the rules, before anybody else can act on it."""

    def __init__(self, fleet: "Fleet", name: str, *, waits: bool, by: str = "", weather: Weather | None = None) -> None:
        """`waits`: whoever asks is not simulated, and waits for a server that is away. Its `weather` may make it slow.
        `by` is who asks."""
        self._server = fleet.servers[name]
        super().__init__(self._server.api, host=name)
        self._rules = fleet.rules
        self._waits = waits
        self._weather = weather
        self._by = by

    async def request(self, request: Request, *, was_held: bool = False) -> Answer:
        # Controllers that go round in circles must not stop the clock.
        await asyncio.sleep(self._way_s() if self._waits else 0)
        await self._reach()
        if (refusal := self._refusal(request)) is not None:
            return Answer(refusal.code, orjson.dumps(refusal.to_status()))
        answer = self._server.answer(request)
        self._rules.look(was_held=was_held, by=self._by)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        await self._reach()
        if (refusal := self._refusal(request)) is not None:
            raise error_of(refusal.code, orjson.dumps(refusal.to_status()))
        async with super().stream(request) as lines:
            yield lines

    def _refusal(self, request: Request) -> ApiError | None:
        """Only roles are refused: users and controllers have rights of their own."""
        return None if self._waits else self._server.refusals.of(request)

    def _way_s(self) -> float:
        is_slow = self._weather is not None and "slow" in self._weather.levels
        return self._weather.delay_s() if self._weather is not None and is_slow else _WAY_S

    async def _reach(self) -> None:
        if self._waits:
            await self._server.up.wait()
        elif not self._server.up.is_set():
            raise UnavailableError("connection refused")


class Process:
    """One pod of a role: its container is started again whenever it ends."""

    def __init__(
        self,
        fleet: "Fleet",
        role: str,
        number: int,
        start: Callable[[Link, str], Awaitable[None]],
        *,
        delay_s: float = 0.0,
    ) -> None:
        self.role = role
        self.name = f"{role}-{number}"
        self._delay_s = delay_s
        self._fleet = fleet
        self._start = start
        self._random = Random(f"{fleet.schedule.seed}/{self.name}/life")
        self._own = Random(f"{fleet.schedule.seed}/{self.name}")
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self._program = loop.Program()
        self._link: Link | None = None

    async def run(self) -> None:
        """Start it again and again."""
        await asyncio.sleep(self._delay_s)
        while not self._over:
            weather = self._fleet.weather[self.role]
            link = self._link = Link(
                weather, self._fleet.network, before_effect=partial(self._fleet.before_effect, self)
            )
            self._program = loop.Program()
            skew = timedelta(seconds=self._random.uniform(-self._fleet.skew_s, self._fleet.skew_s))
            clock = lambda skew=skew: self._fleet.now() + skew  # noqa: E731 one clock an incarnation
            self._fleet.rules.clocks[self.name] = clock
            with ambient(clock=clock, random=self._own), loop.of(self._program):
                self._task = asyncio.create_task(self._one(link), name=self.name)
            await self._ended(self._task, link)
            if not self._task.cancelled() and (error := self._task.exception()) is not None:
                raise error
            if not self._over:
                await asyncio.sleep(self._random.uniform(*_RESTART_S))

    def stop(self, for_s: float) -> None:
        """Run none of its code for a while, as if by SIGSTOP."""
        program, link, virtual = self._program, self._link, asyncio.get_running_loop()
        assert isinstance(virtual, loop.VirtualLoop)
        assert link is not None
        self._fleet.note(f"{self.name} is stopped for {for_s:g} s")
        virtual.stop_program(program)
        # Neither the broker nor the clock waits for it.
        if for_s > _UNHEARD_S:
            self._fleet.later(_UNHEARD_S, link.disconnect)
        self._fleet.later(for_s, lambda: self._continue(virtual, program))

    def _continue(self, virtual: loop.VirtualLoop, program: loop.Program) -> None:
        self._fleet.note(f"{self.name} goes on")
        virtual.continue_program(program)

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
            await self._start(link, self.name)
        except* SlicebusError as group:
            self._fleet.note(f"{self.name} ended: {group.exceptions[0]!r}")

    def end(self) -> None:
        """Kill it, and do not start it again."""
        self._over = True
        self.kill()

    def kill(self) -> None:
        """Let it end as if by SIGKILL."""
        self._fleet.note(f"{self.name} is killed")
        assert self._task is not None
        assert self._link is not None
        self._link.died.set()
        self._task.cancel()


class Fleet:
    """Everything that a schedule determines."""

    def __init__(
        self, schedule: Schedule, *, skew_s: float = _SKEW_S, admission: AdmissionModeName = AdmissionModeName.BUILTIN
    ) -> None:
        """`skew_s` is how far the clock of a process may be off."""
        self.schedule = schedule
        self.skew_s = skew_s
        self._admission = admission
        self._shards = schedule.shards
        """Of the manager now."""
        self.random = Random(f"{schedule.seed}/controllers")
        self.weather = {role: Weather(schedule.seed, role) for role in (*ROLES, CONTROLLERS)}
        self.effects = dict.fromkeys(ROLES, 0)
        """The effects that each role has had."""
        self._crashes: set[tuple[str, int]] = set()
        self._stops: dict[tuple[str, int], float] = {}
        self._stalls: dict[tuple[Target, str, int], float] = {}
        self._met: Counter[tuple[Target, str]] = Counter()
        """How often each role has done what it may be stopped before."""
        self._meanwhile: list[asyncio.Task[None]] = []
        """What users do while a process is stopped."""
        self._all_run_at_s = 0.0
        self.runners: list[PodRunner] = []
        self.trace: list[str] = []
        self.ended_s = 0.0
        """Virtual time at the end."""
        self.broker = Broker()
        self.memory = MemoryBroker(clock=self.now)
        self.others = sorted({other_of(item.of) for item in schedule.items if isinstance(item, Impostor)})
        """Clusters that have no name of their own."""
        self.servers = {name: Server(schedule.seed, name, self.now) for name in (MANAGER, *WORKERS, *self.others)}
        apis = {name: server.api for name, server in self.servers.items()}
        self.rules = Rules(apis, others=self.others, shards=schedule.shards)
        self.rules.quota.has_additions = additions.are_in(schedule)
        self.processes = [
            Process(self, role, number, self._start(role), delay_s=number - 1.0)
            for role in ROLES
            for number in range(1, self._processes_of(role) + 1)
        ]
        self.network = Network()

    def _processes_of(self, role: str) -> int:
        shards = self.schedule.shards if role == MANAGER else 1
        # Shards may become more by one.
        return shards + (shards > 1) + (role in self.schedule.standbys)

    async def reshard(self, shards: int) -> None:
        """Have so many shards of the manager from now on: one process after the other ends, and begins."""
        self._shards = shards
        for process in [process for process in self.processes if process.role == MANAGER]:
            process.kill()
            await asyncio.sleep(_ROLL_S)

    def now(self) -> datetime:
        """Virtual time."""
        return BEGAN + timedelta(seconds=asyncio.get_running_loop().time())

    def note(self, text: str) -> None:
        """Write down what happened."""
        self.trace.append(f"{asyncio.get_running_loop().time():9.3f} {text}")

    def break_loose(self) -> None:
        """From now on things go wrong."""
        self.rules.settle()
        for item in self.schedule.items:
            if isinstance(item, Noise):
                self.weather[item.role].levels[item.trouble] = item.level
            elif isinstance(item, Crash):
                self._crashes.add((item.role, item.effect))
            elif isinstance(item, Stop):
                self._stops[item.role, item.effect] = item.for_s
            elif isinstance(item, Stall):
                self._stalls["pod", item.role, item.pod] = item.for_s
            elif isinstance(item, Hold):
                self._stalls["order" if item.role == MANAGER else "heartbeat", item.role, item.message] = item.for_s
        self.effects = dict.fromkeys(ROLES, 0)
        self._met.clear()

    async def calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self._crashes.clear()
        self._stops.clear()
        self._stalls.clear()
        await asyncio.sleep(max(0.0, self._all_run_at_s - asyncio.get_running_loop().time()))
        for weather in self.weather.values():
            weather.levels.clear()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something to a stopped process in a while. The run does not end before."""
        running = asyncio.get_running_loop()
        self._all_run_at_s = max(self._all_run_at_s, running.time() + delay_s)
        running.call_later(delay_s, action, context=self.network.context.copy())

    def before_effect(self, process: Process, on: Target) -> bool:
        """Whether something happens to a process before its next effect: it is killed, or stopped for a while."""
        role = process.role
        self.effects[role] += 1
        at = role, self.effects[role]
        if at in self._crashes:
            process.kill()
            return True
        stop_s = self._stops.get(at) or (self._stall_s(role, on) if on else None)
        if stop_s is not None:
            process.stop(stop_s)
        return stop_s is not None

    def _stall_s(self, role: str, on: Target) -> float | None:
        """How long a process stands still that is about to do this."""
        self._met[on, role] += 1
        stall_s = self._stalls.get((on, role, self._met[on, role]))
        if stall_s is None:
            return None
        if on == "pod":
            self._do_meanwhile(crowd(self.client(role.removeprefix("agent-"))))
        elif on == "order":
            self._do_meanwhile(delete_many(self, DeleteMany(at_s=0.0)))
        return stall_s

    def _do_meanwhile(self, work: Coroutine[Any, Any, None]) -> None:
        self._meanwhile.append(self.network.context.copy().run(asyncio.create_task, work))

    async def cut(self, cluster: str, for_s: float) -> None:
        """Let a cluster's agents not reach the broker for a while."""
        weather = self.weather[f"agent-{cluster}"]
        weather.cut()
        try:
            await fail_pods(self.client(cluster), for_s)
        finally:
            weather.mend()

    def client(self, name: str) -> KubeClient:
        """A client without faults, for users."""
        return KubeClient(ObservedTransport(self, name, waits=True))

    def _controllers_client(self, name: str) -> KubeClient:
        return KubeClient(ObservedTransport(self, name, waits=True, weather=self.weather[CONTROLLERS]))

    def world(self) -> World:
        """As the demo and the end-to-end tests see a fleet."""
        return World(manager=self.client(MANAGER), workers={ClusterName(name): self.client(name) for name in WORKERS})

    async def run(self, scenario: Callable[["Fleet"], Awaitable[None]]) -> None:
        """Everything starts, the story is played, everything ends. Raises Violation."""
        with ambient(clock=self.now, random=self.random), failed_decisions() as failed:
            # Made anew here: what is under way goes by the fleet's clock.
            self.network = Network()
            world = self.world()
            await prepare(world)
            for name in self.others:
                await prepare(World(manager=self.client(name), workers={}))
            for name, client in world.workers.items():
                for flavor in FLAVORS:
                    node = objects.node(f"{name}-{flavor}", cpu=self.schedule.cores)
                    node["metadata"]["labels"] |= node_labels(flavor)
                    await client.create(NODES, node)
                    await client.replace(NODES, node, subresource="status")
                await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster(name))
                if self.schedule.gangs:
                    await install(client)
            await remove_at_first(self)
            running = [asyncio.create_task(work) for work in (*self._controllers(), *self._roles())]
            playing = asyncio.ensure_future(scenario(self))
            broken = asyncio.ensure_future(self.rules.was_broken.wait())
            try:
                await asyncio.wait((playing, broken, *running), return_when=asyncio.FIRST_COMPLETED)
                for task in (playing, *running):
                    if task.done():
                        task.result()
            finally:
                self.ended_s = asyncio.get_running_loop().time()
                tasks = (playing, broken, *running, *self._meanwhile)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if failed:
                raise Violation(f"a decision raised: {failed[0]}")

    def _controllers(self) -> list[Coroutine[Any, Any, None]]:
        ray = partial(RayClusterController, replica_labels=self.schedule.replica_labels)
        kinds, ends = (JobController, ray, RayJobController, RayServiceController), Random(f"{self.schedule.seed}/ends")
        workers = [self._controllers_client(name) for name in WORKERS]
        clients = (*workers, *map(self.client, self.others))
        self.runners = [PodRunner(client, end_s=ends.uniform(*_END_S)) for client in clients]
        running = [runner.run() for runner in self.runners]
        manager = self.client(MANAGER)
        lifetimes = [TtlController(client).run() for client in (manager, *workers)]
        admin = release_held(manager)
        return [*(kind(client).run() for client in clients for kind in kinds), *running, *lifetimes, admin]

    def _roles(self) -> list[Coroutine[Any, Any, None]]:
        return [process.run() for process in self.processes]

    def _start(self, role: str) -> Callable[[Link, str], Awaitable[None]]:
        return self._manager() if role == MANAGER else self.agent(role.removeprefix("agent-"))

    def _manager(self) -> Callable[[Link, str], Awaitable[None]]:
        async def start(link: Link, identity: str) -> None:
            settings = ManagerSettings(
                amqp_url="memory://manager@sim",
                namespace=objects.SYSTEM_NAMESPACE,
                identity=identity,
                admission_writers=self.schedule.admission_writers,
                breaker_count=self.schedule.breaker_count,
                shards=self._shards,
                reconcile_s=_NEVER_S,
                decisions=ManagerDecisionSettings(
                    admission=self._admission,
                    fair_sharing=self.schedule.fair_sharing,
                    fixed_jobs=self.schedule.fixed_jobs,
                    cluster_lost_requeue_s=REQUEUE_S if self.schedule.shards == 1 else None,
                    idle_growth_s=GROWTH_S,
                    pods_ready_s=self.schedule.patience.start_s,
                    pods_recovery_s=self.schedule.patience.recovery_s,
                    scale_up_ready_s=self.schedule.patience.scale_up_s,
                    notice_cap_s=CAP_S,
                ),
            )
            client, bus = self._connections(MANAGER, link, identity)
            await SimulatedManager(settings, client, bus, CollectorRegistry()).run()

        return start

    def agent(self, cluster: str, *, on: str | None = None) -> Callable[[Link, str], Awaitable[None]]:
        """What starts an agent of a name; `on` is the API server of another cluster than the one that has it."""

        async def start(link: Link, identity: str) -> None:
            settings = AgentSettings(
                cluster=ClusterName(cluster),
                amqp_url=f"memory://{cluster}@sim",
                manager_user=MANAGER,
                namespace=objects.SYSTEM_NAMESPACE,
                identity=identity,
                inventory_s=self.schedule.inventory_s,
                reconcile_s=_NEVER_S,
                schedulers=PROFILES if self.schedule.gangs else "",
            )
            client, bus = self._connections(cluster, link, identity, api=on)
            await SimulatedAgent(settings, client, bus, CollectorRegistry()).run()

        return start

    def _connections(self, name: str, link: Link, by: str, *, api: str | None = None) -> tuple[KubeClient, Bus]:
        transport = FaultyTransport(ObservedTransport(self, api or name, waits=False, by=by), link)
        bus: Any = FaultyBus(MemoryBus(self.memory, user=name), self.broker, link, observer=self.rules)
        return KubeClient(transport), bus
