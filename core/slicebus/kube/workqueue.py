"""Queues keys to reconcile: the core of a level-triggered controller.

Per-object serialisation. The queue has no events but names of objects to reconcile. A key that is queued already is not
queued again. A key is never handled twice at once: one that is added while it is handled is handled again afterwards.
So no two handlers of one object run together, and a burst of events costs one reconcile. An object whose handler takes
long, as where a webhook hangs, has another worker take the next key, and delays no other object.

Failures. After a transient error or a conflict the key is queued again after a growing, jittered pause, which the first
success resets. After a permanent error it is queued again too, after pauses of up to two minutes: rights, policies and
definitions come back, and nothing tells that they did. `refused` says which keys are so, and at which a server, or a
webhook, has failed for long: it may do so for ever. A key whose decision raises is set aside: it is tried again when it
changes, and after a pause that grows up to ten minutes. Neither counts as a delay. Any other exception is an error of
this program and ends the process.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.lasting_failures import Patience
from slicebus.ambient.long_calls import Call, LongCalls
from slicebus.ambient.timers import Timers
from slicebus.ambient.yield_budget import YieldBudget
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    PermanentError,
    ProtocolError,
    TransientError,
)

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.02, most_s=90.0)
_REFUSED = Backoff(first_s=2.0, most_s=120.0)
"""After a permanent error: a refusal that ends is noticed within two minutes, and thousands of them cost little."""
_ASIDE = Backoff(first_s=2.0, most_s=600.0)
_PATIENCE = Patience(webhook_s=20.0, server_s=20.0)
"""Before `refused` has a key at which a server fails. It counts from when the key was due, which is longer."""
_MORE = 4
"""So many times as many keys as there are workers may take long at once. A server that is slow as a whole gets no more
than that."""

Key = TypeVar("Key", bound=Hashable)


class RetryReason(StrEnum):
    """Why a key was queued again after its handling."""

    TRANSIENT = "transient"
    """A transient error or a conflict."""
    REFUSED = "refused"
    """A permanent error."""
    SET_ASIDE = "set_aside"
    """Its decision raised."""


class WorkQueue(Generic[Key]):
    """Hands out keys in the order in which they were added, but for those that go first."""

    def __init__(
        self, name: str, *, logged: Callable[[Key], AbstractContextManager[object]] = lambda _: nullcontext()
    ) -> None:
        """`logged` is the context of everything that is logged about a key."""
        self._name = name
        self._logged = logged
        self._waiting: OrderedDict[Key, None] = OrderedDict()
        self._before: OrderedDict[Key, None] = OrderedDict()
        """The keys that go before those that wait."""
        self._active: set[Key] = set()
        self._requeued: dict[Key, float] = {}
        """Keys that were added while they are handled, with the time of their addition."""
        self._requeued_first: set[Key] = set()
        """The keys of those that go first afterwards."""
        self._due_since: dict[Key, float] = {}
        """Since when each unfinished key has been due. A key that failed keeps its time."""
        self._failures: dict[Key, int] = {}
        """The number of failures in a row."""
        self._refused: dict[Key, str] = {}
        """The text of the permanent error of each key whose last failure was one."""
        self._stuck: dict[Key, str] = {}
        """The same of each key at which a server has long failed."""
        self._aside: dict[Key, str] = {}
        """The keys whose last decision raised, with the digest of its traceback."""
        self._timers = Timers[Key](self.add)
        self.retries = Counter(dict.fromkeys(RetryReason, 0))
        """How often a key was queued again after a failure, by the reason."""
        self._ready = asyncio.Semaphore(0)
        """Counts the keys that were added, so that each wakes one worker."""
        self._ready_first = asyncio.Semaphore(0)
        """Counts those that go first, for the workers that handle nothing else."""
        self._budget = YieldBudget()

    def add(self, key: Key, *, first: bool = False) -> None:
        """Have a key handled as soon as a worker is free; with `first` before all that were added without."""
        self._timers.stop(key)
        now_s = asyncio.get_running_loop().time()
        if key in self._active:
            self._requeued.setdefault(key, now_s)
            if first:
                self._requeued_first.add(key)
            return
        waits = key in self._waiting or key in self._before
        if first and key not in self._before:
            self._waiting.pop(key, None)
            self._before[key] = None
            self._ready_first.release()
        elif not waits:
            self._waiting[key] = None
        if not waits:
            self._due_since.setdefault(key, now_s)
            self._ready.release()

    def add_after(self, key: Key, delay_s: float) -> None:
        """Have a key handled after `delay_s` seconds, or earlier where it is added before. The earliest of several
        delays counts."""
        self._timers.start(key, delay_s)

    def seen(self, key: Key) -> None:
        """Forget additions of a key until now: its handler is about to read its state."""
        self._requeued.pop(key, None)
        self._requeued_first.discard(key)

    @property
    def due_since_s(self) -> float | None:
        """Since when the oldest key has been due, by the loop's time; None when none is due. Delayed keys are not due
        yet, retries are."""
        return min(self._due_since.values(), default=None)

    @property
    def depth(self) -> int:
        """How many keys wait for a worker."""
        return len(self._before) + len(self._waiting)

    @property
    def waiting_since_s(self) -> float | None:
        """Since when the oldest key that waits for a worker has been due, by the loop's time; None when none waits."""
        times = (self._due_since[key] for keys in (self._before, self._waiting) for key in keys)
        return min(times, default=None)

    @property
    def refused(self) -> Mapping[Key, str]:
        """The keys whose last handling ended with a permanent error, or at which a server has long failed, each with
        the text of the error."""
        return self._refused | self._stuck

    @property
    def set_aside(self) -> Mapping[Key, str]:
        """The keys whose decision raises, with the digest of its traceback."""
        return self._aside

    @property
    def idle(self) -> bool:
        """Whether nothing waits, is being handled, or is due later."""
        return not (self._before or self._waiting or self._active or self._timers)

    async def run(self, handler: Callable[[Key], Awaitable[None]], *, workers: int, first_workers: int = 0) -> None:
        """Handle keys, at most `workers` at once beside those that take long, until cancelled. `first_workers` more
        handle only what goes first, also when all the others are busy."""
        long_calls = LongCalls(most=_MORE * workers)
        try:
            async with TaskGroup() as group:

                def start(number: int) -> None:
                    """Start a worker, or the next one in place of one whose key takes long."""
                    noticed = partial(long_calls.noticed, partial(start, number))
                    work = self._work(handler, only_first=number >= workers, noticed=noticed)
                    group.create_task(work, name=f"{self._name}-{number}")

                for number in range(workers + first_workers):
                    start(number)
        finally:
            self._timers.stop_all()

    async def _work(
        self,
        handler: Callable[[Key], Awaitable[None]],
        *,
        only_first: bool,
        noticed: Callable[[], AbstractContextManager[Call]],
    ) -> None:
        """Handle keys until one takes long. `noticed` has another worker go on then."""
        is_replaced = False
        while not is_replaced:
            await self._budget.yield_if_spent()
            key = await self._take(only_first=only_first)
            try:
                with noticed() as call, self._logged(key):
                    await self._handle(key, handler)
            finally:
                is_replaced = call.is_long
                self._active.discard(key)
                if key in self._requeued:
                    self._due_since.setdefault(key, self._requeued.pop(key))
                    first = key in self._requeued_first
                    self._requeued_first.discard(key)
                    self.add(key, first=first)

    async def _handle(self, key: Key, handler: Callable[[Key], Awaitable[None]]) -> None:
        try:
            await handler(key)
        except (TransientError, ConflictError) as error:
            self._retry(key, error)
        except (PermanentError, ProtocolError) as error:
            self._requeue_refused(key, error)
        except DecisionError as error:
            self._set_aside(key, error)
        else:
            self._settle(key)

    def _settle(self, key: Key) -> None:
        self._failures.pop(key, None)
        self._refused.pop(key, None)
        self._stuck.pop(key, None)
        self._aside.pop(key, None)
        del self._due_since[key]

    async def _take(self, *, only_first: bool) -> Key:
        while True:
            await (self._ready_first if only_first else self._ready).acquire()
            waiting = self._before if only_first or self._before else self._waiting
            if waiting:  # Another worker may have been faster.
                key, _ = waiting.popitem(last=False)
                self._active.add(key)
                return key

    def _set_aside(self, key: Key, error: DecisionError) -> None:
        self.retries[RetryReason.SET_ASIDE] += 1
        self._failures[key] = self._failures.get(key, 0) + 1
        pause_s = _ASIDE.pause_s(self._failures[key])
        if self._aside.get(key) != error.digest:
            _log.error("workqueue.set_aside", queue=self._name, key=str(key), error=str(error), exc_info=error)
        self._aside[key] = error.digest
        del self._due_since[key]
        self.add_after(key, pause_s)

    def _retry(self, key: Key, error: TransientError | ConflictError) -> None:
        self.retries[RetryReason.TRANSIENT] += 1
        self._refused.pop(key, None)
        if self._is_stuck(key, error):
            self._stuck[key] = str(error)
        else:
            self._stuck.pop(key, None)
        self._failures[key] = self._failures.get(key, 0) + 1
        pause_s = _BACKOFF.pause_s(self._failures[key], error)
        _log.info("workqueue.retry", queue=self._name, key=str(key), error=str(error), pause_s=round(pause_s, 3))
        self.add_after(key, pause_s)

    def _is_stuck(self, key: Key, error: TransientError | ConflictError) -> bool:
        """Whether a server has long failed at this key alone. That it is away is told of the role."""
        return asyncio.get_running_loop().time() - self._due_since[key] >= _PATIENCE.of(error)

    def _requeue_refused(self, key: Key, error: Exception) -> None:
        """Queue a key again slowly. It is not due meanwhile: the role does all that it can."""
        self.retries[RetryReason.REFUSED] += 1
        self._stuck.pop(key, None)
        is_news = key not in self._refused
        self._failures[key] = self._failures.get(key, 0) + 1 if not is_news else 1
        self._refused[key] = str(error)
        del self._due_since[key]
        pause_s = _REFUSED.pause_s(self._failures[key])
        log = _log.error if is_news else _log.info
        log("workqueue.refused", queue=self._name, key=str(key), error=str(error), pause_s=round(pause_s, 3))
        self.add_after(key, pause_s)
