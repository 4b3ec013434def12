"""The guarantees of a bus. Every test runs on RabbitMQ and on the in-process bus."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest

from integration.bus.contract import CONTROL, EAST, EAST_UID, Connect, browse_all, message, take
from slicebus.bus.contract import Bus, Delivery, Record, StreamOffset
from slicebus.bus.dead_letters.headers import DETAIL_HEADER, QUEUE_HEADER, REASON_HEADER, TIME_HEADER
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.bus.lanes import consume
from slicebus.proto.errors import DeadReason, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from slicebus.proto.messages import Lane
from slicebus.proto.topology import (
    AGENT_JOURNAL,
    DEAD,
    DELIVERY_LIMIT,
    DOWN,
    JOURNAL,
    UP,
    Binding,
    Exchange,
    Queue,
    Topology,
    agent_queue,
    agent_topology,
    manager_queue,
    manager_topology,
)
from support.rabbitmq import ADMIN
from support.waiting import PATIENCE_S, eventually

DEAD_TIME = re.compile(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}\+00:00")


async def read(bus: Bus, offset: StreamOffset) -> list[Record]:
    return [record async for record in bus.read_stream(AGENT_JOURNAL, offset, follow=False)]


async def test_a_message_arrives_as_it_was_published(bus: Bus) -> None:
    sent = message(body=b'{"a":1}', correlation_id="c", user_id="manager", type="scale-request")
    await bus.publish(UP, sent)
    async with bus.subscribe(CONTROL, prefetch=1) as subscription:
        async for delivery in subscription:
            assert delivery.message == sent
            assert delivery.queue == CONTROL
            assert delivery.redelivered == 0
            await delivery.ack()
            break
    assert (await bus.depth(CONTROL)).ready == 0


async def test_lanes_take_their_own_types(bus: Bus) -> None:
    await bus.publish(UP, message("east.status", b"s"))
    await bus.publish(UP, message("west.hello", b"h"))
    await bus.publish(DOWN, message(f"east.relabel.{EAST_UID}", b"r"))
    assert await take(bus, manager_queue(Lane.STATUS), 1) == [b"s"]
    assert await take(bus, CONTROL, 1) == [b"h"]
    assert await take(bus, agent_queue(EAST, Lane.CONTROL, EAST_UID), 1) == [b"r"]


async def test_a_queue_keeps_the_order(bus: Bus) -> None:
    bodies = [str(number).encode() for number in range(50)]
    for body in bodies:
        await bus.publish(UP, message(body=body))
    assert await take(bus, CONTROL, 50) == bodies


async def test_concurrent_publishes_are_all_confirmed(bus: Bus) -> None:
    bodies = {str(number).encode() for number in range(300)}
    await asyncio.gather(*(bus.publish(UP, message(body=body)) for body in bodies))
    assert set(await take(bus, CONTROL, 300, prefetch=100)) == bodies


async def test_what_no_queue_takes_is_an_error(connect_as: Connect) -> None:
    bus = await connect_as(ADMIN)
    await bus.declare(Topology(exchanges=(Exchange("lonely"),), queues=(), bindings=()))
    with pytest.raises(NotFoundError):
        await bus.publish("lonely", message())


async def test_an_unknown_exchange_is_an_error_and_the_next_publish_goes_through(connect_as: Connect, bus: Bus) -> None:
    admin = await connect_as(ADMIN)
    with pytest.raises(NotFoundError):
        await admin.publish("no-such-exchange", message())
    await admin.publish(UP, message(body=b"after"))
    assert await take(bus, CONTROL, 1) == [b"after"]


async def test_another_users_id_is_refused(connect_as: Connect, bus: Bus) -> None:
    west = await connect_as("west")
    with pytest.raises(ForbiddenError):
        await west.publish(UP, message("west.hello", user_id="east"))
    await west.publish(UP, message("west.hello", user_id="west"))
    assert west.user == "west"


async def test_put_back_is_delivered_again_and_counted(bus: Bus) -> None:
    await bus.publish(UP, message())
    seen = []
    async with bus.subscribe(CONTROL, prefetch=1) as subscription:
        async for delivery in subscription:
            seen.append(delivery.redelivered)
            if len(seen) == 3:
                await delivery.ack()
                break
            await delivery.requeue()
    assert seen == [0, 1, 2]


async def test_the_delivery_limit_dead_letters(bus: Bus) -> None:
    await bus.publish(UP, message(body=b"poison", user_id="manager"))
    deliveries = 0

    async def reject() -> None:
        nonlocal deliveries
        async with bus.subscribe(CONTROL, prefetch=1) as subscription:
            async for delivery in subscription:
                deliveries += 1
                await delivery.requeue()

    rejecting = asyncio.create_task(reject())

    async def dead() -> bool:
        return (await bus.depth(DEAD)).ready == 1

    await eventually(dead, "the message is dead")
    rejecting.cancel()
    await asyncio.gather(rejecting, return_exceptions=True)
    assert deliveries == DELIVERY_LIMIT + 1
    [dead_letter] = await browse_all(bus)
    assert dead_letter.body == b"poison"
    assert dead_letter.user_id == "manager"
    described = DeadLetter.from_message(dead_letter)
    assert (described.reason, described.detail, described.queue) == ("undeliverable", "delivery_limit", CONTROL)
    assert described.at is not None
    assert datetime.now(UTC) - described.at < timedelta(minutes=1)
    assert DEAD_TIME.fullmatch(dead_letter.headers[TIME_HEADER])


async def test_dead_lettering_says_why_and_who(connect_as: Connect, bus: Bus) -> None:
    await (await connect_as("east")).publish(UP, message(body=b"bad", user_id="east"))
    async with bus.subscribe(CONTROL, prefetch=1) as subscription:
        async for delivery in subscription:
            await delivery.dead_letter(DeadReason.MALFORMED, "the body is not JSON")
            break
    async with bus.subscribe(DEAD, prefetch=1) as subscription:
        async for delivery in subscription:
            headers = delivery.message.headers
            assert delivery.message.body == b"bad"
            assert headers[REASON_HEADER] == "malformed"
            assert headers[DETAIL_HEADER] == "the body is not JSON"
            assert headers[QUEUE_HEADER] == CONTROL
            assert headers["slicebus-user-id"] == "east"
            assert DEAD_TIME.fullmatch(headers[TIME_HEADER])
            assert delivery.message.user_id == "manager", "the broker has verified who says so"
            await delivery.ack()
            break
    assert (await bus.depth(CONTROL)).ready == 0


async def test_unsettled_messages_come_again_in_order(bus: Bus) -> None:
    for body in (b"1", b"2", b"3"):
        await bus.publish(UP, message(body=body))
    held: list[Delivery] = []
    async with bus.subscribe(CONTROL, prefetch=10) as subscription:
        async for delivery in subscription:
            held.append(delivery)
            if len(held) == 3:
                break

    async def back() -> bool:
        return (await bus.depth(CONTROL)).ready == 3

    await eventually(back, "the messages are back")
    assert await take(bus, CONTROL, 3) == [b"1", b"2", b"3"]


async def test_a_delivery_is_held_until_it_is_settled_or_its_channel_is_gone(bus: Bus) -> None:
    for body in (b"1", b"2", b"3"):
        await bus.publish(UP, message(body=body))
    async with bus.subscribe(CONTROL, prefetch=10) as subscription:
        deliveries = aiter(subscription)
        done, dead, lost = [await anext(deliveries) for _ in range(3)]
        assert all(delivery.held for delivery in (done, dead, lost))
        await done.ack()
        await dead.dead_letter(DeadReason.REFUSED, "no")
        assert (done.held, dead.held, lost.held) == (False, False, True)
    assert not lost.held


async def test_what_is_lost_is_tried_no_longer(bus: Bus) -> None:
    tried: list[int] = []

    async def fail(delivery: Delivery) -> None:
        tried.append(delivery.redelivered)
        raise UnavailableError("503")

    async def in_vain() -> bool:
        return len(tried) > 2

    await bus.publish(UP, message(body=b"1"))
    async with bus.subscribe(CONTROL, prefetch=10) as subscription:
        working = asyncio.create_task(consume(subscription, fail, key=lambda delivery: "one"))
        await eventually(in_vain, "it is tried again and again")
    count = len(tried)
    assert await take(bus, CONTROL, 1) == [b"1"]
    await asyncio.wait_for(working, PATIENCE_S)
    assert len(tried) == count


async def test_prefetch_bounds_what_is_unsettled(bus: Bus) -> None:
    for number in range(5):
        await bus.publish(UP, message(body=str(number).encode()))
    async with bus.subscribe(CONTROL, prefetch=2) as subscription:
        deliveries = aiter(subscription)
        first, _ = await anext(deliveries), await anext(deliveries)
        third = asyncio.ensure_future(anext(deliveries))
        done, _ = await asyncio.wait((third,), timeout=0.3)
        assert not done
        await first.ack()
        assert (await asyncio.wait_for(third, PATIENCE_S)).message.body == b"2"


async def test_one_consumer_is_active_and_the_next_takes_over(connect_as: Connect, bus: Bus) -> None:
    standby = await connect_as("manager")
    async with bus.subscribe(CONTROL, prefetch=5) as active:
        await bus.publish(UP, message(body=b"1"))
        deliveries = aiter(active)
        first = await anext(deliveries)
        async with standby.subscribe(CONTROL, prefetch=5) as waiting:
            taken = asyncio.ensure_future(anext(aiter(waiting)))
            await bus.publish(UP, message(body=b"2"))
            done, _ = await asyncio.wait((taken,), timeout=0.3)
            assert not done
            await first.ack()
            await bus.aclose()
            delivery = await asyncio.wait_for(taken, PATIENCE_S)
            assert delivery.message.body == b"2"
            await delivery.ack()


async def test_the_two_journals_have_every_message_of_both_directions(bus: Bus) -> None:
    await bus.publish(UP, message("east.hello", b"1"))
    await bus.publish(DOWN, message(f"east.resync.{EAST_UID}", b"2"))
    for journal, body in ((AGENT_JOURNAL, b"1"), (JOURNAL, b"2")):
        records = [record async for record in bus.read_stream(journal, "first", follow=False)]
        assert [(record.offset, record.message.body) for record in records] == [(0, body)]


async def test_the_journal_is_read_by_offset_and_time(bus: Bus) -> None:
    for number in range(5):
        await bus.publish(UP, message(body=str(number).encode()))
    assert [record.offset for record in await read(bus, 3)] == [3, 4]
    assert len(await read(bus, datetime.now(UTC) - timedelta(hours=1))) == 5
    assert [record.offset for record in await read(bus, "first")] == [0, 1, 2, 3, 4]


async def test_an_empty_journal_ends(bus: Bus) -> None:
    assert await read(bus, "first") == []


async def test_following_the_journal_goes_on_with_what_comes(bus: Bus) -> None:
    await bus.publish(UP, message(body=b"before"))
    records = bus.read_stream(AGENT_JOURNAL, "first", follow=True)
    assert (await asyncio.wait_for(anext(records), PATIENCE_S)).message.body == b"before"
    await bus.publish(UP, message(body=b"after"))
    assert (await asyncio.wait_for(anext(records), PATIENCE_S)).message.body == b"after"
    await records.aclose()  # type: ignore[attr-defined]


async def test_a_journal_that_goes_on_is_read_to_where_it_was(bus: Bus) -> None:
    async def go_on() -> None:
        while True:
            await bus.publish(UP, message(body=b"meanwhile"))

    await bus.publish(UP, message(body=b"before"))
    async with asyncio.timeout(PATIENCE_S):
        publishing = asyncio.create_task(go_on())
        try:
            bodies = [record.message.body for record in await read(bus, "first")]
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
    assert bodies[0] == b"before"


async def test_declaring_again_changes_nothing(connect_as: Connect, bus: Bus) -> None:
    await bus.publish(UP, message(body=b"kept"))
    other = await connect_as("manager")
    await asyncio.gather(*(b.declare(manager_topology() + agent_topology(EAST, EAST_UID)) for b in (bus, other)))
    assert await take(bus, CONTROL, 1) == [b"kept"]
    assert await bus.check(manager_topology() + agent_topology(EAST, EAST_UID)) == []


async def test_a_binding_is_removed_and_one_that_is_not_there_is_no_error(connect_as: Connect) -> None:
    bus = await connect_as(ADMIN)
    queue = Queue("bound", {"x-queue-type": "quorum"})
    kept, gone = (Binding("bound", "bound", key) for key in ("east.kept", "east.gone"))
    await bus.declare(Topology((Exchange("bound"),), (queue,), (kept, gone)))
    await bus.publish("bound", message("east.gone"))
    for _ in range(2):
        await bus.unbind([gone, Binding("bound", "no-such-queue", "#")])
    with pytest.raises(NotFoundError):
        await bus.publish("bound", message("east.gone"))
    await bus.publish("bound", message("east.kept"))
    assert (await bus.depth("bound")).ready == 2


async def test_a_queue_with_other_arguments_is_named(bus: Bus) -> None:
    other = Topology(exchanges=(), queues=(Queue(CONTROL, {"x-queue-type": "classic"}),), bindings=())
    with pytest.raises(InvalidError, match=CONTROL):
        await bus.declare(other)
    assert any(CONTROL in problem for problem in await bus.check(other))
    await bus.publish(UP, message(body=b"still works"))


async def test_what_is_missing_is_named(connect_as: Connect) -> None:
    bus = await connect_as(ADMIN)
    problems = await bus.check(
        Topology(
            exchanges=(Exchange("nowhere"),),
            queues=(Queue("nothing", {"x-queue-type": "quorum"}),),
            bindings=(Binding("nowhere", "nothing", "#"),),
        )
    )
    assert list(problems) == ["exchange nowhere is missing", "queue nothing is missing"]


async def test_depth_of_an_unknown_queue_is_an_error(bus: Bus) -> None:
    with pytest.raises(NotFoundError):
        await bus.depth("no-such-queue")


async def test_closing_twice_is_nothing(connect_as: Connect) -> None:
    bus = await connect_as()
    await bus.aclose()
    await bus.aclose()
