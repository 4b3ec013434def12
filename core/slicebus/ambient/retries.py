"""Makes calls again when they fail.

tenacity keeps a record of each call, which costs as much as to acknowledge a message. So calls for every message and
every read use this. Seldom calls, which have more to log on the way, use tenacity.
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
    """Make a call until it raises none of the errors `on`, and return its result. From `ends_at_s` on, by the loop's
    time, such an error is raised. A pause that a server asks for ends then, for a last call."""
    failures = 0
    while True:
        try:
            return await call()
        except on as error:
            left_s = ends_at_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise
            failures += 1
            pause_s = wait.pause_s(failures, error)
        await asyncio.sleep(min(pause_s, max(left_s, wait.most_s)))
