"""The translation of library errors and of cancellations."""

import asyncio
from contextlib import suppress

import pytest

from slicebus.bus.rabbitmq.failures import translated
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError


async def test_a_cancellation_by_the_library_is_a_lost_connection() -> None:
    with pytest.raises(UnavailableError, match="fallen silent"), translated("publish"):
        raise asyncio.CancelledError


async def test_an_error_without_a_type_and_a_text_is_a_lost_connection() -> None:
    """aiormq ends what waits for a connection that has gone without a reason."""
    with pytest.raises(UnavailableError, match="ack: the connection was lost"), translated("ack"):
        raise Exception


async def test_an_error_of_programming_stays_one() -> None:
    with pytest.raises(KeyError), translated("ack"):
        raise KeyError("tag")


async def test_a_cancellation_of_the_task_stays_one() -> None:
    async def wait() -> None:
        with translated("publish"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("error", [None, ConnectionResetError(), NotFoundError("no exchange"), TimeoutError()])
async def test_a_cancellation_that_the_library_has_lost_is_raised_all_the_same(error: Exception | None) -> None:
    ended = asyncio.Event()

    async def lose() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None

    async def wait() -> None:
        with suppress(SlicebusError), translated("publish"):
            await lose()
        ended.set()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()


async def test_a_task_that_was_cancelled_before_may_still_publish() -> None:
    reached: list[str] = []

    async def last_words() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with translated("publish"):
                await asyncio.sleep(0)
            reached.append("word")
            with pytest.raises(UnavailableError), translated("publish"):
                raise asyncio.CancelledError
            reached.append("another")

    waiting = asyncio.create_task(last_words())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert reached == ["word", "another"]


async def test_a_deadline_within_is_no_cancellation() -> None:
    with pytest.raises(UnavailableError), translated("publish"):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_deadline_around_is_the_deadline() -> None:
    async def wait() -> None:
        async with asyncio.timeout(0):
            with translated("publish"):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait()
