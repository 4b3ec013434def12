"""Calls that are made again when they fail.

tenacity keeps a record of each call, which costs as much as to acknowledge a message. So what is done for every message
and every read uses this; what happens seldom, and has more to say on the way, uses tenacity.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from slicebus.ambient.backoff import Backoff

T = TypeVar("T")


async def repeated(
    call: Callable[[], Awaitable[T]],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    wait: Backoff,
    ends_at_s: float = math.inf,
) -> T:
    """The result of a call, which is made again as long as it raises one of `on`. Raises that error from `ends_at_s`
    on, by the loop's time."""
    failures = 0
    while True:
        try:
            return await call()
        except on:
            if asyncio.get_running_loop().time() >= ends_at_s:
                raise
        failures += 1
        await asyncio.sleep(wait.pause_s(failures))
