"""Picks the implementation of the bus by the scheme of its URL."""

from collections.abc import Awaitable, Callable

from slicebus.bus.access.address import URL, Access
from slicebus.bus.contract import Bus
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError

Connect = Callable[[str, str, BusSettings, Access], Awaitable[Bus]]
"""Connects to a URL under a name."""


async def _connect_rabbitmq(url: str, name: str, settings: BusSettings, access: Access) -> Bus:
    from slicebus.bus.rabbitmq.bus import RabbitBus

    return await RabbitBus.connect(url, name=name, settings=settings, access=access)


_SCHEMES: dict[str, Connect] = {"amqp": _connect_rabbitmq, "amqps": _connect_rabbitmq}


def register(scheme: str, connect: Connect) -> None:
    """Register a scheme. Importing `slicebus.sandbox` registers `memory://USER@BROKER`."""
    _SCHEMES[scheme] = connect


async def connect(
    url: str,
    *,
    name: str,
    settings: BusSettings = BusSettings(),  # noqa: B008 a frozen value
    access: Access = Access(),  # noqa: B008 a frozen value
) -> Bus:
    """Connect to a broker. `name` is what the broker's management page shows.

    Raises ConfigurationError for an unregistered scheme and for an address that cannot or must not work,
    UnavailableError when the broker cannot be reached within `settings.connect_s`, ForbiddenError when it refuses the
    user.
    """
    scheme = url.partition("://")[0]
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"{URL} has to begin with amqp:// or amqps://")
    return await _SCHEMES[scheme](url, name, settings, access)
