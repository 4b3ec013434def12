"""Keeps one lock an object: the commands of a decision are carried out before the next decision about the object."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)


class Locks(Generic[Key]):
    """Has a lock for each object. A lock lives as long as a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: Key) -> asyncio.Lock:
        """The lock of an object. Hold it to decide about the object or to act on it."""
        return self._locks.setdefault(key, asyncio.Lock())

    @asynccontextmanager
    async def of_within(self, key: Key, within_s: float) -> AsyncIterator[bool]:
        """Hold the lock where it comes free within `within_s`. The value is whether it is held."""
        lock = self.of(key)
        try:
            async with asyncio.timeout(within_s):
                await lock.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()
