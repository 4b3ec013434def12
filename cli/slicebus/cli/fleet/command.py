"""`slicebus fleet`: shows the worker clusters. What changes them is beside it."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, run_led
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.cluster.listing import Listing, as_yaml
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, Output, OutputFormat, Watch, with_options
from slicebus.cli.fleet.changes import cordon, drain, release, repin, uncordon
from slicebus.cli.fleet.join import join
from slicebus.cli.fleet.revoke import revoke
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
        _show(await _details(client, cluster, leaders), format.output)

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


for change in (join, revoke, viewer, cordon, uncordon, drain, release, repin):
    fleet.command()(change)


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


async def _details(client: "KubeClient", name: str, leaders: Leaders) -> "ClusterDetails":
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
        events, unread = (await client.list(EVENTS, namespace=DEFAULT_NAMESPACE)).items, ""
    except ForbiddenError:
        events, unread = [], f"you may not see those of namespace {DEFAULT_NAMESPACE}"
    sight = leaders.seen(reading.sight)
    jobs = in_order(JobRow.of(store, ref, sight) for ref in shown_refs(store))
    return details_of(
        manifest,
        jobs=jobs,
        granted=reading.granted_on(name),
        events=events,
        events_unread=unread,
        is_known=leaders.fleet_is_known,
    )
