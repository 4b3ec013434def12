"""What may go wrong between a process and the servers it talks to.

What a process has sent is on its way, whatever becomes of the process: it may die, be cancelled or be stopped, and the
request takes effect all the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from random import Random
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from simulation.schedule import Trouble
from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.sizes import Keep
from slicebus.kube.transport import Answer, Request, Transport
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, ExpiredError, UnavailableError
from slicebus.proto.messages import Heartbeat, WorkloadSpec
from slicebus.proto.rights import Use
from slicebus.proto.topology import Binding, Topology
from slicebus.sandbox.bus import MemoryBus
from slicebus.sandbox.queues import MemoryDelivery, MemorySubscription

Result = TypeVar("Result")
Target = Literal["", "pod", "order", "heartbeat"]
"""What an effect is: a write to a pod, a job's order, a heartbeat, or anything else."""
_TARGETS: dict[str | None, Target] = {WorkloadSpec.type: "order", Heartbeat.type: "heartbeat"}
_PACE_S = 0.002
_CONFIRM_S = 30.0
_LATE_S = 1.0


class Weather:
    """What goes wrong on the way of one role. Each trouble has random choices of its own."""

    def __init__(self, seed: int, role: str) -> None:
        self.levels: dict[Trouble, float] = {}
        self.online = asyncio.Event()
        """Whether the broker can be reached from here."""
        self.online.set()
        self.offline = asyncio.Event()
        self._name = f"{seed}/{role}"
        self._choices: dict[str, Random] = {}

    def cut(self) -> None:
        """From now on the broker cannot be reached."""
        self.online.clear()
        self.offline.set()

    def mend(self) -> None:
        """It can be reached again."""
        self.offline.clear()
        self.online.set()

    def happens(self, trouble: Trouble) -> bool:
        """Whether this goes wrong now."""
        level = self.levels.get(trouble, 0.0)
        return level > 0 and self.choices(trouble).random() < level

    def delay_s(self) -> float:
        """How long the next way takes."""
        return self.choices("pace").uniform(0, self.levels.get("slow", _PACE_S))

    def choices(self, name: str) -> Random:
        """A source of random numbers for one purpose."""
        if name not in self._choices:
            self._choices[name] = Random(f"{self._name}/{name}")
        return self._choices[name]


