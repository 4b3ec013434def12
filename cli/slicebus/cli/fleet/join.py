"""`slicebus fleet join`: gives a worker cluster its place on the broker and in the fleet.

It prepares the broker before the cluster is accepted. It may be repeated after it was interrupted.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.broker.addresses import BrokerApiUrl, CaFile, ManagerAmqpUrl, Shards, address_for, manager_of
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.cli.fleet.address_file import check_writable, write
from slicebus.cli.fleet.membership import is_an_agents, patch, put_bounds, wanted
from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.kube.client import KubeClient
    from slicebus.proto.rights import Member

PASSWORD_BYTES = 32
_ADDRESS, _AUTHORITY = "slicebus-amqp", "slicebus-amqp-ca"
"""The names of Secrets on the worker cluster."""


@with_options
def join(
    cluster: Annotated[str, typer.Argument(help="The WorkerCluster: 1 to 63 of a-z, 0-9 and -.")],
    broker_api: BrokerApiUrl,
    amqp_url: ManagerAmqpUrl,
    broker_user: Annotated[
        str | None, typer.Option(help="The agent's broker user; by default the one that the WorkerCluster has.")
    ] = None,
    agent_address: Annotated[
        str | None, typer.Option(help="The broker as the agent reaches it, without a user: amqps://HOST:5671.")
    ] = None,
    ca_file: CaFile = None,
    out: Annotated[
        Path | None, typer.Option(help="The new file for the agent's address; by default CLUSTER.env.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite that file, if it has an older address of the same broker user.")
    ] = False,
    new_password: Annotated[
        bool, typer.Option("--new-password", help="Give a broker user that is there already another password.")
    ] = False,
    namespace: Annotated[str, typer.Option(help="Where the agent shall run, for the printed commands.")] = (
        "slicebus-system"
    ),
    image: Annotated[
        str, typer.Option(help="The agent's image, for the printed commands.")
    ] = "REGISTRY/slicebus-agent",
    shards: Shards = 1,
    *,
    access: ClusterAccess,
) -> None:
    """Let a cluster join, and print how to install its agent.

    It gives the cluster a broker user with its rights, and accepts it. The password is generated. It is in the new
    file only, which nobody else can read.
    """
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.cli.broker.members import member as member_of

    member_of(cluster, broker_user or cluster)
    manager, vhost = manager_of(amqp_url)
    broker = agent_address or amqp_url
    _check_authority(ca_file)
    file = out or Path(f"{cluster}.env")

    async def joined(client: "KubeClient") -> bool:
        member = await wanted(client, cluster, broker_user)
        async with BrokerApi.connect(broker_api, vhost, ca_file=ca_file) as api:
            gets_password = not await is_an_agents(api, member.user, manager) or new_password
            if gets_password:
                check_writable(file, member.user, force=force)
                password = secrets.token_urlsafe(PASSWORD_BYTES)
                # The file is written first: a password that was set and never written would lock the agent out.
                address = address_for(member.user, password, broker=broker, like=amqp_url)
                write(file, f"url={address}\n")
                await api.put_user(member.user, password)
            await _let_in(client, api, member, manager, shards)
        await _accept(client, member)
        return gets_password

    if not run(access, joined):
        screen.warn(f"the broker user of {cluster} keeps its password: --new-password gives it another")
    authority = ca_file if broker.startswith("amqps:") else None
    printed = steps(cluster, manager, namespace=namespace, image=image, file=file, authority=authority)
    screen.say_lines("\n".join(printed))


def steps(
    cluster: str, manager: str, *, namespace: str, image: str, file: Path, authority: str | None
) -> Iterator[str]:
    """The next steps of the user, as in README.md. `authority` is a file, where it is not a public one."""
    of = f"-n {shell_quote(namespace)}"
    names = (("cluster", cluster), ("managerUser", manager), ("image.repository", image))
    settings = [f"--set-string {name}={shell_quote(value)}" for name, value in names]
    settings.append(f"--set amqp.existingSecret.name={_ADDRESS}")
    if authority:
        settings.append(f"--set amqp.caSecret.name={_AUTHORITY}")
    yield f"{cluster} may join. On its cluster, with {'these files' if authority else 'this file'} and the charts:"
    yield ""
    yield f"  kubectl create namespace {shell_quote(namespace)}"
    yield f"  kubectl create secret generic {_ADDRESS} {of} --from-env-file={shell_quote(str(file))}"
    if authority:
        yield f"  kubectl create secret generic {_AUTHORITY} {of} --from-file=ca.crt={shell_quote(authority)}"
    yield f"  helm install slicebus-agent charts/slicebus-agent {of} \\"
    yield " \\\n".join(f"    {' '.join(settings[at : at + 2])}" for at in range(0, len(settings), 2))


def _check_authority(file: str | None) -> None:
    """Raise ConfigurationError for a file that the printed command could not use."""
    try:
        if file is not None and "-----BEGIN CERTIFICATE-----" not in Path(file).read_text():
            raise ConfigurationError(f"--ca-file {file}: it has no certificate in PEM")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--ca-file {file}: {getattr(error, 'strerror', None) or 'not text'}") from error


async def _let_in(client: "KubeClient", api: "BrokerApi", member: "Member", manager: str, shards: int) -> None:
    """Give the user of a cluster its rights, and the broker its bounds for the whole fleet."""
    from slicebus.cli.broker.members import accepted_members
    from slicebus.proto.rights import agent_rights

    others = [other for other in await accepted_members(client) if other.name != member.name]
    await put_bounds(api, [*others, member], manager, shards)
    await api.put_rights(agent_rights(member, shards=shards))


async def _accept(client: "KubeClient", member: "Member") -> None:
    from slicebus.kube.resources import WORKERCLUSTERS

    spec: dict[str, object] = {"accepted": True, "brokerUser": member.user if member.user != member.name else None}
    if not await patch(client, member.name, {"spec": spec}):
        manifest = {
            "apiVersion": WORKERCLUSTERS.api_version,
            "kind": WORKERCLUSTERS.kind,
            "metadata": {"name": member.name},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
        await client.create(WORKERCLUSTERS, manifest)
