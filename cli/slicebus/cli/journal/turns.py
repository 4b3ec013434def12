"""Reads many records without keeping the loop from everything else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from slicebus.bus.contract import Record

_TURN_S = 0.02
"""How long records are read before others get their turn."""


async def in_turns(records: AsyncGenerator[Record, None]) -> AsyncGenerator[Record, None]:
    """The same records. A stream whose records are there already never waits by itself."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + _TURN_S
    async with aclosing(records) as read:
        async for record in read:
            yield record
            if loop.time() > ends_s:
                await asyncio.sleep(0)
                ends_s = loop.time() + _TURN_S
