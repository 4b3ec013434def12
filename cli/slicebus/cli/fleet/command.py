"""`slicebus fleet`: lists the worker clusters and changes how they are used."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, run, run_led
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.cluster.listing import Listing, as_yaml
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, Output, OutputFormat, Watch, with_options
from slicebus.cli.fleet.join import join, revoke
from slicebus.cli.fleet.viewer import viewer
from slicebus.cli.leaders import Leaders
from slicebus.proto.errors import ForbiddenError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from slicebus.cli.fleet.details import ClusterDetails
    from slicebus.kube.client import KubeClient

fleet = typer.Typer(
    help="The worker clusters: look, join, revoke, cordon, drain, release.",
    no_args_is_help=True,
)
fleet.command()(join)
fleet.command()(revoke)
fleet.command()(viewer)

Cluster = Annotated[str, typer.Argument(help="The WorkerCluster.")]


@fleet.command(name="list")
@with_options
def list_clusters(*, access: ClusterAccess, managers: ManagerPlace, format: OutputFormat, watch: Watch) -> None:
    """List the worker clusters.

    Each has its status, its jobs, when its agent was last heard, and the room that is left for jobs. Exit status 1
    where no manager works: nobody knows then whether a cluster is connected.
    """
    run_led(
        access,
        managers,
        lambda client, leaders: _list(client, format, watch, is_known=leaders.fleet_is_known),
    )


@fleet.command()
@with_options
def get(cluster: Cluster, *, access: ClusterAccess, managers: ManagerPlace, format: OutputFormat) -> None:
    """Show everything that is known of a worker cluster.

    Its connection, the room by flavor, its jobs, how far its agent is behind, held deletes, conditions and Events. Exit
    status 1 for an unknown one, and where no manager works: nobody knows then whether it is connected.
    """

    async def show(client: "KubeClient", leaders: Leaders) -> None:
        _show(await _details(client, cluster, is_known=leaders.fleet_is_known), format.output)

    with absence_told():
        run_led(access, managers, show)


def _show(details: "ClusterDetails", output: Output) -> None:
    match output:
        case Output.JSON:
            screen.say_json(msgspec.json.encode(details))
        case Output.YAML:
            screen.say_lines(as_yaml(msgspec.to_builtins(details)))
        case Output.NAME:
            screen.say(f"workercluster.slicebus.dev/{details.name}")
        case Output.TABLE | Output.WIDE:
            from slicebus.cli.fleet.details_page import page

            for line in page(details):
                screen.say(line)


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


async def _list(client: "KubeClient", format: OutputFormat, watch: Watch, *, is_known: bool) -> None:
    from slicebus.cli.cluster.reading import read
    from slicebus.cli.cluster.showing import show
    from slicebus.cli.fleet.rows import COLUMNS, ClusterRow
    from slicebus.kube.resources import WORKERCLUSTERS

    reading, listing = await read(client, only=[WORKERCLUSTERS]), Listing(COLUMNS, format)
    clusters = reading.store.clusters

    def rows() -> "Mapping[Hashable, ClusterRow]":
        found = [ClusterRow.of(manifest, is_known=is_known) for manifest in clusters.all()]
        return {row.name: row for row in sorted(found, key=lambda row: row.name)}

    await show(
        client,
        reading,
        rows,
        everything=lambda rows: listing.show(rows, nothing="there is no WorkerCluster"),
        changes=listing.show_changed,
        watch=watch.watch,
    )


async def _details(client: "KubeClient", name: str, *, is_known: bool) -> "ClusterDetails":
    """The details of a WorkerCluster. Raises NotFoundError with the nearest name."""
    from slicebus.cli.cluster.reading import read
    from slicebus.cli.cluster.showing import say_first
    from slicebus.cli.fleet.details import details_of
    from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs
    from slicebus.kube.client import DEFAULT_NAMESPACE
    from slicebus.kube.resources import EVENTS, WORKERCLUSTERS

    reading = await read(client, fallback=client.namespace)
    say_first(reading)
    if WORKERCLUSTERS in reading.hidden:
        raise ForbiddenError("you may not see WorkerClusters")
    store = reading.store
    manifest = store.clusters.get(None, name)
    if manifest is None:
        known = [cluster["metadata"]["name"] for cluster in store.clusters.all()]
        raise NotFoundError(unknown(name, "WorkerCluster", known) if known else f"there is no WorkerCluster {name}")
    try:
        events = (await client.list(EVENTS, namespace=DEFAULT_NAMESPACE)).items
    except ForbiddenError:
        events = []
    jobs = in_order(JobRow.of(store, ref, reading.sight) for ref in shown_refs(store))
    granted = store.quotas.ledger.granted.get(name, {})
    return details_of(manifest, jobs=jobs, granted=granted, events=events, is_known=is_known)
