"""The connection of a command to the broker: its address, and from the environment what a role takes from there too."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from slicebus.bus.access.address import URL
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.runtime.broker_settings import BrokerSettings

_CONNECT_S = 5.0


def broker_settings(amqp_url: str) -> BrokerSettings:
    """The address with the files, hosts and exceptions that the environment gives. Raises ConfigurationError, which
    names the variable."""
    return BrokerSettings.from_env({**os.environ, URL: amqp_url})


@asynccontextmanager
async def bus_of(amqp_url: str, *, name: str, connect_s: float = _CONNECT_S) -> AsyncIterator[Bus]:
    """A connected bus. Raises ConfigurationError for an address that must not work without an explicit value, and
    UnavailableError when nobody answers within `connect_s`."""
    settings = broker_settings(amqp_url)
    bus = await connect(settings.amqp_url, name=name, settings=BusSettings(connect_s=connect_s), access=settings.access)
    try:
        yield bus
    finally:
        await bus.aclose()
