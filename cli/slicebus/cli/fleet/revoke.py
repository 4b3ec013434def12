"""`slicebus fleet revoke`: takes a worker cluster's place on the broker and in the fleet away.

It closes the door in the other order than `join` opens it. It may be repeated after it was interrupted.
"""

from typing import TYPE_CHECKING

from slicebus.cli import screen
from slicebus.cli.broker.addresses import BrokerApiUrl, CaFile, ManagerAmqpUrl, Shards, manager_of
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.cli.consent import Consent
from slicebus.cli.fleet.changes import Cluster
from slicebus.cli.fleet.membership import is_an_agents, patch, put_bounds, wanted
from slicebus.proto.errors import NotFoundError

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.proto.rights import Member

_KIND = "WorkerCluster"


@with_options
def revoke(
    cluster: Cluster,
    broker_api: BrokerApiUrl,
    amqp_url: ManagerAmqpUrl,
    ca_file: CaFile = None,
    shards: Shards = 1,
    *,
    consent: Consent,
    access: ClusterAccess,
) -> None:
    """Put a cluster out of the fleet.

    It is not accepted any more, its broker user and its queues are removed, and its connections closed.
    Its name is then free for another cluster. Its jobs run on there; drain it before if they shall go elsewhere.
    It asks first; without a terminal it needs --yes.
    """
    from slicebus.cli.broker.api import BrokerApi
    from slicebus.cli.broker.members import accepted_members, member
    from slicebus.manager.decide.cluster.identity import unpinned
    from slicebus.proto.topology import queues_of_cluster

    member(cluster, cluster)
    manager, vhost = manager_of(amqp_url)

    async def found(client: "KubeClient") -> "tuple[Member, list[str]]":
        revoked = await wanted(client, cluster, None)
        async with BrokerApi.connect(broker_api, vhost, ca_file=ca_file) as api:
            if not await is_an_agents(api, revoked.user, manager):
                await _require(client, revoked)
            return revoked, queues_of_cluster(revoked.name, await api.queues())

    async def remove(client: "KubeClient") -> None:
        async with BrokerApi.connect(broker_api, vhost, ca_file=ca_file) as api:
            await patch(client, cluster, {"spec": {"accepted": False}})
            await api.remove_user(revoked.user)
            queues = queues_of_cluster(revoked.name, await api.queues())
            await api.wait_unconsumed(queues)
            for queue in queues:
                await api.remove_queue(queue)
            await patch(client, cluster, unpinned(), subresource="status")
            await put_bounds(api, await accepted_members(client), manager, shards)

    revoked, queues = run(access, found)
    consent.ask(
        f"this removes the broker user {revoked.user} and {len(queues)} queues with their messages, and cuts the agent "
        f"of {cluster} off"
    )
    if consent.dry_run:
        screen.say(f"would put {cluster} out: not accepted, without its broker user {revoked.user} and these queues:")
        for queue in queues:
            screen.say(f"  {queue}")
        return
    run(access, remove)
    screen.say(
        f"{cluster} is out: it is not accepted, its broker user and {len(queues)} queues are gone; its name is free"
    )


async def _require(client: "KubeClient", revoked: "Member") -> None:
    """Raise NotFoundError, with the nearest name, where there is no WorkerCluster. Its broker user is not there."""
    from slicebus.kube.resources import WORKERCLUSTERS

    known = [found["metadata"]["name"] for found in (await client.list(WORKERCLUSTERS)).items]
    if revoked.name not in known:
        raise NotFoundError(f"there is no broker user {revoked.user}, and {unknown(revoked.name, _KIND, known)}")
