"""The environment of a fleet in one process: an API server, the controllers of a cluster, and a bus.

For the demo and for tests. No role imports it; contract tests compare each part with the real one. Importing it
registers the scheme `memory://USER@BROKER` with `slicebus.bus.factory`.
"""

from urllib.parse import SplitResult

from slicebus.bus.contract import Bus
from slicebus.bus.factory import register
from slicebus.bus.settings import BusSettings


async def _connect(url: SplitResult, _name: str, _settings: BusSettings) -> Bus:
    from slicebus.sandbox.bus import MemoryBroker, MemoryBus

    return MemoryBus(MemoryBroker.named(url.hostname or "local"), user=url.username or "guest")


register("memory", _connect)
