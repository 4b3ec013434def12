"""What joining and revoking a worker cluster share: the member, its WorkerCluster, and the bounds of the broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slicebus.proto.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.kube.client import KubeClient
    from slicebus.proto.rights import Member


async def is_an_agents(api: "BrokerApi", user: str, manager: str) -> bool:
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


async def patch(client: "KubeClient", cluster: str, body: dict[str, object], *, subresource: str = "") -> bool:
    """Patch a WorkerCluster; False where there is none."""
    from slicebus.kube.client import MergePatch
    from slicebus.kube.resources import WORKERCLUSTERS

    try:
        await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(body), subresource=subresource)
    except NotFoundError:
        return False
    return True


async def wanted(client: "KubeClient", cluster: str, user: str | None) -> "Member":
    """The member by its WorkerCluster, which may have yet to be made."""
    from slicebus.cli.broker.members import member
    from slicebus.kube.resources import WORKERCLUSTERS
    from slicebus.manager.state.worker_clusters import WorkerCluster

    try:
        known = WorkerCluster.from_manifest(await client.get(WORKERCLUSTERS, member(cluster, cluster).name))
    except NotFoundError:
        return member(cluster, user or cluster)
    return member(cluster, user or known.user, known.uid)


async def put_bounds(api: "BrokerApi", members: "Sequence[Member]", manager: str, shards: int) -> None:
    """Give the broker its bounds, and the manager's user its limits: both grow with the fleet, and shrink with it."""
    from slicebus.cli.broker.members import definitions_of

    definitions = definitions_of(members, manager, shards)
    await api.put_bounds(definitions)
    if await api.tags_of(manager) is not None:
        await api.put_limits([limit for limit in definitions.rights.limits if limit.user == manager])
