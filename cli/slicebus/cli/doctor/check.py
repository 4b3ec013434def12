"""A finding of `slicebus doctor`, and the deadline of each check. Checks run beside each other, so that all have ended
when the slowest has."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from slicebus.proto.errors import SlicebusError

DEADLINE_S = 15.0
"""Of one check: longer than a Lease is watched that looks expired."""
_TICK_S = 0.2


class Check(msgspec.Struct, frozen=True):
    """One line: what was checked and found, and what to do where that is wrong."""

    subject: str
    found: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing has to be done."""
        return not self.advice


Checking = Coroutine[Any, Any, list[Check]]
"""A check, or several that belong together."""
Asked = Iterable[tuple[str, Checking]]
"""Checks, each with its subject."""


@asynccontextmanager
async def beside() -> AsyncIterator[Callable[[Checking], asyncio.Task[list[Check]]]]:
    """What begins a check beside others. Those that are under way end when the context is left."""
    begun: list[asyncio.Task[list[Check]]] = []

    def begin(checking: Checking) -> asyncio.Task[list[Check]]:
        begun.append(asyncio.create_task(checking))
        return begun[-1]

    try:
        yield begin
    finally:
        # A task that is cancelled before its first step never awaits the coroutine that it was given.
        await asyncio.sleep(0)
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def all_within(asked: Asked, *, failed: Callable[[SlicebusError], Check]) -> AsyncGenerator[Check, None]:
    """The findings of checks that run beside each other, each within its deadline, in the order in which they are
    asked. What several of them find is shown once."""
    shown: list[Check] = []
    async with beside() as begin:
        for task in [begin(within(subject, made, failed=failed)) for subject, made in asked]:
            await asyncio.wait((task,))  # To await the task itself would cancel it before its first step, too.
            for check in task.result():
                if check not in shown:
                    shown.append(check)
                    yield check


async def within(
    subject: str,
    made: Checking,
    *,
    failed: Callable[[SlicebusError], Check],
    hopeless: Callable[[], Check | None] = lambda: None,
    deadline_s: float = DEADLINE_S,
) -> list[Check]:
    """The findings of one check. What it raises is a finding, by `failed`, and so is that it takes longer than the
    deadline; `hopeless` is asked meanwhile, and ends it where it returns a finding."""
    loop = asyncio.get_running_loop()
    checking, ends_s = asyncio.create_task(made, name=f"check:{subject}"), loop.time() + deadline_s
    try:
        while loop.time() < ends_s:
            done, _ = await asyncio.wait((checking,), timeout=_TICK_S)
            if done:
                return checking.result()
            if (found := hopeless()) is not None:
                return [found]
    except SlicebusError as error:
        return [failed(error)]
    finally:
        checking.cancel()
        await asyncio.wait((checking,), timeout=_TICK_S)
    return [Check(subject, f"no answer within {deadline_s:.0f} s", "look at what it asks: the other checks go on")]
