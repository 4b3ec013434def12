"""`slicebus fleet viewer`: gives somebody a broker user that reads the journal and may do nothing else, and takes it
away."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.bus.access.address import CA_FILE, URL
from slicebus.cli import screen
from slicebus.cli.broker.addresses import BrokerApiUrl, CaFile, ManagerAmqpUrl, address_for, manager_of
from slicebus.cli.fleet.address_file import write_new
from slicebus.cli.fleet.join import PASSWORD_BYTES
from slicebus.proto.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.proto.rights import Viewer

_COMMANDS = """{name} may read the journal, and nothing else. With this file:

  . {file}
  slicebus trace JOB
  slicebus journal tail
  slicebus jobs -A --at 03:00"""
"""What one does with it, as in docs/operations.md."""


def viewer(
    name: Annotated[str, typer.Argument(help="Who shall read: the name of the broker user.")],
    broker_api: BrokerApiUrl,
    amqp_url: ManagerAmqpUrl,
    address: Annotated[
        str | None, typer.Option(help="The broker as the viewer reaches it, without a user: amqps://HOST:5671.")
    ] = None,
    ca_file: CaFile = None,
    out: Annotated[Path | None, typer.Option(help="The new file for the address; by default NAME.env.")] = None,
    new_password: Annotated[
        bool, typer.Option("--new-password", help="Give a viewer that is there already another password.")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take the user away, and close its connections.")] = False,
) -> None:
    """Let somebody read the journal, and do nothing else.

    It makes a broker user for `slicebus trace`, `journal`, and `jobs` and `queues --at`. The password is generated. It
    is in the new file only, which nobody else can read. No cluster is asked.
    """
    from slicebus.cli.broker.members import viewer as viewer_of

    wanted, (manager, vhost) = viewer_of(name), manager_of(amqp_url)
    if remove:
        _run(broker_api, vhost, ca_file, lambda api: _removed(api, wanted, manager, vhost))
        screen.say(f"{name} may not read the journal any more: its broker user is gone")
        return
    file = out or Path(f"{name}.env")

    async def made(api: "BrokerApi") -> bool:
        from slicebus.proto.rights import viewer_rights

        is_there = await _is_a_viewers(api, wanted, manager, vhost)
        if new_password or not is_there:
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            url = address_for(name, password, broker=address or amqp_url, like=amqp_url)
            # Before the user has it: a password that was set and never written would be lost.
            write_new(file, f"export {URL}={shell_quote(url)}\n{_authority(ca_file)}")
            await api.put_user(name, password)
        await api.put_rights(viewer_rights(wanted))
        return new_password or not is_there

    if not _run(broker_api, vhost, ca_file, made):
        screen.warn(f"the broker user of {name} keeps its password: --new-password gives it another")
    where = str(file) if file.is_absolute() else f"./{file}"
    screen.say_lines(_COMMANDS.format(name=name, file=shell_quote(where)))


def _authority(file: str | None) -> str:
    """The line that names the broker's certificate authority, where the manager's address needs one."""
    return f"export {CA_FILE}={shell_quote(file)}\n" if file else ""


def _run(broker_api: str, vhost: str, ca_file: str | None, act: "Callable[[BrokerApi], Awaitable[bool]]") -> bool:
    from slicebus.cli.broker.api import BrokerApi

    async def with_api() -> bool:
        async with BrokerApi.connect(broker_api, vhost, ca_file=ca_file) as api:
            return await act(api)

    return asyncio.run(with_api())


async def _removed(api: "BrokerApi", viewer: "Viewer", manager: str, vhost: str) -> bool:
    if not await _is_a_viewers(api, viewer, manager, vhost):
        raise NotFoundError(f"there is no viewer {viewer.user}")
    await api.remove_user(viewer.user)
    return True


async def _is_a_viewers(api: "BrokerApi", viewer: "Viewer", manager: str, vhost: str) -> bool:
    """Whether the broker has the user. Raises ConfigurationError for one that may do something else, in any vhost: it
    is somebody else's. One without rights is a viewer's whose making was interrupted."""
    from slicebus.cli.broker.compare import is_viewers

    user, tags = viewer.user, await api.tags_of(viewer.user)
    if tags is None and user != manager:
        return False
    permissions = await api.permissions_of(user) if tags is not None else []
    if user == manager or tags or not all(found["vhost"] == vhost and is_viewers(found) for found in permissions):
        raise ConfigurationError(f"the broker user {user} is no viewer's: it has other rights; name another")
    return True
