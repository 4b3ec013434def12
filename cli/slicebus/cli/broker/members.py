"""Reads the worker clusters that a command is about: the accepted ones of the manager's cluster, or those that options
name."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.errors import ConfigurationError, NotFoundError
from slicebus.proto.messages import ClusterName, ClusterUid
from slicebus.proto.rights import Definitions, Member, Viewer, definitions

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient


async def accepted_members(client: "KubeClient") -> list[Member]:
    """The accepted WorkerClusters. One that is not accepted has no rights.

    There are none before the manager's chart is installed: the broker is set up first.
    """
    from slicebus.kube.resources import WORKERCLUSTERS

    try:
        listed = (await client.list(WORKERCLUSTERS)).items
    except NotFoundError:
        listed = []
    clusters = map(WorkerCluster.from_manifest, listed)
    return [member(cluster.name, cluster.user, cluster.uid) for cluster in clusters if cluster.accepted]


def named_members(texts: Iterable[str], users: Mapping[str, str]) -> list[Member]:
    """The clusters of options `NAME` or `NAME=UID`; `users` has the broker users that are named otherwise."""
    members = []
    for text in texts:
        name, _, uid = text.partition("=")
        members.append(member(name, users.get(name, name), ClusterUid(uid) if uid else None))
    if unknown := sorted(users.keys() - {known.name for known in members}):
        raise ConfigurationError(f"--agent-user {unknown[0]}: no such cluster is named")
    return members


def member(name: str, user: str, uid: ClusterUid | None = None) -> Member:
    """A member. Raises ConfigurationError for a name that is no DNS label."""
    try:
        return Member(ClusterName(name), user, uid)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def viewer(user: str) -> Viewer:
    """A viewer. Raises ConfigurationError for a name that is not one word."""
    try:
        return Viewer(user)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def definitions_of(members: Sequence[Member], manager: str, shards: int, viewers: Sequence[Viewer] = ()) -> Definitions:
    """The definitions for so many shards of the manager. Raises ConfigurationError where two clusters share a name, or
    two of all these a broker user."""
    try:
        return definitions(members, manager=manager, shards=shards, viewers=viewers)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
