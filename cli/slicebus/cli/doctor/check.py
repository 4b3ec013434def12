"""A finding of `slicebus doctor`, and the deadline of each check."""

import asyncio
from collections.abc import Callable, Coroutine
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


async def within(
    subject: str,
    made: Coroutine[Any, Any, list[Check]],
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
