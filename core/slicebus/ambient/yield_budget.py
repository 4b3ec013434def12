"""How long work may keep the event loop before it yields.

A coroutine that has to wait for nothing keeps the event loop. One that handles 50,000 objects so keeps it for seconds:
no message is answered meanwhile, and the Lease is not renewed.
"""

import asyncio

_MOST_S = 0.05
"""Of the loop's time, which a simulated run does not spend on code."""


class YieldBudget:
    """The time that the tasks which work on the same things share between two passes of the event loop."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    async def yield_if_spent(self) -> None:
        """Let all other tasks run, where the budget is spent."""
        loop = asyncio.get_running_loop()
        while self._began_s is not None and loop.time() - self._began_s >= _MOST_S:  # noqa: ASYNC110 one iteration ends it
            await asyncio.sleep(0)
        if self._began_s is None:
            self._began_s = loop.time()
            loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._began_s = None
