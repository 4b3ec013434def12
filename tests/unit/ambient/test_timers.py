"""Timers: one a key, of which the earliest counts."""

import asyncio

from slicebus.ambient.timers import Timers
from unit.kube.loop_time import LoopTime


async def test_the_earliest_of_several_delays_counts(jumping: LoopTime) -> None:
    due: list[tuple[str, float]] = []
    begun_at = asyncio.get_running_loop().time()
    timers = Timers[str](lambda key: due.append((key, round(asyncio.get_running_loop().time() - begun_at, 1))))
    for key, delay_s in (("a", 2.0), ("a", 5.0), ("a", 1.0), ("b", 3.0), ("c", 4.0)):
        timers.start(key, delay_s)
    timers.stop("b")
    timers.stop("nobody")
    assert len(timers) == 2
    assert ("a" in timers, "b" in timers) == (True, False)
    await asyncio.sleep(10)
    assert due == [("a", 1.0), ("c", 4.0)]
    timers.start("a", 1.0)
    await asyncio.sleep(2)
    assert due[2:] == [("a", 11.0)], "it may be started again"


async def test_a_stopped_timer_is_never_due(jumping: LoopTime) -> None:
    due: list[str] = []
    timers = Timers[str](due.append)
    timers.start("a", 1.0)
    timers.start("b", 1.0)
    timers.stop_all()
    await asyncio.sleep(2)
    assert due == []
    assert not len(timers)
