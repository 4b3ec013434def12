"""A lane that gets more than it can handle: bounded, in order for each object, and recovering afterwards."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from slicebus.bus.contract import Delivery
from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.bus.lanes import Backlog, consume, turns_of
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import (
    ConflictError,
    DeadReason,
    DecisionError,
    ForbiddenError,
    NotFoundError,
    ProtocolError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
)
from slicebus.proto.topology import DEAD, Binding, Exchange, Queue, Topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.sandbox.queues import MemoryDelivery, MemorySubscription
from unit.kube.loop_time import START_S, LoopTime, settle

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
        self.redelivered = 0
        self.backlog = Backlog()
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
                await consume(
                    subscription,
                    self._one,
                    key=name_of,
                    turns=turns_of(WORKERS),
                    superseded=superseded,
                    backlog=self.backlog,
                )

        task = asyncio.create_task(run())
        await settle()
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _one(self, delivery: Delivery) -> None:
        name, number = name_of(delivery), number_of(delivery)
        self.redelivered = max(self.redelivered, delivery.redelivered)
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


async def test_at_ten_times_the_sustainable_rate_memory_is_bounded_and_the_lane_recovers(
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


async def test_without_coalescing_every_delivery_is_handled_and_the_rest_waits_at_the_broker(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=False):
        for number in range(200):
            lane.publish(f"object-{number % 3}", number)
        assert lane.unsettled == PREFETCH
        assert lane.waiting == 200 - PREFETCH
        await asyncio.sleep(200 * HANDLING_S)
    assert sorted(number for _, number in lane.handled) == list(range(200))


async def test_a_stuck_object_delays_no_other_however_many_deliveries_it_has(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    async with lane.running(coalescing=True):
        for number in range(10 * PREFETCH):
            lane.publish("stuck", number)
            await settle(3)
        for number in range(10):
            lane.publish(f"free-{number}", number)
        await asyncio.sleep(10 * HANDLING_S)
    assert sorted(lane.handled) == [(f"free-{number}", number) for number in range(10)]


async def test_more_that_hang_than_there_are_workers_delay_no_other(jumping: LoopTime) -> None:
    """Each kept its turn: messages of jobs whose webhook hung held up those of all others."""
    free = asyncio.Event()

    async def handle(name: str, number: int) -> None:
        if name.startswith("stuck"):
            await free.wait()

    lane = Lane(handle)
    async with lane.running(coalescing=True):
        for number in range(2 * WORKERS):
            lane.publish(f"stuck-{number}", number)
        lane.publish("other", 0)
        await asyncio.sleep(0.5)
        assert lane.handled == []
        await asyncio.sleep(2)
        assert lane.handled == [("other", 0)]
        free.set()
        await asyncio.sleep(1)
    assert len(lane.handled) == 2 * WORKERS + 1


async def test_an_older_delivery_that_comes_late_supersedes_nothing(jumping: LoopTime) -> None:
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


class Trouble:
    """A handler that fails for some objects until a time."""

    def __init__(self, error: SlicebusError, *, until: dict[str, float]) -> None:
        self.error = error
        self.until = until
        self.tries = 0

    async def handle(self, name: str, number: int) -> None:
        await asyncio.sleep(HANDLING_S)
        if asyncio.get_running_loop().time() < self.until.get(name, 0):
            self.tries += 1
            raise self.error


@pytest.mark.parametrize("error", [UnavailableError("503"), ConflictError("409")], ids=["transient", "conflict"])
async def test_a_message_outlasts_an_outage(jumping: LoopTime, error: SlicebusError) -> None:
    lane = Lane(Trouble(error, until={"one": START_S + 1800}).handle)
    async with lane.running(coalescing=False):
        lane.publish("one", 1)
        await asyncio.sleep(2000)
    assert lane.handled == [("one", 1)]
    assert lane.redelivered <= 3, "far from the delivery limit"


async def test_a_delivery_that_waits_for_its_retry_keeps_no_worker(jumping: LoopTime) -> None:
    troubled = {f"object-{number}": math.inf for number in range(3 * WORKERS)}
    lane = Lane(Trouble(UnavailableError("503"), until=troubled).handle)
    async with lane.running(coalescing=False):
        for name in troubled:
            lane.publish(name, 0)
        await asyncio.sleep(60)
        lane.publish("free", 1)
        await asyncio.sleep(2)
    assert lane.handled == [("free", 1)]


async def test_a_delivery_behind_a_failing_one_gets_a_slot(jumping: LoopTime) -> None:
    done: list[int] = []

    async def handle(name: str, number: int) -> None:
        if number == 1 and 2 not in done:
            raise ConflictError("the second is what it waits for")
        done.append(number)

    lane = Lane(handle)
    async with lane.running(coalescing=False):
        lane.publish("one", 1)
        lane.publish("one", 2)
        await asyncio.sleep(30)
    assert done == [2, 1]


async def test_a_dead_letter_that_cannot_be_published_is_retried(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[SlicebusError] = [
        ThrottledError("blocked"),
        UnavailableError("no connection"),
        ForbiddenError("no right"),
        NotFoundError("no queue"),
    ]
    dead: list[tuple[DeadReason, str]] = []

    async def dead_letter(delivery: MemoryDelivery, reason: DeadReason, detail: str) -> None:
        if failures:
            raise failures.pop()
        dead.append((reason, detail))
        await delivery.ack()

    async def poison(name: str, number: int) -> None:
        raise ProtocolError(DeadReason.MALFORMED, "not JSON")

    monkeypatch.setattr(MemoryDelivery, "dead_letter", dead_letter)
    lane = Lane(poison)
    async with lane.running(coalescing=False):
        lane.publish("one", 1)
        await asyncio.sleep(30)
        assert dead == [(DeadReason.MALFORMED, "not JSON")]
    assert lane.waiting == 0


async def test_a_broker_that_refuses_dead_letters_is_asked_slowly_and_others_are_handled(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def refuse(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise ForbiddenError("no right")

    async def handle(name: str, number: int) -> None:
        if name == "poison":
            raise ProtocolError(DeadReason.MALFORMED, "not JSON")

    monkeypatch.setattr(MemoryDelivery, "dead_letter", refuse)
    lane = Lane(handle)
    async with lane.running(coalescing=False):
        lane.publish("poison", 1)
        await asyncio.sleep(300)
        lane.publish("other", 2)
        lane.publish("poison", 3)
        await asyncio.sleep(300)
    assert lane.handled == [("other", 2)]
    assert 60 < tries < 600
    assert lane.waiting == 2, "nothing is lost"


# --- a connection that breaks ---------------------------------------------------------------------------------------


class Unsteady:
    """A subscription that goes on after each loss of its connection, and says what is done for each delivery."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._current: MemorySubscription | None = None
        self.under_way = 0
        self.begun: list[tuple[int, int]] = []
        """The number of a message, and how often it was delivered before."""
        self.troubled = True

    async def __aiter__(self) -> AsyncIterator[MemoryDelivery]:
        while True:
            async with self._lane.bus.subscribe("q", prefetch=PREFETCH) as self._current:
                async for delivery in self._current:
                    yield delivery

    def lose(self) -> None:
        assert self._current is not None
        self._current.close()

    async def handle(self, delivery: Delivery) -> None:
        self.begun.append((number_of(delivery), delivery.redelivered))
        self.under_way += 1
        assert self.under_way == 1, "nothing is done twice at once"
        await asyncio.sleep(HANDLING_S)
        self.under_way -= 1
        if self.troubled:
            raise UnavailableError("503")

    @asynccontextmanager
    async def running(self, *, coalescing: bool) -> AsyncIterator[None]:
        superseded = is_older if coalescing else None
        async with asyncio.TaskGroup() as group:
            working = group.create_task(consume(self, self.handle, key=name_of, superseded=superseded))
            await settle()
            yield
            assert not working.done()
            working.cancel()


