"""What only a real broker can do: die, cut connections, run short of memory."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import orjson
import pytest

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.rabbitmq.bus import RabbitBus
from slicebus.bus.settings import BusSettings
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ForbiddenError, NotFoundError, ThrottledError, TransientError, UnavailableError
from slicebus.proto.messages import Lane
from slicebus.proto.topology import AGENT_JOURNAL, UP, manager_queue, manager_topology
from slicebus.runtime.logs import configure_logging
from support.proxy import Proxy
from support.rabbitmq import RabbitBroker
from support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.rabbitmq

CONTROL = manager_queue(Lane.CONTROL)
FAST = BusSettings(connect_s=10.0, confirm_s=30.0, reconnect_most_s=1.0)


@pytest.fixture
async def bus(rabbitmq: RabbitBroker, vhost: str) -> AsyncIterator[RabbitBus]:
    made = await connect(rabbitmq.url(vhost, "manager"), name="outage", settings=FAST)
    assert isinstance(made, RabbitBus)
    await made.declare(manager_topology())
    yield made
    await made.aclose()


def message(number: int) -> WireMessage:
    return WireMessage(routing_key="east.scale-request", body=str(number).encode(), headers={})


async def publish_many(bus: Bus) -> None:
    """The broker blocks a connection when the next message arrives, so the first may still pass."""
    for number in range(5):
        await bus.publish(UP, message(number))


async def collect(bus: RabbitBus, into: set[int]) -> None:
    async with bus.subscribe(CONTROL, prefetch=50) as subscription:
        async for delivery in subscription:
            into.add(int(delivery.message.body))
            await delivery.ack()


async def test_a_killed_broker_loses_nothing_that_was_confirmed(rabbitmq: RabbitBroker, bus: RabbitBus) -> None:
    confirmed: set[int] = set()
    received: set[int] = set()

    async def publish() -> None:
        for number in range(400):
            try:
                await bus.publish(UP, message(number))
                confirmed.add(number)
            except TransientError:
                continue

    consuming = asyncio.create_task(collect(bus, received))
    publishing = asyncio.create_task(publish())

    async def some() -> bool:
        return len(confirmed) > 50

    await eventually(some, "some messages are confirmed")
    await asyncio.to_thread(rabbitmq.kill)
    rabbitmq.launch()
    await asyncio.to_thread(rabbitmq.wait_ready)
    await publishing

    async def all_there() -> bool:
        assert not consuming.done(), consuming.result()
        return confirmed <= received

    await eventually(all_there, "every confirmed message was received")
    assert len(confirmed) > 350
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)


async def test_cut_connections_are_taken_up_again(rabbitmq: RabbitBroker, bus: RabbitBus) -> None:
    received: set[int] = set()
    consuming = asyncio.create_task(collect(bus, received))
    await bus.publish(UP, message(1))

    await asyncio.to_thread(rabbitmq.close_connections)

    async def again() -> bool:
        try:
            await bus.publish(UP, message(2))
        except UnavailableError:
            return False
        return True

    await eventually(again, "a publish goes through again")

    async def both() -> bool:
        return received == {1, 2}

    await eventually(both, "the subscription goes on")
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)


async def test_whoever_wants_to_know_hears_of_each_connection_that_follows_a_lost_one(
    rabbitmq: RabbitBroker, bus: RabbitBus
) -> None:
    heard = asyncio.Event()
    bus.on_reconnect(heard.set)
    assert not heard.is_set()
    await asyncio.to_thread(rabbitmq.close_connections)
    async with asyncio.timeout(PATIENCE_S):
        await heard.wait()


async def delete_queue(rabbitmq: RabbitBroker, vhost: str) -> None:
    await asyncio.to_thread(rabbitmq.api, "DELETE", f"queues/{vhost}/{CONTROL}")


async def test_a_queue_that_is_made_again_goes_on(rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus) -> None:
    received: set[int] = set()
    consuming = asyncio.create_task(collect(bus, received))
    await bus.publish(UP, message(1))

    async def has(number: int) -> bool:
        return number in received

    async def made_again() -> bool:
        # RabbitMQ 4 closes the connection, an internal error, where its consumer comes before the queue has begun.
        await bus.declare(manager_topology())
        await bus.publish(UP, message(2))
        return True

    await eventually(lambda: has(1), "the first message is there")
    await delete_queue(rabbitmq, vhost)
    # Of a queue that is made again in the same moment RabbitMQ tells its consumers nothing.
    await asyncio.sleep(1.0)
    await eventually(made_again, "the queue is made again")
    await eventually(lambda: has(2), "the subscription goes on")
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)


async def test_a_queue_that_has_gone_ends_its_subscription(rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus) -> None:
    consuming = asyncio.create_task(collect(bus, set()))
    await bus.publish(UP, message(1))
    await delete_queue(rabbitmq, vhost)
    with pytest.raises(NotFoundError, match=CONTROL):
        async with asyncio.timeout(PATIENCE_S):
            await consuming


async def test_looks_for_a_missing_queue_cost_no_connection_while_much_is_published(bus: RabbitBus) -> None:
    """The broker closes the channel of each look, and wants to have that confirmed."""
    reconnects: list[bool] = []
    bus.on_reconnect(lambda: reconnects.append(True))

    async def publish() -> None:
        for number in itertools.count():
            await bus.publish(UP, message(number))

    async def look() -> None:
        for _ in range(40):
            with pytest.raises(NotFoundError):
                await bus.depth("slicebus.agent.nowhere.control")

    async with asyncio.TaskGroup() as group:
        publishing = [group.create_task(publish()) for _ in range(300)]
        await asyncio.gather(*(look() for _ in range(30)))
        for task in publishing:
            task.cancel()
    assert not reconnects


async def test_a_blocked_connection_is_throttled_and_recovers(
    rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus
) -> None:
    impatient = await connect(rabbitmq.url(vhost, "manager"), name="impatient", settings=BusSettings(confirm_s=3.0))
    try:
        await impatient.publish(UP, message(0))
        await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.00001")
        with pytest.raises(ThrottledError):
            await publish_many(impatient)
    finally:
        await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.4")

    async def again() -> bool:
        try:
            await impatient.publish(UP, message(9))
        except TransientError:
            return False
        return True

    await eventually(again, "publishing goes on")
    await impatient.aclose()


async def test_a_subscription_outlives_a_connection_that_is_lost_while_the_broker_blocks_it(
    rabbitmq: RabbitBroker, vhost: str
) -> None:
    # What blocks the broker and closes its connections takes half a minute on a busy machine.
    settings = BusSettings(connect_s=3.0, confirm_s=180.0, reconnect_most_s=1.0)
    received: set[int] = set()
    bus = await connect(rabbitmq.url(vhost, "manager"), name="blocked", settings=settings)
    await bus.declare(manager_topology())

    async def is_blocked() -> bool:
        return bool(bus.blocked)

    async def has_come() -> bool:
        return 9 in received

    async with bus.subscribe(CONTROL, prefetch=5) as subscription:

        async def consume() -> None:
            async for delivery in subscription:
                received.add(int(delivery.message.body))
                await delivery.ack()

        try:
            await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.00001")
            publishing = asyncio.create_task(publish_many(bus))
            await eventually(is_blocked, "the broker blocks the connection")
            consuming = asyncio.create_task(consume())
            await asyncio.sleep(0.5)
            await asyncio.to_thread(rabbitmq.close_connections)
        finally:
            await asyncio.to_thread(rabbitmq.ctl, "set_vm_memory_high_watermark", "0.4")
        await publishing
        await bus.publish(UP, message(9))
        await eventually(has_come, "the subscription begins on the next connection")
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
    await bus.aclose()


async def test_a_connection_that_stands_still_is_given_up(rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus) -> None:
    received: set[int] = set()
    async with Proxy.before(rabbitmq.port) as proxy:
        url = rabbitmq.url(vhost, "manager").replace(f":{rabbitmq.port}/", f":{proxy.port}/") + "?heartbeat=1"
        stalled = await connect(url, name="stalled", settings=FAST)
        assert isinstance(stalled, RabbitBus)
        consuming = asyncio.create_task(collect(stalled, received))
        await stalled.publish(UP, message(1))

        async def seen() -> bool:
            return 1 in received

        await eventually(seen, "the subscription runs")
        proxy.stall()
        publishing = asyncio.create_task(stalled.publish(UP, message(2)))

        async def lost() -> bool:
            return not stalled.connected

        await eventually(lost, "the silence is noticed")
        proxy.resume()
        await publishing
        await bus.publish(UP, message(3))

        async def all_there() -> bool:
            return received == {1, 2, 3}

        await eventually(all_there, "publishing and consuming go on")
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
        await stalled.aclose()


async def test_a_lost_connection_is_one_line_without_a_traceback(
    rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a role logs it, with what the library says."""
    received: set[int] = set()
    configure_logging()
    async with Proxy.before(rabbitmq.port) as proxy:
        url = rabbitmq.url(vhost, "manager").replace(f":{rabbitmq.port}/", f":{proxy.port}/")
        between = await connect(url, name="between", settings=FAST)
        assert isinstance(between, RabbitBus)
        consuming = [asyncio.create_task(collect(between, received)) for _ in range(2)]
        for number in range(3):
            if number:
                proxy.cut()

            async def comes(number: int = number) -> bool:
                try:
                    await between.publish(UP, message(number))
                except TransientError:
                    return False
                return True

            async def is_here(number: int = number) -> bool:
                return number in received

            await eventually(comes, f"message {number} is published")
            await eventually(is_here, f"message {number} is received")
        for task in consuming:
            task.cancel()
        await asyncio.gather(*consuming, return_exceptions=True)
        await between.aclose()
    told = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    of_it = [line for line in told if line.get("name") == "between"]
    assert [line["event"] for line in of_it] == ["bus.lost", "bus.reconnected"] * 2
    assert [line["event"] for line in told if line["level"] != "info"] == ["bus.lost"] * 2
    assert not any("exception" in line for line in told)


