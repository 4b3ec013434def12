"""`slicebus fleet join` and `revoke`: give a worker cluster its place on the broker and in the fleet, and take it away.

`join` prepares the broker before the cluster is accepted, and `revoke` closes the door in the other order. Each may be
repeated after it was interrupted.
"""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.broker.addresses import BrokerApiUrl, ManagerAmqpUrl, Shards, address_for, manager_of
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.proto.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.kube.client import KubeClient
    from slicebus.proto.rights import Member

Cluster = Annotated[str, typer.Argument(help="The WorkerCluster.")]
PASSWORD_BYTES = 32
_COMMANDS = """{cluster} may join. On its cluster, with this file and the charts:

  kubectl create namespace {namespace}
  kubectl create secret generic slicebus-amqp -n {namespace} --from-env-file={file}
  helm install slicebus-agent charts/slicebus-agent -n {namespace} \\
    --set-string cluster={cluster} --set-string managerUser={manager} \\
    --set-string image.repository={image} --set amqp.existingSecret.name=slicebus-amqp"""
"""The next steps of the user, as in README.md."""


@with_options
def join(
    cluster: Cluster,
    broker_api: BrokerApiUrl,
    amqp_url: ManagerAmqpUrl,
    broker_user: Annotated[
        str | None, typer.Option(help="The agent's broker user; by default the one that the WorkerCluster has.")
    ] = None,
    agent_address: Annotated[
        str | None, typer.Option(help="The broker as the agent reaches it, without a user: amqps://HOST:5671.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The new file for the agent's address; by default CLUSTER.env.")
    ] = None,
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
    manager, vhost = manager_of(amqp_url)
    file = out or Path(f"{cluster}.env")

    async def joined(client: "KubeClient") -> bool:
        from slicebus.cli.broker.api import BrokerApi

        member = await _wanted(client, cluster, broker_user)
        async with BrokerApi.connect(broker_api, vhost) as api:
            is_there = await _is_an_agents(api, member.user, manager)
            if new_password or not is_there:
                password = secrets.token_urlsafe(PASSWORD_BYTES)
                address = address_for(member.user, password, broker=agent_address or amqp_url, like=amqp_url)
                # The file is written first: a password that was set and never written would lock the agent out.
                write_new(file, f"url={address}\n")
                await api.put_user(member.user, password)
            await _let_in(client, api, member, manager, shards)
        await _accept(client, member)
        return new_password or not is_there

    if not run(access, joined):
        screen.warn(f"the broker user of {cluster} keeps its password: --new-password gives it another")
    values = {"cluster": cluster, "namespace": namespace, "file": file, "manager": manager, "image": image}
    screen.say_lines(_COMMANDS.format(**{name: shell_quote(str(value)) for name, value in values.items()}))


@with_options
def revoke(
    cluster: Cluster,
    broker_api: BrokerApiUrl,
    amqp_url: ManagerAmqpUrl,
    shards: Shards = 1,
    *,
    access: ClusterAccess,
) -> None:
    """Put a cluster out of the fleet.

    It is not accepted any more, its broker user and its queues are removed, and its connections closed.
    Its name is then free for another cluster. Its jobs run on there; drain it before if they shall go elsewhere.
    """
    manager, vhost = manager_of(amqp_url)

    async def revoked(client: "KubeClient") -> int:
        from slicebus.cli.broker.api import BrokerApi
        from slicebus.cli.broker.members import accepted_members
        from slicebus.manager.decide.cluster.identity import unpinned
        from slicebus.proto.topology import queues_of_cluster

        member = await _wanted(client, cluster, None)
        async with BrokerApi.connect(broker_api, vhost) as api:
            is_there = await _is_an_agents(api, member.user, manager)
            is_known = await _patch(client, cluster, {"spec": {"accepted": False}})
            if not (is_there or is_known):
                raise NotFoundError(f"there is neither a WorkerCluster {cluster} nor a broker user {member.user}")
            await api.remove_user(member.user)
            queues = queues_of_cluster(member.name, await api.queues())
            for queue in queues:
                await api.remove_queue(queue)
            await _patch(client, cluster, unpinned(), subresource="status")
            await _put_bounds(api, await accepted_members(client), manager, shards)
        return len(queues)

    count = run(access, revoked)
    screen.say(f"{cluster} is out: it is not accepted, its broker user and {count} queues are gone; its name is free")


async def _is_an_agents(api: "BrokerApi", user: str, manager: str) -> bool:
    """Whether the broker has the user. Raises ConfigurationError for a user that cannot be an agent's."""
    from slicebus.cli.broker.compare import is_viewers

    tags = await api.tags_of(user)
    reads = tags is not None and any(map(is_viewers, await api.permissions_of(user)))
    if tags or reads or user == manager:
        whose = "the manager's" if user == manager else f"that of a broker's {', '.join(tags or ())}"
        whose = "a viewer's, whose password others have" if reads else whose
        raise ConfigurationError(
            f"the broker user {user} is {whose}: give the cluster one of its own, by --broker-user"
        )
    return tags is not None


async def _patch(client: "KubeClient", cluster: str, body: dict[str, object], *, subresource: str = "") -> bool:
    """Patch a WorkerCluster; False where there is none."""
    from slicebus.kube.client import MergePatch
    from slicebus.kube.resources import WORKERCLUSTERS

    try:
        await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(body), subresource=subresource)
    except NotFoundError:
        return False
    return True


async def _wanted(client: "KubeClient", cluster: str, user: str | None) -> "Member":
    """The member by its WorkerCluster, which may have yet to be made."""
    from slicebus.cli.broker.members import member
    from slicebus.kube.resources import WORKERCLUSTERS
    from slicebus.manager.state.worker_clusters import WorkerCluster

    try:
        known = WorkerCluster.from_manifest(await client.get(WORKERCLUSTERS, member(cluster, cluster).name))
    except NotFoundError:
        return member(cluster, user or cluster)
    return member(cluster, user or known.user, known.uid)


async def _let_in(client: "KubeClient", api: "BrokerApi", member: "Member", manager: str, shards: int) -> None:
    """Give the user of a cluster its rights, and the broker its bounds for the whole fleet."""
    from slicebus.cli.broker.members import accepted_members
    from slicebus.proto.rights import agent_rights

    others = [other for other in await accepted_members(client) if other.name != member.name]
    await _put_bounds(api, [*others, member], manager, shards)
    await api.put_rights(agent_rights(member, shards=shards))


async def _put_bounds(api: "BrokerApi", members: "Sequence[Member]", manager: str, shards: int) -> None:
    """Give the broker its bounds, and the manager's user its limits: both grow with the fleet, and shrink with it."""
    from slicebus.cli.broker.members import definitions_of

    definitions = definitions_of(members, manager, shards)
    await api.put_bounds(definitions)
    if await api.tags_of(manager) is not None:
        await api.put_limits([limit for limit in definitions.rights.limits if limit.user == manager])


async def _accept(client: "KubeClient", member: "Member") -> None:
    from slicebus.kube.resources import WORKERCLUSTERS

    spec: dict[str, object] = {"accepted": True, "brokerUser": member.user if member.user != member.name else None}
    if not await _patch(client, member.name, {"spec": spec}):
        manifest = {
            "apiVersion": WORKERCLUSTERS.api_version,
            "kind": WORKERCLUSTERS.kind,
            "metadata": {"name": member.name},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }
        await client.create(WORKERCLUSTERS, manifest)


def write_new(file: Path, text: str) -> None:
    """Write a new file that only its owner can read. Raises ConfigurationError where there is one."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}; move it away, or name another with --out") from error
