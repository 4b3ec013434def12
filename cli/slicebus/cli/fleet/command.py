"""`slicebus fleet`: lists the worker clusters and changes how they are used."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, OutputFormat, with_options
from slicebus.cli.fleet.join import join, revoke
from slicebus.cli.leaders import Leaders, say_leaders

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

fleet = typer.Typer(
    help="The worker clusters: look, join, revoke, cordon, drain, release.",
    no_args_is_help=True,
)
fleet.command()(join)
fleet.command()(revoke)

Cluster = Annotated[str, typer.Argument(help="The WorkerCluster.")]


@fleet.command(name="list")
@with_options
def list_clusters(*, access: ClusterAccess, managers: ManagerPlace, format: OutputFormat) -> None:
    """List the worker clusters.

    Each has its status, its jobs, when its agent was last heard, and the room that is left for jobs. Exit status 1
    where no manager works: nobody knows then whether a cluster is connected.
    """
    from slicebus.cli.fleet.rows import COLUMNS, ClusterRow

    async def look(client: "KubeClient") -> tuple[Leaders, list[dict[str, Any]]]:
        return await say_leaders(client, managers.manager_namespace), await _clusters(client)

    found, clusters = run(access, look)
    rows = [ClusterRow.of(manifest, is_known=found.fleet_is_known) for manifest in clusters]
    Listing(COLUMNS, format).show(sorted(rows, key=lambda row: row.name), nothing="there is no WorkerCluster")
    found.exit()


@fleet.command()
@with_options
def release(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Release the deletes that are held for a cluster.

    Later ones are held again.
    """

    async def release_now(client: "KubeClient") -> int:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS
        from slicebus.manager.decide.cluster.worker_cluster_status import held_deletes, release_of
        from slicebus.slices.api.api_names import RELEASE_ANNOTATION

        status = (await client.get(WORKERCLUSTERS, cluster)).get("status", {})
        if release := release_of(status):
            body = {"metadata": {"annotations": {RELEASE_ANNOTATION: release}}}
            await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(body))
        return sum(hold["jobs"] for hold in held_deletes(status))

    count = run(access, release_now)
    screen.say(f"released {count} deletes on {cluster}" if count else f"no deletes are held for {cluster}")


@fleet.command()
@with_options
def repin(
    cluster: Annotated[str, typer.Argument(help="The WorkerCluster.")],
    uid: Annotated[str | None, typer.Option(help="The UID of its namespace kube-system.")] = None,
    *,
    access: ClusterAccess,
) -> None:
    """Bind a WorkerCluster to another cluster.

    By default it is the last one that used its name and was refused.
    """

    async def repin_now(client: "KubeClient") -> str | None:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS
        from slicebus.manager.decide.cluster.identity import other_uid, repinned
        from slicebus.proto.messages import ClusterUid

        bound_to = ClusterUid(uid) if uid else other_uid(await client.get(WORKERCLUSTERS, cluster))
        if bound_to:
            await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(repinned(bound_to)), subresource="status")
        return bound_to

    bound_to = run(access, repin_now)
    if not bound_to:
        screen.warn(f"no other cluster has used the name {cluster}: name one with --uid")
        raise typer.Exit(1)
    screen.say(f"{cluster} is bound to {bound_to}: restart its agent")


@fleet.command()
@with_options
def cordon(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Send no new jobs to a cluster. Its jobs run on, and may grow."""
    _set(cluster, access, cordoned=True)
    screen.say(f"{cluster} gets no new jobs")


@fleet.command()
@with_options
def uncordon(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Send jobs to a cluster again that was cordoned or drained."""
    _set(cluster, access, cordoned=False, drain=False)
    screen.say(f"{cluster} takes jobs")


@fleet.command()
@with_options
def drain(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Move all jobs off a cluster, some at a time.

    They stop, and start elsewhere at the size of their spec.
    """
    _set(cluster, access, drain=True)
    screen.say(f"{cluster} is being drained: `slicebus fleet list` shows how many jobs are left")


def _set(cluster: str, access: ClusterAccess, **spec: bool) -> None:
    async def patch(client: "KubeClient") -> None:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS

        await client.patch(WORKERCLUSTERS, cluster, None, MergePatch({"spec": spec}))

    run(access, patch)


async def _clusters(client: "KubeClient") -> list[dict[str, Any]]:
    from slicebus.kube.resources import WORKERCLUSTERS

    return (await client.list(WORKERCLUSTERS)).items
