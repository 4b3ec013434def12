"""Finds out what a user may do on RabbitMQ, and changes nothing.

RabbitMQ checks the permissions of a request before it looks for what the request is about. So a binding that does not
exist is removed (write on its destination, read on its source), an exchange that does not exist is deleted (configure),
and a message is published in a transaction that is rolled back (write, and the topic permission). The answer to a
refused request names the queue or exchange. Before RabbitMQ 3.12 it does not name the permission.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aio_pika.abc import AbstractChannel

from slicebus.bus.rabbitmq.failures import close_quietly, translated
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError
from slicebus.proto.rights import EXCHANGES, Action, Use
from slicebus.proto.topology import UP

if TYPE_CHECKING:
    from slicebus.bus.rabbitmq.bus import RabbitBus

_NOWHERE = "slicebus-nowhere"
"""The name of no exchange."""
_KEY = "#"
_TOPIC = "access to topic"


async def refused(bus: "RabbitBus", uses: Iterable[Use]) -> list[Use]:
    """The uses that the broker refuses to the user of this connection.

    A read is tried by way of `slicebus.up`: without write on that, it counts as allowed.
    """
    return [use for use in uses if await _is_refused(bus, use)]


async def _is_refused(bus: "RabbitBus", use: Use) -> bool:
    # A refusal closes the channel.
    channel = await bus.open_channel()
    try:
        with translated(use.action):
            await _try(channel, use)
    except ForbiddenError as error:
        return use.key is not None or (f"'{use.name}'" in str(error) and _TOPIC not in str(error))
    except NotFoundError:
        return False
    else:
        return False
    finally:
        await close_quietly(channel)


async def _try(opened: AbstractChannel, use: Use) -> None:
    channel = await opened.get_underlay_channel()
    match use.action:
        case Action.WRITE if use.key is not None:
            await channel.tx_select()
            await channel.basic_publish(b"", exchange=use.name, routing_key=use.key)
            await channel.tx_rollback()
        case Action.WRITE:
            await channel.exchange_unbind(destination=use.name, source=_NOWHERE, routing_key=_KEY)
        case Action.READ:
            await channel.exchange_unbind(destination=UP, source=use.name, routing_key=_KEY)
        case Action.CONFIGURE:
            if use.name in EXCHANGES:
                raise ConfigurationError(f"the exchange {use.name} exists: deleting it is no way to find out")
            await channel.exchange_delete(use.name, if_unused=True)
