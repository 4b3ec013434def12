"""An event loop on a virtual clock: a fleet's day passes as fast as its code runs, and the same from the same seed.

Whatever belongs to one process can be stopped as SIGSTOP stops it: none of its code runs, the world goes on, and when
it is continued it finds every answer and every timer that has fallen due in the meantime, in this order.
"""

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import tenacity

Result = TypeVar("Result")


class Stuck(AssertionError):
    """Nothing is left to wait for: every task waits for another."""


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


class _Leaping(selectors.BaseSelector):
    """Waits for no file: it leaps to the next timer. The loop's own wake-up socket is registered and never read."""

    def __init__(self) -> None:
        self.now = 0.0
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._registered[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("no task can go on, and no timer is set")
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._registered


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: a task group cancels its tasks in a set's order."""

    def __new__(cls, *_: Any, loop: "VirtualLoop", **__: Any) -> "_Task":
        # Before its initialization, which puts it into the set of all tasks.
        task = super().__new__(cls)
        task.number = next(loop.task_numbers)
        return task

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready; when nothing is, time leaps."""

    _ready: Any
    _scheduled: list[Any]

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)
        self.task_numbers = itertools.count()
        self.set_task_factory(lambda loop, work, **how: _Task(work, loop=loop, **how))

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._leaping.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """As ever, but what belongs to a stopped program waits until it is continued."""
        program = _program.get() if context is None else context.get(_program)
        if program is None or not program.stopped:
            return super().call_soon(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        program.parked.append(handle)
        return handle

    def stop_program(self, program: Program) -> None:
        """Let none of its code run. What is ready in this very turn still does."""
        program.stopped = True
        program.timers = [timer for timer in self._scheduled if timer._context.get(_program) is program]
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
