"""An event loop on a virtual clock: a fleet's run passes as fast as its code runs, and the same from the same seed.

Whatever belongs to one process can be stopped as SIGSTOP stops it: none of its code runs, the world goes on, and when
it is continued it finds every answer and every timer that has fallen due in the meantime, in this order.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import tenacity

Result = TypeVar("Result")
_MANY_TIMERS = 100
"""asyncio's own."""
_MANY_TURNS = 500_000
"""More than any run has at one moment; together they take half a minute."""


class Stuck(AssertionError):
    """Nothing is left to wait for, as every task waits for another; or time stands still, as one always goes on."""


class Program:
    """The code of one process: every task that is made within `of`, and every task that those make."""

    def __init__(self) -> None:
        self.stopped = False
        self.parked: list[asyncio.Handle] = []
        self.timers: list[Any] = []


_program: ContextVar[Program | None] = ContextVar("program", default=None)


@contextmanager
def of(program: Program) -> Iterator[None]:
    """What is made within belongs to this program."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: a task group cancels its tasks in a set's order."""

    def __new__(cls, *_: Any, loop: "VirtualLoop", **__: Any) -> "_Task":
        # Before its initialization, which puts it into the set of all tasks.
        task = super().__new__(cls)
        task.number = next(loop.task_numbers)
        return task

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs what is ready; when nothing is, time leaps. No file can be waited for."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[Any]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._turns = 0
        """Since time went on last."""
        self.task_numbers = itertools.count()
        self.set_task_factory(lambda loop, work, **how: _Task(work, loop=loop, **how))

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now_s

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As ever, but what belongs to a stopped program waits until it is continued."""
        handle = asyncio.Handle(callback, args, self, context)
        program = handle._context.get(_program)
        if program is not None and program.stopped:
            program.parked.append(handle)
        else:
            self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        """One turn: what is due by now goes behind what is ready, and what these make ready is for the next turn."""
        self._drop_cancelled()
        timers, ready = self._scheduled, self._ready
        if not ready and not self._stopping:
            if not timers:
                raise Stuck("no task can go on, and no timer is set")
            if timers[0].when() > self._now_s:
                self._now_s, self._turns = timers[0].when(), 0
        self._turns += 1
        if self._turns > _MANY_TURNS:
            raise Stuck(f"time stands still at {self._now_s:.3f} s: something goes on again and again")
        while timers and timers[0].when() <= self._now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _drop_cancelled(self) -> None:
        """Drop the cancelled timers that are next, or all of them when they are the most of many."""
        if len(self._scheduled) > _MANY_TIMERS and self._timer_cancelled_count > len(self._scheduled) / 2:
            self._scheduled = [timer for timer in self._scheduled if not timer._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)
            self._timer_cancelled_count -= 1

    def _write_to_self(self) -> None:
        """Nobody has to be woken: there are no other threads."""

    def stop_program(self, program: Program) -> None:
        """Let none of its code run. What is ready in this very turn still does, and may stop it once more."""
        program.stopped = True
        program.timers += [timer for timer in self._scheduled if timer._context.get(_program) is program]
        self._scheduled = [timer for timer in self._scheduled if timer._context.get(_program) is not program]
        heapq.heapify(self._scheduled)
        for timer in program.timers:
            timer._scheduled = False

    def continue_program(self, program: Program) -> None:
        """Let it go on: first what it was answered, then its timers. Nothing happens to one that is not stopped."""
        program.stopped = False
        self._ready.extend(handle for handle in program.parked if not handle._cancelled)
        for timer in program.timers:
            if not timer._cancelled:
                timer._scheduled = True
                heapq.heappush(self._scheduled, timer)
        program.parked, program.timers = [], []


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on a clock of its own."""
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        # tenacity measures its deadlines by the machine's clock.
        patch.object(tenacity, "time", SimpleNamespace(monotonic=runner.get_loop().time)),
    ):
        # What ends a fleet is its outcome; the tasks that end with it have nothing to add.
        runner.get_loop().set_exception_handler(lambda loop, context: None)
        return runner.run(main)
