"""Spares a role's process the garbage collections that visit every object.

Python visits every object from time to time, and does nothing else meanwhile: with 50,000 Workloads in the caches for
seconds, several times while they are read. Objects of the API are trees, and go when nobody refers to them any more.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_MOST_S = 600.0
"""Ten times what a role with 50,000 Workloads takes on a slow machine."""


@asynccontextmanager
async def spared(*, begun: asyncio.Event, leading: asyncio.Event) -> AsyncIterator[None]:
    """Collect nothing from `begun` to `leading`, and never visit the objects that are there by then. A role that takes
    over `_MOST_S` to begin collects again."""
    sparing = asyncio.create_task(_spare(begun, leading), name="garbage")
    try:
        yield
    finally:
        sparing.cancel()
        await asyncio.gather(sparing, return_exceptions=True)


async def _spare(begun: asyncio.Event, leading: asyncio.Event) -> None:
    await begun.wait()
    gc.disable()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOST_S):
                await leading.wait()
            gc.freeze()
    finally:
        gc.enable()
