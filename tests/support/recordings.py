"""What a fleet has recorded, as a file."""

import asyncio
from pathlib import Path

from slicebus.bus.contract import Record
from slicebus.bus.factory import connect
from slicebus.journal.export import to_line
from slicebus.journal.streams import read_journals

_ALL_RECORDED_S = 0.5
"""Records wait a twentieth of a second for others."""


async def recorded(url: str) -> list[Record]:
    """The whole journal of a fleet that is at rest."""
    await asyncio.sleep(_ALL_RECORDED_S)
    bus = await connect(url, name="test")
    try:
        return [record async for record in read_journals(bus, "first", follow=False)]
    finally:
        await bus.aclose()


async def exported(url: str, path: Path) -> Path:
    """The same, as `slicebus journal export` writes it."""
    lines = [to_line(record) for record in await recorded(url)]
    await asyncio.to_thread(path.write_bytes, b"".join(line + b"\n" for line in lines))
    return path
