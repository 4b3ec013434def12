"""`slicebus fleet`: lists the worker clusters and changes how they are used."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from slicebus.cli import screen
from slicebus.cli.dead_letters.pages import age_text
from slicebus.cli.fleet.join import join, revoke
from slicebus.cli.leaders import SYSTEM, Leaders, ManagerNamespace, leaders
from slicebus.cli.manager_client import Kubeconfig, with_client

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.manager.state.worker_clusters import WorkerCluster

fleet = typer.Typer(
    help="List the worker clusters, let one join, put one out, cordon and drain them, release held deletes, and repin "
    "a name.",
    no_args_is_help=True,
)
fleet.command()(join)
fleet.command()(revoke)

Cluster = Annotated[str, typer.Argument(help="The WorkerCluster.")]
_TITLES = ("CLUSTER", "STATUS", "JOBS", "SEEN", "ROOM")


@fleet.command(name="list")
def list_clusters(kubeconfig: Kubeconfig = None, manager_namespace: ManagerNamespace = SYSTEM) -> None:
    """List every WorkerCluster with its status, jobs, when it was last seen, and the room left for jobs. Exit status 1
    where no manager works: nobody knows then whether a cluster is connected."""
    from slicebus.ambient.clock import now

    async def look(client: "KubeClient") -> tuple[Leaders, list[dict[str, Any]]]:
        return await leaders(client, manager_namespace), await _clusters(client)

    found, clusters = asyncio.run(with_client(kubeconfig, look))
    found.say()
    table = Table(*_TITLES, box=None, pad_edge=False, header_style="bold")
    table.columns[1].max_width = 16
    for manifest in sorted(clusters, key=lambda manifest: str(manifest["metadata"]["name"])):
        cells = row(manifest, now(), is_known=found.fleet_is_known)
        table.add_row(*(Text("\n").join(map(screen.styled, cell.split("\n"))) for cell in cells))
    screen.show(table)
    found.exit()


@fleet.command()
def release(cluster: Cluster, kubeconfig: Kubeconfig = None) -> None:
    """Release the deletes that are held for a cluster now; later ones are held again."""

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

    count = asyncio.run(with_client(kubeconfig, release_now))
    screen.say(f"released {count} deletes on {cluster}" if count else f"no deletes are held for {cluster}")


@fleet.command()
def repin(
    cluster: Annotated[str, typer.Argument(help="The WorkerCluster.")],
    uid: Annotated[str | None, typer.Option(help="The UID of its namespace kube-system.")] = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Bind a WorkerCluster to another cluster: the last one that used its name and was refused."""

    async def repin_now(client: "KubeClient") -> str | None:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS
        from slicebus.manager.decide.cluster.identity import other_uid, repinned
        from slicebus.proto.messages import ClusterUid

        bound_to = ClusterUid(uid) if uid else other_uid(await client.get(WORKERCLUSTERS, cluster))
        if bound_to:
            await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(repinned(bound_to)), subresource="status")
        return bound_to

    bound_to = asyncio.run(with_client(kubeconfig, repin_now))
    if not bound_to:
        screen.warn(f"no other cluster has used the name {cluster}: name one with --uid")
        raise typer.Exit(1)
    screen.say(f"{cluster} is bound to {bound_to}: restart its agent")


@fleet.command()
def cordon(cluster: Cluster, kubeconfig: Kubeconfig = None) -> None:
    """Send no new jobs to a cluster. Its jobs run on, and may grow."""
    _set(cluster, kubeconfig, cordoned=True)
    screen.say(f"{cluster} gets no new jobs")


@fleet.command()
def uncordon(cluster: Cluster, kubeconfig: Kubeconfig = None) -> None:
    """Send jobs to a cluster again that was cordoned or drained."""
    _set(cluster, kubeconfig, cordoned=False, drain=False)
    screen.say(f"{cluster} takes jobs")


@fleet.command()
def drain(cluster: Cluster, kubeconfig: Kubeconfig = None) -> None:
    """Move all jobs off a cluster, some at a time. They stop, and start elsewhere at the size of their spec."""
    _set(cluster, kubeconfig, drain=True)
    screen.say(f"{cluster} is being drained: `slicebus fleet list` shows how many jobs are left")


def _set(cluster: str, kubeconfig: str | None, **spec: bool) -> None:
    async def patch(client: "KubeClient") -> None:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS

        await client.patch(WORKERCLUSTERS, cluster, None, MergePatch({"spec": spec}))

    asyncio.run(with_client(kubeconfig, patch))


async def _clusters(client: "KubeClient") -> list[dict[str, Any]]:
    from slicebus.kube.resources import WORKERCLUSTERS

    return (await client.list(WORKERCLUSTERS)).items


def row(manifest: dict[str, Any], now: datetime, *, is_known: bool = True) -> list[str]:
    """A WorkerCluster as a row of the table. Each flavor's room is a line. `is_known`: a manager works, who would have
    written that the cluster has fallen silent."""
    from slicebus.manager.state.worker_clusters import WorkerCluster

    cluster, status = WorkerCluster.from_manifest(manifest), manifest.get("status", {})
    heard = status.get("lastHeartbeatTime")
    return [
        cluster.name,
        _status_of(cluster, status, is_known=is_known),
        str(status.get("jobs", 0)),
        f"{age_text(now - datetime.fromisoformat(heard))} ago" if heard else "never",
        status.get("room", "").replace("; ", "\n"),
    ]


def _status_of(cluster: "WorkerCluster", status: dict[str, Any], *, is_known: bool) -> str:
    from slicebus.manager.decide.cluster.worker_cluster_status import held_deletes

    held, out_of_sync = sum(hold["jobs"] for hold in held_deletes(status)), status.get("outOfSync", 0)
    lag_s = status.get("lagSeconds", 0)
    states = [
        "unknown" if not is_known else "connected" if cluster.connected else "silent",
        *(["not accepted"] if not cluster.accepted else []),
        *(["given up"] if cluster.given_up else []),
        *(["drained"] if cluster.draining else ["cordoned"] if cluster.cordoned else []),
        *([f"{held} deletes held"] if held else []),
        *([f"{out_of_sync} out of sync"] if out_of_sync else []),
        *([f"{lag_s} s behind"] if lag_s else []),
    ]
    return ", ".join(states)
