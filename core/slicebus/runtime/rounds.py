"""Reconciles every job again and again, whatever has happened: no lost event is lost for longer than a round.

A round is spread over its time: fifty thousand jobs are some eighty a second, and never a burst.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

_TICK_S = 5.0

Key = TypeVar("Key", bound=Hashable)


async def go_round(keys: Callable[[], Iterable[Key]], add: Callable[[Key], None], *, round_s: float) -> None:
    """Add every key once in each `round_s` seconds, until cancelled. A key that comes during a round waits for the
    next one."""
    tick_s = min(_TICK_S, round_s)
    ticks = max(1, round(round_s / tick_s))
    while True:
        due = list(dict.fromkeys(keys()))
        for tick in range(ticks):
            await asyncio.sleep(round_s / ticks)
            for key in due[len(due) * tick // ticks : len(due) * (tick + 1) // ticks]:
                add(key)
