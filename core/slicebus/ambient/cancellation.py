"""Tells a cancellation that somebody asked for from one that a library has let out.

A library may end a wait by a CancelledError that nobody has sent, as aiormq does when a connection falls silent.
asyncio takes each for the end that a task's owner wants: a TaskGroup goes on without the task, and nothing says that a
watch, or a worker of a queue, is there no more.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

from slicebus.proto.errors import UnavailableError

T = TypeVar("T")


class Cancellation:
    """Knows whether the task that makes it is asked to end afterwards."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task else 0

    @property
    def is_asked(self) -> bool:
        """Whether somebody has cancelled the task since."""
        return self._task is not None and self._task.cancelling() > self._before


class TaskGroup(asyncio.TaskGroup):
    """A TaskGroup whose tasks fail with UnavailableError where they are cancelled and nobody has asked for that."""

    def create_task(  # type: ignore[override]  # no generators
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Run a coroutine in the group, under a name for the log. It is closed where its task ends before it begins."""
        task = super().create_task(_noticed(coro, name), name=name, context=context)
        task.add_done_callback(lambda _: coro.close())
        return task


@contextmanager
def ungrouped() -> Iterator[None]:
    """Raise the only error of a task group by itself: its type tells the caller what to do."""
    try:
        yield
    except ExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


async def _noticed(coro: Coroutine[Any, Any, T], name: str | None) -> T:
    cancellation = Cancellation()
    try:
        return await coro
    except asyncio.CancelledError as error:
        if cancellation.is_asked:
            raise
        raise UnavailableError(f"{name or 'a task'} was cancelled by a library") from error
