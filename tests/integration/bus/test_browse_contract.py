"""A browse leaves the queue as it is, on RabbitMQ and on the in-process bus."""

import asyncio

import pytest

from integration.bus.contract import Connect, browse_all, message, take
from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.browse import browse
from slicebus.proto.errors import NotFoundError
from slicebus.proto.topology import DEAD

ALL = [str(number).encode() for number in range(8)]


async def fill(bus: Bus) -> None:
    for body in ALL:
        await bus.publish(DEAD, message(body=body))


async def bodies(bus: Bus) -> list[bytes]:
    return [found.body for found in await browse_all(bus)]


async def test_an_empty_queue_shows_nothing(bus: Bus) -> None:
    assert await bodies(bus) == []


async def test_an_unknown_queue_is_an_error(bus: Bus) -> None:
    with pytest.raises(NotFoundError):
        await browse_all(bus, "no-such-queue")


async def test_many_browses_lose_and_reorder_nothing(bus: Bus) -> None:
    await fill(bus)
    for _ in range(25):
        assert await bodies(bus) == ALL
    assert await take(bus, DEAD, len(ALL)) == ALL


async def test_an_interrupted_browse_puts_everything_back_in_order(bus: Bus) -> None:
    await fill(bus)
    async with browse(bus, DEAD) as found:
        assert (await anext(found)).message.body == ALL[0]
    assert await bodies(bus) == ALL


async def test_what_is_settled_is_gone_and_the_rest_in_order(bus: Bus) -> None:
    await fill(bus)
    async with browse(bus, DEAD) as found:
        async for delivery in found:
            if delivery.message.body in (ALL[0], ALL[3], ALL[7]):
                await delivery.ack()
    assert await bodies(bus) == [ALL[1], ALL[2], *ALL[4:7]]


async def test_a_browse_ends_with_what_was_there_when_it_began(bus: Bus) -> None:
    await fill(bus)
    async with browse(bus, DEAD) as found:
        seen = []
        async for delivery in found:
            seen.append(delivery.message.body)
            await bus.publish(DEAD, message(body=b"later"))
            await delivery.ack()
    assert seen == ALL
    assert await bodies(bus) == [b"later"] * len(ALL)


async def test_a_second_look_waits_for_the_first(connect_as: Connect, bus: Bus) -> None:
    await fill(bus)
    other = await connect_as()
    async with browse(bus, DEAD) as found:
        await anext(found)
        second = asyncio.create_task(bodies(other))
        done, _ = await asyncio.wait((second,), timeout=0.3)
        assert not done
    assert await second == ALL


async def test_a_consumer_that_stays_does_not_stop_a_look(connect_as: Connect, bus: Bus) -> None:
    await fill(bus)
    other = await connect_as()
    async with other.subscribe(DEAD, prefetch=3) as subscription:
        held = aiter(subscription)
        await anext(held)
        assert await bodies(bus) == ALL[3:]
