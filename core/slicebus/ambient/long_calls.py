"""Notices calls that take long, as to a server whose webhook hangs: what they occupy goes to others meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONG_S = 1.0
"""What takes longer takes long."""
MOST = 256
"""More than so many at once are not noticed."""


class Call:
    """One call."""

    def __init__(self) -> None:
        self.is_long = False
        """Whether it was noticed."""


class LongCalls:
    """Counts the calls that have been noticed and have not ended."""

    def __init__(self, *, long_s: float = LONG_S, most: int = MOST) -> None:
        """A call is noticed after `long_s` seconds, unless `most` others are under way."""
        self._long_s = long_s
        self._most = most
        self._under_way = 0

    @contextmanager
    def noticed(self, then: Callable[[], object]) -> Iterator[Call]:
        """Call `then` once where the block takes long, unless its task is cancelled."""
        call, task = Call(), asyncio.current_task()

        def notice() -> None:
            if self._under_way < self._most and not (task and task.cancelling()):
                self._under_way += 1
                call.is_long = True
                then()

        timer = asyncio.get_running_loop().call_later(self._long_s, notice)
        try:
            yield call
        finally:
            timer.cancel()
            self._under_way -= call.is_long
