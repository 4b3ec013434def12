"""Picks the implementation by the URL."""

from urllib.parse import urlsplit

from slicebus.bus.contract import Bus
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError


async def connect(url: str, *, name: str, settings: BusSettings = BusSettings()) -> Bus:  # noqa: B008 a frozen value
    """A connected bus: `amqp://` and `amqps://` are RabbitMQ, `memory://USER@BROKER` is one in this process.

    `name` is what the broker's management page shows. Raises ConfigurationError for another scheme, UnavailableError
    when the broker cannot be reached within `settings.connect_s`, ForbiddenError when it refuses the user.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        from slicebus.bus.memory import MemoryBroker, MemoryBus

        return MemoryBus(MemoryBroker.named(parts.hostname or "local"), user=parts.username or "guest")
    if parts.scheme in ("amqp", "amqps"):
        from slicebus.bus.rabbitmq import RabbitBus

        return await RabbitBus.connect(url, name=name, settings=settings)
    raise ConfigurationError(f"no bus for {parts.scheme}://: use amqp://, amqps:// or memory://")
