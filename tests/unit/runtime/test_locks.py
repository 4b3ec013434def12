"""Locks that are waited for, and locks that are waited for only a while."""

import asyncio

import pytest

from slicebus.runtime.locks import Locks
from unit.kube.loop_time import LoopTime


@pytest.mark.parametrize(("held_s", "is_in_time"), [(0.0, True), (0.4, True), (0.6, False)])
async def test_a_lock_is_waited_for_only_a_while(jumping: LoopTime, held_s: float, is_in_time: bool) -> None:
    locks = Locks[str]()

    async def hold() -> None:
        async with locks.of("a"):
            await asyncio.sleep(held_s)

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    async with locks.of_within("a", 0.5) as is_held:
        assert is_held is is_in_time
        assert locks.of("a").locked()
    await holding
    assert not locks.of("a").locked()


async def test_what_is_raised_in_a_turn_ends_the_turn() -> None:
    locks = Locks[str]()
    with pytest.raises(ValueError, match="so"):
        async with locks.of_within("a", 0.5):
            raise ValueError("so")
    assert not locks.of("a").locked()
