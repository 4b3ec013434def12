"""The size of messages, and room for bytes."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.bus.dead_letters.letters import DeadLetter, head
from slicebus.bus.rabbitmq.byte_room import ByteRoom
from slicebus.bus.sizes import (
    HEADER_BYTES,
    LEFT_OUT_HEADER,
    SIZE_HEADER,
    bounded_headers,
    check_whole,
    cut,
    header_bytes,
    size_of,
)
from slicebus.proto.errors import DeadReason, ProtocolError
from unit.bus.letters import dead, wire

MESSAGE = wire()


@pytest.mark.parametrize(("below", "is_whole"), [(0, True), (1, False)], ids=["as large as the limit", "larger"])
def test_what_is_larger_than_the_limit_loses_its_body(below: int, is_whole: bool) -> None:
    found = cut(MESSAGE, size_of(MESSAGE) - below)
    assert (found is MESSAGE) is is_whole
    if is_whole:
        check_whole(found)
        return
    assert (found.body, found.headers[SIZE_HEADER]) == (b"", str(size_of(MESSAGE)))
    with pytest.raises(ProtocolError, match="are more than the limit") as raised:
        check_whole(found)
    assert raised.value.reason is DeadReason.TOO_LARGE


def test_bytes_count_and_not_characters() -> None:
    assert size_of(msgspec.structs.replace(MESSAGE, headers={"ä": "€"}, body=b"12")) == 2 + 2 + 3


@given(headers=st.dictionaries(st.text(), st.text() | st.integers(1, 9 * HEADER_BYTES // 8).map("x".__mul__)))
def test_headers_are_bounded_and_ours_come_first(headers: dict[str, str]) -> None:
    message = msgspec.structs.replace(MESSAGE, headers=headers | {"cloudEvents_id": "1"})
    kept = bounded_headers(message.headers)
    assert kept["cloudEvents_id"] == "1"
    assert header_bytes(msgspec.structs.replace(message, headers=kept)) <= HEADER_BYTES + 50
    if header_bytes(message) <= HEADER_BYTES:
        assert kept == message.headers
    else:
        assert int(kept[LEFT_OUT_HEADER]) == len(message.headers) - (len(kept) - 1)


@pytest.mark.parametrize("id", ["id-1", None], ids=["with an id", "without"])
def test_the_head_of_a_dead_letter_describes_it_as_the_whole_does(id: str | None) -> None:
    letter = msgspec.structs.replace(dead(), message_id=id)
    assert DeadLetter.from_message(head(letter)) == DeadLetter.from_message(letter)
    assert head(letter).body == b""


async def test_room_is_given_in_turn_and_never_more_than_there_is() -> None:
    room, order, most = ByteRoom(10), list[int](), 0

    async def hold(number: int, size: int) -> None:
        nonlocal most
        async with room.hold(size):
            order.append(number)
            most = max(most, room.held)
            await asyncio.sleep(0)

    sizes = [4, 4, 9, 1, 1, 50, 2, 10]
    async with asyncio.TaskGroup() as group:
        for number, size in enumerate(sizes):
            group.create_task(hold(number, size))
    assert order == list(range(len(sizes)))
    assert (most, room.held) == (10, 0)


@pytest.mark.parametrize("turn", ["while it waits", "with its turn"])
async def test_who_is_cancelled_takes_no_room_along(turn: str) -> None:
    room, entered = ByteRoom(10), asyncio.Event()

    async def hold() -> None:
        async with room.hold(10):
            await entered.wait()

    async with room.hold(10):
        first, second = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
        if turn == "while it waits":
            first.cancel()
    if turn == "with its turn":
        first.cancel()
    entered.set()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert not second.cancelled()
    assert room.held == 0
