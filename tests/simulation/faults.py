"""What may go wrong between a process and the servers it talks to, and how often."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import msgspec

from slicebus.bus.contract import QueueDepth, Record, StreamOffset
from slicebus.bus.memory import MemoryBus, MemoryDelivery
from slicebus.kube.transport import Answer, Request, Transport
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ExpiredError, UnavailableError
from slicebus.proto.topology import Topology


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities of one exchange, and the longest delay in seconds."""

    lost: float = 0.0
    """It never arrives."""
    unanswered: float = 0.0
    """It takes effect, and the answer or the confirm is lost."""
    twice: float = 0.0
    """A message arrives twice."""
    late: float = 0.0
    """A delivery comes after others that were published later."""
    slow_s: float = 0.0
    cut: float = 0.0
    """A watch breaks off before its next line."""
    expired: float = 0.0
    """A watch begins with 410."""
    crash: float = 0.0
    """The process dies before or after an effect."""


NONE = Faults(slow_s=0.002)


class Link:
    """One incarnation of a process on its way to everything else. When the process is dead nothing passes."""

    def __init__(self, faults: Callable[[], Faults], random: Random, *, crash: Callable[[], None]) -> None:
        self.faults = faults
        self.random = random
        self.died = asyncio.Event()
        self._crash = crash

    @property
    def dead(self) -> bool:
        """Whether the process has died."""
        return self.died.is_set()

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens now."""
        return probability > 0 and self.random.random() < probability

    async def delay(self) -> None:
        """Let time pass on the way."""
        await asyncio.sleep(self.random.uniform(0, self.faults().slow_s))
        self.check()

    def check(self) -> None:
        """Raise UnavailableError in a dead process: it has no effect any more."""
        if self.dead:
            raise UnavailableError("the process is dead")

    async def may_crash(self) -> None:
        """Perhaps die here, between two effects."""
        if self.happens(self.faults().crash):
            self.die()
            await asyncio.sleep(0)
        self.check()

    def die(self) -> None:
        """Die: what is under way ends without another effect."""
        self.died.set()
        self._crash()


class FaultyTransport:
    """A way to an API server that fails as networks and servers do."""

    def __init__(self, inner: Transport, link: Link) -> None:
        self._inner = inner
        self._link = link

    @property
    def host(self) -> str:
        return self._inner.host

    async def request(self, request: Request) -> Answer:
        link, faults = self._link, self._link.faults()
        await link.delay()
        writes = request.method != "GET"
        if writes:
            await link.may_crash()
        if link.happens(faults.lost):
            raise UnavailableError("the request was lost")
        answer = await self._inner.request(request)
        if writes:
            await link.may_crash()
        if link.happens(faults.unanswered):
            raise UnavailableError("the answer was lost")
        await link.delay()
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        link = self._link
        await link.delay()
        if link.happens(link.faults().expired):
            raise ExpiredError("410: too old resource version")
        async with self._inner.stream(request) as lines:
            yield self._lines(lines)

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await self._link.delay()
            if self._link.happens(self._link.faults().cut):
                raise UnavailableError("the watch was cut")
            yield line

    async def aclose(self) -> None:
        await self._inner.aclose()


class Broker:
    """Whether the broker is up. Its queues outlive a restart; connections do not."""

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

    def __init__(self, inner: MemoryBus, broker: Broker, link: Link, *, confirm_s: float = 30.0) -> None:
        self._inner = inner
        self._broker = broker
        self._link = link
        self._confirm_s = confirm_s

    @property
    def user(self) -> str:
        return self._inner.user

    @property
    def connected(self) -> bool:
        return self._broker.up.is_set()

    async def declare(self, topology: Topology) -> None:
        await self._reach()
        await self._inner.declare(topology)

    async def check(self, topology: Topology) -> Sequence[str]:
        await self._reach()
        return await self._inner.check(topology)

    async def publish(self, exchange: str, message: WireMessage) -> None:
        link, faults = self._link, self._link.faults()
        await self._reach()
        await link.may_crash()
        if link.happens(faults.lost):
            raise UnavailableError("the message was dropped before its confirm")
        await self._inner.publish(exchange, message)
        if link.happens(faults.twice):
            await self._inner.publish(exchange, message)
        await link.may_crash()
        if link.happens(faults.unanswered):
            raise UnavailableError("the confirm was lost")

    @asynccontextmanager
    async def subscribe(self, queue: str, *, prefetch: int) -> AsyncIterator[AsyncIterator[MemoryDelivery]]:
        await self._reach()
        yield self._deliveries(queue, prefetch)

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
            async with asyncio.timeout(self._confirm_s):
                await self._broker.up.wait()
        except TimeoutError:
            raise UnavailableError("the broker is away") from None
        self._link.check()

    async def _deliveries(self, queue: str, prefetch: int) -> AsyncIterator[MemoryDelivery]:
        """Deliveries over every restart of the broker; some come late."""
        while True:
            await self._broker.up.wait()
            restarted = self._broker.restarted
            async with self._inner.subscribe(queue, prefetch=prefetch) as subscription:
                async for delivery in _until(aiter(subscription), restarted):
                    if self._link.happens(self._link.faults().late):
                        await delivery.requeue()
                        await asyncio.sleep(self._link.random.uniform(0, 1.0))
                        continue
                    yield delivery


async def _until(deliveries: AsyncIterator[MemoryDelivery], ended: asyncio.Event) -> AsyncIterator[MemoryDelivery]:
    """Items until an event is set."""
    ending = asyncio.ensure_future(ended.wait())
    following: asyncio.Future[MemoryDelivery] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(deliveries))
            await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return
            yield following.result()
    except StopAsyncIteration:
        return
    finally:
        ending.cancel()
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
