"""The event loop's time as a value that tests move.

looptime (PyPI) was tried instead. Its time leaps from timer to timer and never past one, so it has no process that was
stopped while its timers fell due; and these tests take twice the processor time by it.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

START_S = 1000.0


class LoopTime:
    """Replaces the time of the running loop.

    It stands still until `advance`. With `jumps` it leaps to the next timer as soon as nothing else is left to do, so
    that a test of pauses takes no time. Do not let it jump in a test with sockets: their deadlines are timers too.
    """

    def __init__(self, loop: Any) -> None:
        self.now = START_S
        self.jumps = False
        self._select = loop._selector.select
        loop.time = lambda: self.now
        loop._selector.select = self._wait

    def _wait(self, timeout: float | None = None) -> Any:
        if not self.jumps or not timeout:
            return self._select(timeout)
        events = self._select(0)
        if not events:
            self.now += timeout
        return events

    async def advance(self, seconds: float) -> None:
        """Move on, and let whatever became due run."""
        self.now += seconds
        await settle()


async def settle(turns: int = 20) -> None:
    """Let every task that can go on do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.fixture
async def loop_time() -> LoopTime:
    """Time that stands still."""
    return LoopTime(asyncio.get_running_loop())


@pytest.fixture
async def jumping(loop_time: LoopTime, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopTime]:
    """Time that leaps to the next timer, and pauses without jitter."""
    monkeypatch.setattr("random.Random.uniform", lambda _, low, high: (low + high) / 2)
    loop_time.jumps = True
    return loop_time
