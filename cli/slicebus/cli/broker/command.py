"""`slicebus broker`: prints what a broker needs."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from slicebus.cli import screen
from slicebus.cli.broker.addresses import Shards, manager_of
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.filters import option_of
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.rights import Definitions, Member

broker = typer.Typer(help="Print the users, rights and bounds that the broker needs.", no_args_is_help=True)


class Format(StrEnum):
    """How a broker takes definitions."""

    DEFINITIONS = "definitions"
    RABBITMQCTL = "rabbitmqctl"
    TOPOLOGY_OPERATOR = "topology-operator"


@broker.callback()
def _broker() -> None:
    """A group, although it has one command."""


@broker.command()
@with_options
def definitions(
    format: Annotated[
        Format,
        option_of(
            Format,
            "format",
            help="definitions, JSON for `rabbitmqctl import_definitions` and the management API; rabbitmqctl, a script "
            "of it; or topology-operator, objects for the Messaging Topology Operator.",
        ),
    ] = Format.DEFINITIONS,
    cluster: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=UID]", help="A worker cluster; by default every accepted WorkerCluster."),
    ] = None,
    agent_user: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER=USER", help="The broker user of an agent that is not named as its cluster."),
    ] = None,
    viewer: Annotated[
        list[str] | None, typer.Option(metavar="USER", help="A user that may read the journal, and nothing else.")
    ] = None,
    amqp_url: Annotated[
        str | None,
        typer.Option(envvar="AMQP_URL", show_envvar=True, help="The manager's address: its user and vhost are taken."),
    ] = None,
    manager: Annotated[str | None, typer.Option(help="The manager's user, where there is no AMQP_URL.")] = None,
    vhost: Annotated[str | None, typer.Option(help="The vhost, where there is no AMQP_URL.")] = None,
    passwords: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Lines USER=PASSWORD. The definitions then have the users, with salted hashes of these passwords.",
        ),
    ] = None,
    rabbitmq: Annotated[
        str, typer.Option(help="The RabbitmqCluster that the operator's objects refer to.")
    ] = "rabbitmq",
    shards: Shards = 1,
    *,
    access: ClusterAccess,
) -> None:
    """Print what the broker needs for the manager and these clusters. A password is never printed.

    Users without a password in --passwords are not in the definitions: RabbitMQ would take away the one that they have.
    """
    from slicebus.cli.broker.formats import as_definitions, as_manifests, as_shell
    from slicebus.cli.broker.members import definitions_of
    from slicebus.cli.broker.members import viewer as viewer_of

    user, where = manager_of(amqp_url)
    user, where = manager or user, vhost or where
    if passwords is not None and format is not Format.DEFINITIONS:
        raise ConfigurationError("--passwords is for --format definitions: the others never contain a password's hash")
    members, viewers = _members(cluster, agent_user, access), [viewer_of(name) for name in viewer or ()]
    definitions = definitions_of(members, user, shards, viewers)
    match format:
        case Format.RABBITMQCTL:
            screen.say_lines(as_shell(definitions, where))
        case Format.TOPOLOGY_OPERATOR:
            screen.say_lines(as_manifests(definitions, where, rabbitmq=rabbitmq))
        case Format.DEFINITIONS:
            hashes = _hashes(definitions, passwords)
            left_out = [name for name in definitions.users if name not in hashes]
            if left_out:
                screen.warn(f"without these users, which have to be there: {', '.join(left_out)}")
            document = as_definitions(definitions, where, hashes)
            screen.say_lines(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


def _members(clusters: list[str] | None, agent_users: list[str] | None, access: ClusterAccess) -> list[Member]:
    from slicebus.cli.broker.members import accepted_members, named_members

    if clusters is not None:
        users = dict(_pair(text, "--agent-user", "CLUSTER=USER") for text in agent_users or ())
        return named_members(clusters, users)
    if agent_users:
        raise ConfigurationError("--agent-user is for --cluster: a WorkerCluster has its brokerUser")
    return run(access, accepted_members, may_be_bare=True)


def _hashes(definitions: Definitions, source: str | None) -> dict[str, str]:
    """The hashes of the passwords in a file. Raises ConfigurationError, without the text of a line."""
    from slicebus.cli.broker.formats import SALT_BYTES, password_hash

    if source is None:
        return {}
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--passwords {source}: {getattr(error, 'strerror', None) or 'not text'}") from error
    hashes: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        user, _, password = line.partition("=")
        if not (user and password):
            raise ConfigurationError(f"--passwords {source}, line {number}: use USER=PASSWORD")
        if user not in definitions.users:
            raise ConfigurationError(f"--passwords {source}, line {number}: no such user is defined")
        hashes[user] = password_hash(password, os.urandom(SALT_BYTES))
    return hashes


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not (name and value):
        raise ConfigurationError(f"{option} {text}: use {form}")
    return name, value