@pytest.mark.parametrize("after_s", [HANDLING_S / 2, 60.0], ids=["in hand", "between two tries"])
async def test_a_lost_delivery_is_not_handled_again_and_its_redelivery_is_handled_once(
    jumping: LoopTime, after_s: float
) -> None:
    lane = Lane(slowly)
    unsteady = Unsteady(lane)
    async with unsteady.running(coalescing=False):
        for number in (1, 2):
            lane.publish("one", number)
        await asyncio.sleep(after_s)
        unsteady.lose()
        before = len(unsteady.begun)
        unsteady.troubled = False
        await asyncio.sleep(60)
    assert all(delivered == 0 for _, delivered in unsteady.begun[:before])
    assert unsteady.begun[before:] == [(1, 1), (2, 1)]
    assert lane.waiting == 0


async def test_a_lost_delivery_supersedes_nothing(jumping: LoopTime) -> None:
    lane = Lane(slowly)
    unsteady = Unsteady(lane)
    unsteady.troubled = False
    async with unsteady.running(coalescing=True):
        for number in (1, 2, 3):
            lane.publish("one", number)
        await asyncio.sleep(HANDLING_S / 2)
        unsteady.lose()
        await asyncio.sleep(60)
    assert unsteady.begun == [(1, 0), (3, 1)]
    assert lane.waiting == 0


