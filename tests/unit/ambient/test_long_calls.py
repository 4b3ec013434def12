"""A call that takes long is noticed once, and no more than some at a time."""

import asyncio

import pytest

from slicebus.ambient.long_calls import LongCalls
from unit.kube.loop_time import LoopTime


async def test_what_takes_long_is_noticed_once(jumping: LoopTime) -> None:
    calls, noticed = LongCalls(long_s=1.0), list[str]()
    with calls.noticed(lambda: noticed.append("short")) as short:
        await asyncio.sleep(0.9)
    with calls.noticed(lambda: noticed.append("long")) as long:
        await asyncio.sleep(60)
    await asyncio.sleep(60)
    assert noticed == ["long"]
    assert (short.is_long, long.is_long) == (False, True)


async def test_no_more_than_some_are_noticed_at_a_time(jumping: LoopTime) -> None:
    calls, noticed = LongCalls(long_s=1.0, most=2), list[int]()

    async def fail(number: int) -> None:
        with calls.noticed(lambda: noticed.append(number)):
            await asyncio.sleep(10)
            raise ValueError("it failed")

    failures = await asyncio.gather(*map(fail, range(3)), return_exceptions=True)
    assert list(map(type, failures)) == [ValueError] * 3
    assert noticed == [0, 1]
    with pytest.raises(ValueError, match="it failed"):
        await fail(3)
    assert noticed == [0, 1, 3]


async def test_one_that_is_cancelled_is_not_noticed(jumping: LoopTime) -> None:
    """A worker that is to end has no successor, also where its handler takes long to end."""
    calls, noticed = LongCalls(long_s=1.0), list[str]()

    async def end_slowly() -> None:
        with calls.noticed(lambda: noticed.append("long")):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(10)

    task = asyncio.create_task(end_slowly())
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert noticed == []
