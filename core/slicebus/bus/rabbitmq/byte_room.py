"""Bounds the bytes that are held at once, beside the number of messages."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteRoom:
    """Has room for `most` bytes. Whoever waits gets room in turn. Whatever is larger than all of it gets all of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Hold `size` bytes while the context lasts."""
        size = min(size, self._most)
        await self._take(size)
        try:
            yield
        finally:
            self._held -= size
            self._let_in()

    async def _take(self, size: int) -> None:
        if not self._waiting and self._held + size <= self._most:
            self._held += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # It got its room in the same moment.
                self._held -= size
            self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.cancelled() and self._held + size > self._most:
                return
            self._waiting.popleft()
            if not turn.cancelled():
                self._held += size
                turn.set_result(None)