class Network:
    """What is under way between processes and servers, and outlives whoever has sent it."""

    def __init__(self) -> None:
        self.context = copy_context()
        """That of nobody in particular."""
        self._under_way: set[asyncio.Task[Any]] = set()

    async def carry(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What comes back of work that goes on without whoever waits for it, once it has begun."""
        task = asyncio.create_task(work, context=self.context.copy())
        self._under_way.add(task)
        task.add_done_callback(self._arrived)
        return await asyncio.shield(task)

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        # Whoever asked may be gone: nobody else would look at the error.
        if not task.cancelled():
            task.exception()


class Link:
    """One incarnation of a process on its way to everything else. When the process is dead it sends nothing more."""

    def __init__(self, weather: Weather, network: Network, *, before_effect: Callable[[Target], bool]) -> None:
        self.network = network
        self.weather = weather
        self.died = asyncio.Event()
        self.buses: list[FaultyBus] = []
        self._before_effect = before_effect

    def check(self) -> None:
        """Raise UnavailableError in a dead process."""
        if self.died.is_set():
            raise UnavailableError("the process is dead")

    async def effect(self, on: Target = "") -> bool:
        """Between two effects: perhaps the process is killed or stopped here. Whether it was stopped."""
        self.check()
        if not self._before_effect(on):
            return False
        await asyncio.sleep(0)
        self.check()
        return True

    async def delay(self) -> None:
        """Let time pass on the way."""
        await asyncio.sleep(self.weather.delay_s())

    def disconnect(self) -> None:
        """The broker has not heard of the process for too long."""
        for bus in self.buses:
            bus.drop()


class Watched(Transport, Protocol):
    """A way to an API server that shows the rules what it changes."""

    async def request(self, request: Request, *, was_held: bool = False) -> Answer:
        """`was_held`: its sender was stopped when it had decided, and could not look at its Lease again."""


class FaultyTransport:
    """A way to an API server that fails as networks and servers do."""

    def __init__(self, inner: Watched, link: Link) -> None:
        self._inner = inner
        self._link = link

    @property
    def host(self) -> str:
        return self._inner.host

    async def request(self, request: Request) -> Answer:
        # Renewals are no steps of the work: a crash there is one like at any other moment.
        is_effect = request.method != "GET" and "/leases" not in request.path
        was_held = is_effect and await self._link.effect("pod" if "/pods/" in request.path else "")
        self._link.check()
        answer = await self._link.network.carry(self._exchange(request, was_held=was_held))
        if is_effect:
            await self._link.effect()
        return answer

    async def _exchange(self, request: Request, *, was_held: bool) -> Answer:
        link, weather = self._link, self._link.weather
        await link.delay()
        if weather.happens("lost"):
            raise UnavailableError("the request was lost")
        answer = await self._inner.request(request, was_held=was_held)
        if weather.happens("unanswered"):
            raise UnavailableError("the answer was lost")
        await link.delay()
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        link = self._link
        link.check()
        await link.delay()
        if link.weather.happens("expired"):
            raise ExpiredError("410: too old resource version")
        async with self._inner.stream(request) as lines:
            yield self._lines(lines)

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await self._link.delay()
            if self._link.weather.happens("cut"):
                raise UnavailableError("the watch was cut")
            yield line

    async def aclose(self) -> None:
        await self._inner.aclose()


class Observer(Protocol):
    """Sees what goes through the broker."""

    def published(self, message: WireMessage) -> None:
        """The broker is about to have a message."""

    def acknowledged(self, queue: str, message: WireMessage) -> None:
        """Whoever took a message says that its effect is durable."""


class Broker:
    """Whether the broker is up. Its queues outlive a restart; connections, and what is under way on them, do not."""

    def __init__(self) -> None:
        self.up = asyncio.Event()
        self.up.set()
        self.restarted = asyncio.Event()

    async def restart(self, down_s: float) -> None:
        """Go away, with every connection, and come back."""
        self.up.clear()
        self.restarted.set()
        self.restarted = asyncio.Event()
        await asyncio.sleep(down_s)
        self.up.set()


class FaultyBus:
    """A connection that fails as networks and brokers do, and comes back as the real client's does."""

    confirms: ClassVar[bool] = True
    """Without confirms a publisher takes for granted that the broker has the message."""

    def __init__(self, inner: MemoryBus, broker: Broker, link: Link, *, observer: Observer) -> None:
        self._inner = inner
        self._broker = broker
        self._link = link
        self._observer = observer
        self._subscriptions: dict[MemorySubscription, None] = {}
        self._reconnected: list[Callable[[], None]] = []
        link.buses.append(self)

    @property
    def user(self) -> str:
        return self._inner.user

    @property
    def blocked(self) -> str:
        return ""

    @property
    def connected(self) -> bool:
        return self._broker.up.is_set()

    def drop(self) -> None:
        """Forget this connection, on the broker's side."""
        for subscription in list(self._subscriptions):
            subscription.close()

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        self._reconnected.append(callback)

    async def declare(self, topology: Topology) -> None:
        await self._reach()
        await self._inner.declare(topology)

    async def unbind(self, bindings: Iterable[Binding]) -> None:
        await self._reach()
        await self._inner.unbind(bindings)

    async def check(self, topology: Topology) -> Sequence[str]:
        await self._reach()
        return await self._inner.check(topology)

    async def refused(self, uses: Iterable[Use]) -> Sequence[Use] | None:
        await self._reach()
        return await self._inner.refused(uses)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        await self._reach()
        await self._link.effect(_TARGETS.get(message.type, ""))
        try:
            await self._link.network.carry(self._exchange(exchange, message))
        except UnavailableError:
            if self.confirms:
                raise
        await self._link.effect()

    async def _exchange(self, exchange: str, message: WireMessage) -> None:
        link, weather, connection = self._link, self._link.weather, self._broker.restarted
        await link.delay()
        if weather.happens("lost") or connection.is_set() or weather.offline.is_set():
            raise UnavailableError("the message was lost before the broker had it")
        self._observer.published(message)
        await self._inner.publish(exchange, message)
        if weather.happens("twice"):
            await self._inner.publish(exchange, message)
        await link.delay()
        if weather.happens("unanswered") or connection.is_set() or weather.offline.is_set():
            raise UnavailableError("the confirm was lost")

    @asynccontextmanager
    async def subscribe(
        self, *queues: str, prefetch: int, keep: Keep | None = None
    ) -> AsyncIterator[AsyncIterator["WatchedDelivery"]]:
        await self._reach()
        for queue in queues:
            await self._inner.depth(queue)  # Who subscribes hears at once that a queue is missing.
        yield self._deliveries(queues, prefetch, keep)

    async def read_stream(self, stream: str, offset: StreamOffset, *, follow: bool) -> AsyncIterator[Record]:
        async for record in self._inner.read_stream(stream, offset, follow=follow):
            yield record

    async def depth(self, queue: str) -> QueueDepth:
        await self._reach()
        return await self._inner.depth(queue)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _reach(self) -> None:
        await self._link.delay()
        try:
            async with asyncio.timeout(_CONFIRM_S):
                await self._broker.up.wait()
                await self._link.weather.online.wait()
        except TimeoutError:
            raise UnavailableError("the broker is away") from None
        self._link.check()

    async def _deliveries(
        self, queues: Sequence[str], prefetch: int, keep: Keep | None
    ) -> AsyncIterator["WatchedDelivery"]:
        """Deliveries over every loss of the connection; some come late."""
        while True:
            await self._broker.up.wait()
            await self._link.weather.online.wait()
            restarted = self._broker.restarted
            async with self._inner.subscribe(*queues, prefetch=prefetch, keep=keep) as subscription:
                self._subscriptions[subscription] = None
                try:
                    async for delivery in _until(aiter(subscription), restarted, self._link.weather.offline):
                        if self._link.weather.happens("late"):
                            await delivery.requeue()
                            await asyncio.sleep(self._link.weather.choices("pace").uniform(0, _LATE_S))
                            continue
                        yield WatchedDelivery(delivery, self._observer)
                finally:
                    self._subscriptions.pop(subscription, None)
            for callback in self._reconnected:
                callback()


class WatchedDelivery:
    """A delivery that shows the rules when it is acknowledged."""

    def __init__(self, inner: MemoryDelivery, observer: Observer) -> None:
        self._inner = inner
        self._observer = observer

    @property
    def message(self) -> WireMessage:
        return self._inner.message

    @property
    def queue(self) -> str:
        return self._inner.queue

    @property
    def redelivered(self) -> int:
        return self._inner.redelivered

    @property
    def held(self) -> bool:
        return self._inner.held

    async def ack(self) -> None:
        if self.held:
            self._observer.acknowledged(self._inner.queue, self._inner.message)
        await self._inner.ack()

    async def requeue(self) -> None:
        await self._inner.requeue()

    async def dead_letter(self, reason: DeadReason, detail: str) -> None:
        await self._inner.dead_letter(reason, detail)


async def _until(deliveries: AsyncIterator[MemoryDelivery], *ends: asyncio.Event) -> AsyncIterator[MemoryDelivery]:
    """Items until one of the events is set."""
    ending = [asyncio.ensure_future(end.wait()) for end in ends]
    following: asyncio.Future[MemoryDelivery] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(deliveries))
            await asyncio.wait((following, *ending), return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ending):
                return
            yield following.result()
    except StopAsyncIteration:
        return
    finally:
        for end in ending:
            end.cancel()
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
