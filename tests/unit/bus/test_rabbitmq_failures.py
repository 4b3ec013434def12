"""What a library raises, as our errors."""

import asyncio

import pytest

from slicebus.bus.rabbitmq_failures import translated
from slicebus.proto.errors import UnavailableError


async def test_a_cancellation_that_nobody_asked_for_is_a_lost_connection() -> None:
    with pytest.raises(UnavailableError, match="fallen silent"), translated("publish"):
        raise asyncio.CancelledError


async def test_a_cancellation_that_somebody_asked_for_stays_one() -> None:
    async def wait() -> None:
        with translated("publish"):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_deadline_within_is_no_cancellation() -> None:
    with pytest.raises(UnavailableError), translated("publish"):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_deadline_around_is_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            with translated("publish"):
                await asyncio.Event().wait()
