"""Shares a bounded number of workers, and of bytes, between those who wait for them.

Whoever waits has a queue of its own. The next free worker goes to the one that has had least so far, in bytes and
turns: a cluster that sends many messages, or large ones, waits for itself. Nobody has more than a part of the workers,
so that one whose messages take long leaves some to the others. Large messages come one by one, at a pace: each takes
the processor for longer than everything that a usual one causes.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_TURN_BYTES = 4096
"""What a turn counts beside its bytes: about what a message of that size costs to decode and decide about."""

LARGE_BYTES = 8192
"""From here on a message is large. Statuses, requests and orders have one to four kilobytes."""
_PACE_BYTES_S = 1024**2
"""Most bytes of large messages a second: to decode one, to search it for secrets and to decide about it takes 0.15 to
0.25 microseconds a byte, so that they leave at least three quarters of the time to the others. Of an inventory that are
9,000 jobs a second."""


class Pace:
    """Lets large messages pass one by one, in turns of their owners, and no faster than a number of bytes a second.
    Others pass at once."""

    def __init__(self, *, large_bytes: int = LARGE_BYTES, bytes_s: int = _PACE_BYTES_S) -> None:
        self._large_bytes = large_bytes
        self._bytes_s = bytes_s
        self._gate = Turns(1, most_each=1, most_bytes=sys.maxsize)

    async def keep(self, owner: str, size: int) -> None:
        """Wait until a message of `size` bytes may pass."""
        if size < self._large_bytes:
            return
        async with self._gate.take(owner, size):
            await asyncio.sleep(size / self._bytes_s)


class Turns:
    """Has `workers` turns at once, `most_each` of them for one owner, and `most_bytes` bytes. Whatever is larger than
    all of these bytes gets all of them."""

    def __init__(self, workers: int, *, most_each: int, most_bytes: int) -> None:
        self._free = workers
        self._most_each = most_each
        self._most_bytes = most_bytes
        self._bytes = 0
        self._held: dict[str, int] = {}
        self._had: dict[str, int] = {}
        """What each owner that holds or waits has had. One that comes late has had what the last one had that got a
        turn, so it has no right to all that the others have had."""
        self._last_had = 0
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def take(self, owner: str, size: int) -> AsyncIterator[Callable[[], None]]:
        """Hold a turn, and `size` bytes, while the context lasts, or until its value is called."""
        size, is_held = min(size, self._most_bytes), True
        await self._wait(owner, size)

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._give_back(owner, size)

        try:
            yield give_back
        finally:
            give_back()

    async def _wait(self, owner: str, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append((size, turn))
        self._had.setdefault(owner, self._last_had)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # It got its turn in the same moment.
                self._give_back(owner, size)
            else:
                self._forget(owner)
                self._let_in()
            raise

    def _give_back(self, owner: str, size: int) -> None:
        self._free += 1
        self._bytes -= size
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._forget(owner)
        self._let_in()

    def _forget(self, owner: str) -> None:
        """Forget an owner that neither holds nor waits."""
        waiting = self._waiting.get(owner)
        while waiting and waiting[0][1].cancelled():
            waiting.popleft()
        if not waiting:
            self._waiting.pop(owner, None)
            if owner not in self._held:
                self._had.pop(owner, None)

    def _let_in(self) -> None:
        while self._free and (owner := self._next()) is not None:
            size, turn = self._waiting[owner][0]
            if self._bytes + size > self._most_bytes and self._held:
                return
            self._waiting[owner].popleft()
            if not self._waiting[owner]:
                del self._waiting[owner]
            if turn.cancelled():
                self._forget(owner)
                continue
            self._free -= 1
            self._bytes += size
            self._held[owner] = self._held.get(owner, 0) + 1
            self._last_had = self._had[owner]
            self._had[owner] += size + _TURN_BYTES
            turn.set_result(None)

    def _next(self) -> str | None:
        """The owner that has had least of those who wait, and may have one more turn."""
        able = (owner for owner in self._waiting if self._held.get(owner, 0) < self._most_each)
        return min(able, key=self._had.__getitem__, default=None)
