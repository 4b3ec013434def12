"""A queue of keys that are to be looked at: the heart of a level-triggered controller.

Per-object serialisation. What is queued is not an event but the name of an object whose state is to be compared with
what it should be. A key that is queued already is not queued again. A key that is being handled is never handled twice
at once: when it is added meanwhile, it is handled again afterwards. So handlers of one object never run into each
other, a burst of events costs one look, and a slow object holds up one worker and no other object.

Failures. A handler that raises a transient error or a conflict has its key queued again after a growing, jittered
pause, forgotten with the first success. A permanent error is logged, and the key waits for its next change. Any other
exception is a programming error and ends the process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.proto.errors import ConflictError, PermanentError, ProtocolError, TransientError

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.02, most_s=90.0)

Key = TypeVar("Key", bound=Hashable)


class WorkQueue(Generic[Key]):
    """Keys in the order in which they were added."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: dict[Key, None] = {}
        self._active: set[Key] = set()
        self._again: dict[Key, float] = {}
        """Active keys that were added meanwhile, and when."""
        self._due_since: dict[Key, float] = {}
        """Since when each key has been due that is not handled yet. A key that failed has been due since before."""
        self._failures: dict[Key, int] = {}
        """In a row."""
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._ready = asyncio.Semaphore(0)
        """Counts the keys that wait, so that each wakes one worker."""

    def add(self, key: Key) -> None:
        """Have a key handled as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        now_s = asyncio.get_running_loop().time()
        if key in self._active:
            self._again.setdefault(key, now_s)
        elif key not in self._waiting:
            self._waiting[key] = None
            self._due_since.setdefault(key, now_s)
            self._ready.release()

    def add_after(self, key: Key, delay_s: float) -> None:
        """Have a key handled after a while, unless it is added before. Of several appointments the first one counts."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + delay_s:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_later(delay_s, self._due, key)

    def seen(self, key: Key) -> None:
        """Whoever handles a key has just looked at it again: it is not handled again for what was added before."""
        self._again.pop(key, None)

    @property
    def due_since_s(self) -> float | None:
        """Since when the oldest key has been due, by the loop's time; None when none is. Appointments are not due yet,
        retries are."""
        return min(self._due_since.values(), default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, is being handled, or is due later."""
        return not (self._waiting or self._active or self._timers)

    async def run(self, handler: Callable[[Key], Awaitable[None]], *, workers: int) -> None:
        """Handle keys, at most `workers` at once, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(self._work(handler), name=f"{self._name}-{number}")
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    async def _work(self, handler: Callable[[Key], Awaitable[None]]) -> None:
        while True:
            key = await self._take()
            try:
                await handler(key)
            except (TransientError, ConflictError) as error:
                self._retry(key, error)
            except (PermanentError, ProtocolError) as error:
                _log.error("workqueue.dropped", queue=self._name, key=str(key), error=str(error))
                self._settle(key)
            else:
                self._settle(key)
            finally:
                self._active.discard(key)
                if key in self._again:
                    self._due_since.setdefault(key, self._again.pop(key))
                    self.add(key)

    def _settle(self, key: Key) -> None:
        self._failures.pop(key, None)
        del self._due_since[key]

    async def _take(self) -> Key:
        await self._ready.acquire()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._active.add(key)
        return key

    def _retry(self, key: Key, error: Exception) -> None:
        self._failures[key] = self._failures.get(key, 0) + 1
        pause_s = _BACKOFF.pause_s(self._failures[key])
        _log.info("workqueue.retry", queue=self._name, key=str(key), error=str(error), pause_s=round(pause_s, 3))
        self.add_after(key, pause_s)
