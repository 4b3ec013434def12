"""Picks the implementation of the bus by the scheme of its URL."""

from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from slicebus.bus.contract import Bus
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError

Connect = Callable[[SplitResult, str, BusSettings], Awaitable[Bus]]
"""Connects to a URL under a name."""


async def _connect_rabbitmq(url: SplitResult, name: str, settings: BusSettings) -> Bus:
    from slicebus.bus.rabbitmq import RabbitBus

    return await RabbitBus.connect(url.geturl(), name=name, settings=settings)


_SCHEMES: dict[str, Connect] = {"amqp": _connect_rabbitmq, "amqps": _connect_rabbitmq}


def register(scheme: str, connect: Connect) -> None:
    """Register a scheme. Importing `slicebus.sandbox` registers `memory://USER@BROKER`."""
    _SCHEMES[scheme] = connect


async def connect(url: str, *, name: str, settings: BusSettings = BusSettings()) -> Bus:  # noqa: B008 a frozen value
    """A connected bus. `name` is what the broker's management page shows.

    Raises ConfigurationError for an unregistered scheme, UnavailableError when the broker cannot be
    reached within `settings.connect_s`, ForbiddenError when it refuses the user.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ConfigurationError(f"no bus for {parts.scheme}://: use amqp:// or amqps://")
    return await _SCHEMES[parts.scheme](parts, name, settings)
