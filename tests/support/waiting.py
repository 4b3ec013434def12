"""Waiting for what other processes do."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from slicebus.proto.errors import NotFoundError, UnavailableError

PATIENCE_S = 90.0
"""What takes longer does not come. A slow machine's disk may stand still for half a minute."""
KUBECTL_PATIENCE = f"--timeout={2 * PATIENCE_S:.0f}s"
"""The same for kubectl, which waits for deletes that may follow each other."""
Found = TypeVar("Found")
_FIRST_S, _LONGER, _MOST_S = 0.02, 1.25, 0.1
"""The pauses between looks: each look is some requests, and what it waits for needs the processors too."""


async def eventually(look: Callable[[], Awaitable[Found]], what: str, *, within_s: float = PATIENCE_S) -> Found:
    """The first true value that `look` gives. Fails with what it gave last, and where every task stands."""
    last: object = None
    pause_s = _FIRST_S
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    last = found = await look()
                    if found:
                        return found
                except (NotFoundError, UnavailableError) as error:
                    last = error
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * _LONGER, _MOST_S)
    except TimeoutError:
        failure = AssertionError(f"after {within_s:.0f} s still not: {what}; last: {last!r}")
        for description in sorted(map(_described, asyncio.all_tasks())):
            failure.add_note(description)
        raise failure from None


def _described(task: asyncio.Task[Any]) -> str:
    """A task's name, and where it stands, the innermost call last."""
    calls = [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in _frames(task.get_coro())]
    return f"{task.get_name()}: {' > '.join(calls)}"


def _frames(awaited: Any) -> Iterator[FrameType]:
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield frame
        awaited = awaited.cr_await
