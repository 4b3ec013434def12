"""Sizes of messages, on RabbitMQ and on the in-process bus: what is too large is neither published nor kept."""

import asyncio
import contextlib
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from integration.bus.contract import CONTROL, Connect, browse_all, message, take
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.dead_letters.headers import REASON_HEADER
from slicebus.bus.dead_letters.letters import LetterSelection
from slicebus.bus.lanes import consume
from slicebus.bus.sizes import HEADER_BYTES, LEFT_OUT_HEADER, MESSAGE_BYTES, SIZE_HEADER
from slicebus.cli.dead_letters.actions import LetterResult, Requeuer, settle, survey
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, InvalidError
from slicebus.proto.topology import DEAD, UP
from support.waiting import eventually

LARGE = b"x" * (MESSAGE_BYTES + 1)


async def test_a_message_that_is_too_large_is_not_published_and_others_are(bus: Bus) -> None:
    for wrong in (message(body=LARGE), message(headers={"a": "x" * 2 * HEADER_BYTES})):
        with pytest.raises(InvalidError, match="bytes"):
            await bus.publish(UP, wrong)
    await bus.publish(UP, message(body=b"fine"))
    assert await take(bus, CONTROL, 1) == [b"fine"]


async def handle(bus: Bus, *, until_dead: int) -> list[bytes]:
    """The bodies that a handler gets, until there are so many dead letters."""
    handled: list[bytes] = []

    async def note(delivery: Delivery) -> None:
        handled.append(delivery.message.body)

    async def run() -> None:
        async with bus.subscribe(CONTROL, prefetch=10) as subscription:
            await consume(subscription, note, key=lambda delivery: delivery.message.headers.get("key", ""))

    running = asyncio.create_task(run())

    async def dead() -> bool:
        return (await bus.depth(DEAD)).ready == until_dead and bool(handled)

    await eventually(dead, f"{until_dead} dead letters")
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return handled


async def test_a_message_that_is_too_large_is_dead_without_its_body_and_others_go_on(
    connect_as: Connect, bus: Bus
) -> None:
    generous = await connect_as(message_bytes=8 * MESSAGE_BYTES)
    await generous.publish(UP, message(body=LARGE, headers={"cloudEvents_subject": "Job/a/b"}))
    await bus.publish(UP, message(body=b"fine"))
    assert await handle(bus, until_dead=1) == [b"fine"]
    [dead] = await browse_all(bus)
    assert dead.headers[REASON_HEADER] == DeadReason.TOO_LARGE
    assert (dead.body, dead.headers[SIZE_HEADER]) == (b"", str(len(LARGE) + len("cloudEvents_subjectJob/a/b")))
    [outcome] = await requeue_all(bus)
    assert not outcome.done
    assert "were not kept" in outcome.text


async def test_a_copy_of_a_message_with_many_headers_has_those_that_the_broker_takes(bus: Bus) -> None:
    """The content of the headers is what the frame takes: with the reason it would be more."""
    many = {f"header-{number:04}": "x" * 80 for number in range(1000)}
    await bus.publish(UP, message(body=b"bad", headers={"cloudEvents_id": "1"} | many))
    async with bus.subscribe(CONTROL, prefetch=1) as subscription:
        async for delivery in subscription:
            await delivery.dead_letter(DeadReason.MALFORMED, "y" * 5000)
            break
    [dead] = await browse_all(bus)
    assert (dead.body, dead.headers["cloudEvents_id"]) == (b"bad", "1")
    assert 0 < int(dead.headers[LEFT_OUT_HEADER]) < 1000
    assert bus.connected


LETTERS = [bytes([ord("a") + number]) * 1000 for number in range(8)]


def letters() -> list[WireMessage]:
    return [message(body=body, message_id=f"id-{number}", user_id="manager") for number, body in enumerate(LETTERS)]


async def requeue_all(bus: Bus) -> list[LetterResult]:
    choice = await survey(bus, LetterSelection(), lambda: datetime.now(UTC))
    requeuer = Requeuer(bus, agents={}, dry_run=False)
    async with aclosing(settle(bus, choice.letters, requeuer, dry_run=False, page_bytes=2500)) as done:
        return [outcome async for outcome in done]


async def test_dead_letters_are_requeued_in_pages_and_in_order(connect_as: Connect, bus: Bus) -> None:
    """Two of them are as much as may be held at once."""
    east = await connect_as("east")
    for number, body in enumerate(LETTERS):
        await east.publish(UP, message(body=body, message_id=f"id-{number}", user_id="east"))
    async with bus.subscribe(CONTROL, prefetch=10) as subscription:
        deliveries = aiter(subscription)
        for _ in LETTERS:
            await (await anext(deliveries)).dead_letter(DeadReason.REFUSED, "no")
    outcomes = await requeue_all(bus)
    assert [outcome.done for outcome in outcomes] == [True] * len(LETTERS)
    assert await browse_all(bus) == []
    assert await take(bus, CONTROL, len(LETTERS)) == LETTERS


async def test_what_stays_keeps_its_order(bus: Bus) -> None:
    """None of them has lain in a queue, so none can go back."""
    for letter in letters():
        await bus.publish(DEAD, letter)
    outcomes = await requeue_all(bus)
    assert [outcome.done for outcome in outcomes] == [False] * len(LETTERS)
    assert [found.body for found in await browse_all(bus)] == LETTERS
