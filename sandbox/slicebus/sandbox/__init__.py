"""The environment of a fleet in one process: an API server, the controllers of a cluster, and a bus.

The demo and tests use it, and no role imports it. Contract tests compare each part with the real one. Importing it
registers the scheme `memory://USER@BROKER` with `slicebus.bus.factory`.
"""

from urllib.parse import urlsplit

from slicebus.bus.access.address import Access
from slicebus.bus.contract import Bus
from slicebus.bus.factory import register
from slicebus.bus.settings import BusSettings


async def _connect(url: str, _name: str, settings: BusSettings, _access: Access) -> Bus:
    from slicebus.sandbox.bus import MemoryBroker, MemoryBus

    parts = urlsplit(url)
    return MemoryBus(MemoryBroker.named(parts.hostname or "local"), user=parts.username or "guest", settings=settings)


register("memory", _connect)
