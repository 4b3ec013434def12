"""Reads and makes the broker addresses that commands take."""

from typing import Annotated
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import typer

from slicebus.bus.access.address import CA_FILE
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.topology import MOST_SHARDS

MANAGER, VHOST = "manager", "slicebus"
"""The manager's user and the vhost, where no address names them."""

BrokerApiUrl = Annotated[
    str,
    typer.Option(
        "--broker-api",
        envvar="SLICEBUS_BROKER_API",
        show_envvar=True,
        help="The broker's management API as an administrator: https://USER:PASSWORD@HOST:15671.",
    ),
]
ManagerAmqpUrl = Annotated[
    str,
    typer.Option(
        envvar="AMQP_URL", show_envvar=True, help="The manager's address: its user, host and vhost are taken."
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        envvar=CA_FILE,
        show_envvar=True,
        metavar="FILE",
        help="The authority of the broker's certificates, if it is not a public one.",
    ),
]
Shards = Annotated[
    int,
    typer.Option(
        envvar="SLICEBUS_SHARDS", show_envvar=True, min=1, max=MOST_SHARDS, help="How many shards the manager has."
    ),
]


def manager_of(amqp_url: str | None) -> tuple[str, str]:
    """The user and the vhost of the manager's address."""
    parts = urlsplit(amqp_url or "")
    return unquote(parts.username or MANAGER), unquote(parts.path.removeprefix("/")) or VHOST


def address_for(user: str, password: str, *, broker: str, like: str) -> str:
    """The address of a broker for a user, with the vhost and the options of the address `like`.

    Raises ConfigurationError for a broker without a scheme or a host.
    """
    parts, own = urlsplit(broker), urlsplit(like)
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise ConfigurationError("the broker's address: use amqps://HOST:5671")
    host = parts.netloc.rpartition("@")[2]
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return urlunsplit(
        (parts.scheme, f"{login}@{host}", parts.path if parts.path.strip("/") else own.path, own.query, "")
    )
