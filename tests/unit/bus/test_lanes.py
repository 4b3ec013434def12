"""A lane that gets more than it can handle: bounded, in order for each object, and well again afterwards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from slicebus.bus.contract import Delivery
from slicebus.bus.lanes import dispatch
from slicebus.bus.memory import MemoryBroker, MemoryBus
from slicebus.proto.envelope import WireMessage
from slicebus.proto.topology import Binding, Exchange, Queue, Topology
from unit.kube.loop_time import LoopTime, settle

LANE = Topology(
    (Exchange("e"),), (Queue("q", {}), Queue("other", {})), (Binding("e", "q", "q"), Binding("e", "other", "other"))
)
PREFETCH, WORKERS = 20, 4
HANDLING_S = 0.1
SUSTAINABLE = WORKERS / HANDLING_S
"""Messages in a second."""


class Lane:
    """A queue, whoever publishes to it, and a handler."""

    def __init__(self, handle: Callable[[str, int], Awaitable[None]]) -> None:
        self.broker = MemoryBroker()
        self.broker.declare(LANE)
        self.bus = MemoryBus(self.broker, user="u")
        self.handled: list[tuple[str, int]] = []
        self.unsettled = 0
        self._handle = handle

    def publish(self, name: str, number: int, queue: str = "q") -> None:
        message = WireMessage(routing_key=queue, body=b"", headers={"name": name, "number": str(number)})
        self.broker.publish("e", message)
        consumers = self.broker.queues[queue].consumers
        self.unsettled = max(self.unsettled, *(len(consumer.unsettled) for consumer in consumers))

    @property
    def waiting(self) -> int:
        """At the broker."""
        return len(self.broker.queues["q"].ready)

    @asynccontextmanager
    async def running(self, *, coalescing: bool, queue: str = "q") -> AsyncIterator[None]:
        async def run() -> None:
            async with self.bus.subscribe(queue, prefetch=PREFETCH) as subscription:
                superseded = is_older if coalescing else None
                await dispatch(subscription, self._one, key=name_of, workers=WORKERS, superseded=superseded)

        task = asyncio.create_task(run())
        await settle()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _one(self, delivery: Delivery) -> None:
        name, number = name_of(delivery), number_of(delivery)
        await self._handle(name, number)
        self.handled.append((name, number))


def name_of(delivery: Delivery) -> str:
    return delivery.message.headers["name"]


def number_of(delivery: Delivery) -> int:
    return int(delivery.message.headers["number"])


def is_older(first: Delivery, second: Delivery) -> bool:
    return number_of(first) < number_of(second)


async def slowly(name: str, number: int) -> None:
    if name == "stuck":
        await asyncio.Event().wait()
    await asyncio.sleep(HANDLING_S)


async def test_at_ten_times_the_sustainable_rate_memory_is_bounded_and_all_is_well_afterwards(
    jumping: LoopTime,
) -> None:
    lane, objects, seconds = Lane(slowly), 4, 10
    async with lane.running(coalescing=True):
        published = int(10 * SUSTAINABLE * seconds)
        for number in range(published):
            lane.publish(f"object-{number % objects}", number)
            await asyncio.sleep(1 / (10 * SUSTAINABLE))
        assert lane.unsettled <= PREFETCH
        while lane.waiting or any(  # noqa: ASYNC110 time jumps
            consumer.unsettled for consumer in lane.broker.queues["q"].consumers
        ):
            await asyncio.sleep(HANDLING_S)
        recovered_at = len(lane.handled)
        lane.publish("object-0", published)
        await asyncio.sleep(2 * HANDLING_S)
    newest = dict(lane.handled)
    assert newest == {f"object-{number % objects}": number for number in range(published - objects, published)} | {
        "object-0": published
    }
    for name in newest:
        numbers = [number for handled, number in lane.handled if handled == name]
        assert numbers == sorted(numbers), "in order"
    assert recovered_at < published / 5, "what nobody needed to see was not handled"
    assert len(lane.handled) == recovered_at + 1


async def test_without_coalescing_nothing_is_left_out_and_the_rest_waits_at_the_broker(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=False):
        for number in range(200):
            lane.publish(f"object-{number % 3}", number)
        assert lane.unsettled == PREFETCH
        assert lane.waiting == 200 - PREFETCH
        await asyncio.sleep(200 * HANDLING_S)
    assert sorted(number for _, number in lane.handled) == list(range(200))


async def test_an_object_that_is_stuck_delays_no_other_however_much_it_says(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=True):
        for number in range(10 * PREFETCH):
            lane.publish("stuck", number)
            await settle(3)
        for number in range(10):
            lane.publish(f"free-{number}", number)
        await asyncio.sleep(10 * HANDLING_S)
    assert sorted(lane.handled) == [(f"free-{number}", number) for number in range(10)]


async def test_an_older_one_that_comes_late_takes_nothing_back(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=True):
        for number in (1, 5, 3, 4):
            lane.publish("one", number)
        await asyncio.sleep(10 * HANDLING_S)
    assert lane.handled == [("one", 1), ("one", 5)]


async def test_a_storm_in_one_lane_delays_nothing_in_the_other(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=False), lane.running(coalescing=False, queue="other"):
        for number in range(500):
            lane.publish(f"status-{number}", number)
        lane.publish("spec", 0, queue="other")
        await asyncio.sleep(500 * HANDLING_S)
    assert ("spec", 0) in lane.handled[: WORKERS + 1], "before the second batch of the storm"
    assert len(lane.handled) == 501