@pytest.mark.parametrize("coalescing", [True, False])
async def test_the_backlog_is_as_old_as_the_oldest_unsettled_delivery(jumping: LoopTime, coalescing: bool) -> None:
    troubled = Trouble(UnavailableError("503"), until={"late": START_S + 20, "later": START_S + 25})
    lane = Lane(troubled.handle)
    async with lane.running(coalescing=coalescing):
        assert lane.backlog.since_s is None
        for number, name in enumerate(["late", "free", "later", "later", "later"]):
            lane.publish(name, number)
            await asyncio.sleep(1)
        assert lane.backlog.since_s == pytest.approx(START_S, abs=0.01)
        await asyncio.sleep(15)
        assert lane.backlog.since_s == pytest.approx(START_S, abs=0.01)
        while ("late", 0) not in lane.handled:  # noqa: ASYNC110 time jumps
            await asyncio.sleep(HANDLING_S)
        await settle()
        assert lane.backlog.since_s == pytest.approx(START_S + 2, abs=0.01)
        await asyncio.sleep(20)
        assert lane.backlog.since_s is None


async def test_a_message_whose_decision_raises_is_a_dead_letter_and_the_next_is_handled(jumping: LoopTime) -> None:
    async def handle(name: str, number: int) -> None:
        if number == 1:
            raise DecisionError("receive", "abc", "TypeError")

    lane = Lane(handle)
    lane.broker.declare(Topology((Exchange(DEAD),), (Queue(DEAD, {}),), (Binding(DEAD, DEAD, "#"),)))
    async with lane.running(coalescing=False):
        for number in range(3):
            lane.publish("one", number)
        await asyncio.sleep(5)
    assert lane.handled == [("one", 0), ("one", 2)]
    headers = lane.broker.queues[DEAD].ready[0].message.headers
    assert headers[REASON_HEADER] == DeadReason.FAILED
    assert "the decision receive raised TypeError, traceback abc" in headers.values()


class Ending:
    """A subscription that ends with an error, after some deliveries."""

    def __init__(self, subscription: MemorySubscription, error: SlicebusError) -> None:
        self._subscription = subscription
        self._error = error

    async def __aiter__(self) -> AsyncIterator[MemoryDelivery]:
        async for delivery in self._subscription:
            yield delivery
            await asyncio.sleep(HANDLING_S / 2)
            raise self._error


@pytest.mark.parametrize("error", [NotFoundError("gone"), ForbiddenError("no right")], ids=str)
async def test_the_error_that_ends_a_subscription_reaches_the_caller_by_itself(
    jumping: LoopTime, error: SlicebusError
) -> None:
    """Callers go by its type. What was under way is delivered again."""
    lane = Lane(slowly)
    async with lane.bus.subscribe("q", prefetch=PREFETCH) as subscription:
        lane.publish("one", 1)
        with pytest.raises(type(error)) as raised:
            await consume(Ending(subscription, error), lane._one, key=name_of, backlog=lane.backlog)
    assert raised.value is error
    assert lane.backlog.since_s is None
    assert lane.waiting == 1


async def test_what_is_logged_about_a_message_has_its_chain(loop_time: LoopTime) -> None:
    async def fail(name: str, number: int) -> None:
        structlog.get_logger().info("handled", name=name)
        raise ProtocolError(DeadReason.REFUSED, "no")

    lane = Lane(fail)
    for name in ("a", "b"):
        message = WireMessage(
            routing_key="q",
            body=b"",
            headers={"name": name, "number": "1"},
            message_id=name,
            correlation_id=f"chain-{name}",
        )
        lane.broker.publish("e", message)
    with capture_logs(processors=[merge_contextvars]) as lines:
        async with lane.running(coalescing=False):
            await settle()
    assert {(line["event"], line["correlation"]) for line in lines} == {
        (event, f"chain-{name}") for event in ("handled", "delivery.dead") for name in ("a", "b")
    }
