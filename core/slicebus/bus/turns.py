"""Shares a bounded number of workers, and of bytes, between those who wait for them.

Whoever waits has a queue of its own. The next free worker goes to the one that has had least so far, in bytes and
turns: a cluster that sends many messages, or large ones, waits for itself. Nobody has more than a part of the workers,
so that one whose messages take long leaves some to the others.

All handlers share one event loop, and each of somebody's large messages holds up everybody's next step. So large
messages of one owner come one at a time, and while others come too, nobody has more than a pace for long.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

_TURN_BYTES = 4096
"""What a turn counts beside its bytes: about what a message of that size costs to decode and decide about."""


_RECENT_S = 1.0
"""Others come too where one has had a turn since then."""


class Pace(msgspec.Struct, frozen=True):
    """What one owner may have while others come too, in bytes and turns."""

    burst_bytes: int
    bytes_s: float


class Turns:
    """Has `workers` turns at once, `most_each` of them for one owner, and `most_bytes` bytes, `most_bytes_each` of them
    for one owner. Whatever is larger than all of these bytes gets all of them."""

    def __init__(
        self,
        workers: int,
        *,
        most_each: int,
        most_bytes: int,
        most_bytes_each: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._most_bytes_each = most_bytes_each or most_bytes
        self._pace = pace
        self._held_bytes: dict[str, int] = {}
        self._owed: dict[str, tuple[float, float]] = {}
        """What each owner has had above its pace, in bytes, and when."""
        self._latest, self._before = ("", -_RECENT_S), ("", -_RECENT_S)
        """The last two owners that got a turn, and when."""
        self._resting: asyncio.TimerHandle | None = None
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
    async def take(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold a turn, and `size` bytes, while the context lasts."""
        size = min(size, self._most_bytes)
        await self._wait(owner, size)
        try:
            yield
        finally:
            self._give_back(owner, size)

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
        self._held_bytes[owner] -= size
        if not self._held[owner]:
            del self._held[owner], self._held_bytes[owner]
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
            self._held_bytes[owner] = self._held_bytes.get(owner, 0) + size
            self._note_turn(owner, size + _TURN_BYTES)
            self._last_had = self._had[owner]
            self._had[owner] += size + _TURN_BYTES
            turn.set_result(None)

    def _next(self) -> str | None:
        """The owner that has had least of those who wait, and may have one more turn."""
        able = [owner for owner in self._waiting if self._may_hold(owner)]
        if self._pace is None or not able:
            return min(able, key=self._had.__getitem__, default=None)
        now = asyncio.get_running_loop().time()
        rests = {owner: self._rest_s(owner, now) for owner in able}
        ready = [owner for owner, rest_s in rests.items() if rest_s <= 0]
        if not ready:
            self._look_again(min(rests.values()))
        return min(ready, key=self._had.__getitem__, default=None)

    def _may_hold(self, owner: str) -> bool:
        held = self._held.get(owner, 0)
        size = self._waiting[owner][0][0]
        return held < self._most_each and (not held or self._held_bytes[owner] + size <= self._most_bytes_each)

    def _rest_s(self, owner: str, now: float) -> float:
        """How long an owner has to wait, as it has had more than its pace while others come too."""
        assert self._pace is not None
        _, seen_at = self._before if self._latest[0] == owner else self._latest
        if now - seen_at > _RECENT_S and self._waiting.keys() == {owner}:
            return 0.0
        return (self._still_owed(owner, now) - self._pace.burst_bytes) / self._pace.bytes_s

    def _still_owed(self, owner: str, now: float) -> float:
        assert self._pace is not None
        owed, since = self._owed.get(owner, (0.0, now))
        return max(0.0, owed - (now - since) * self._pace.bytes_s)

    def _note_turn(self, owner: str, size: int) -> None:
        if self._pace is None:
            return
        now = asyncio.get_running_loop().time()
        if owner != self._latest[0]:
            self._before = self._latest
        self._latest = owner, now
        self._owed[owner] = self._still_owed(owner, now) + size, now

    def _look_again(self, after_s: float) -> None:
        """Give turns again when the first of those who rest has rested."""
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.get_running_loop().call_later(min(after_s, _RECENT_S), self._let_in)