async def test_a_broker_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        await connect("amqp://127.0.0.1:1/", name="nobody", settings=BusSettings(connect_s=0.5))


async def test_a_wrong_password_is_forbidden(rabbitmq: RabbitBroker, vhost: str) -> None:
    with pytest.raises(ForbiddenError):
        await connect(rabbitmq.url(vhost, "manager", "wrong"), name="wrong", settings=FAST)


async def test_a_stream_that_comes_slowly_is_read_to_its_end(
    rabbitmq: RabbitBroker, vhost: str, bus: RabbitBus
) -> None:
    """A read that took a second without a record for the end would have 200 of them: so many come without an
    acknowledgement."""
    for number in range(450):
        await bus.publish(UP, message(number))
    async with Proxy.before(rabbitmq.port) as proxy:
        url = rabbitmq.url(vhost, "manager").replace(f":{rabbitmq.port}/", f":{proxy.port}/")
        far = await connect(url, name="far", settings=FAST)
        try:
            records = far.read_stream(AGENT_JOURNAL, "first", follow=False)
            numbers = [int((await anext(records)).message.body)]
            proxy.delay_s = 1.5
            numbers += [int(record.message.body) async for record in records]
        finally:
            proxy.delay_s = 0.0
            await far.aclose()
    assert numbers == list(range(450))
