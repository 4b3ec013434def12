"""The commands that change how a worker cluster is used: cordon, uncordon, drain, release, repin."""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.filters import unknown
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.cli.consent import Consent
from slicebus.proto.errors import NotFoundError

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.proto.messages import ClusterUid, Manifest

Cluster = Annotated[str, typer.Argument(help="The WorkerCluster.")]


@with_options
def cordon(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Send no new jobs to a cluster. Its jobs run on, and may grow."""
    _set(cluster, access, cordoned=True)
    screen.say(f"{cluster} gets no new jobs")


@with_options
def uncordon(cluster: Cluster, *, access: ClusterAccess) -> None:
    """Send jobs to a cluster again that was cordoned or drained."""
    _set(cluster, access, cordoned=False, drain=False)
    screen.say(f"{cluster} takes jobs")


@with_options
def drain(cluster: Cluster, *, consent: Consent, access: ClusterAccess) -> None:
    """Move all jobs off a cluster, some at a time.

    They stop, and start elsewhere at the size of their spec. It asks first; without a terminal it needs --yes.
    """
    found = run(access, lambda client: worker_cluster(client, cluster))
    jobs = found.get("status", {}).get("jobs", 0)
    consent.ask(f"this stops the {jobs} jobs of {cluster}; they start elsewhere, at the size of their spec")
    if consent.dry_run:
        screen.say(f"would drain {cluster}: its {jobs} jobs stop, and start elsewhere at the size of their spec")
        return
    _set(cluster, access, drain=True)
    screen.say(f"{cluster} is being drained: `slicebus fleet list` shows how many jobs are left")


@with_options
def release(cluster: Cluster, *, consent: Consent, access: ClusterAccess) -> None:
    """Release the deletes that are held for a cluster.

    Those of now; later ones are held again. Of more than a thousand jobs that should not be there the others are looked
    at when these are gone, and held: it says how many. It asks first; without a terminal it needs --yes.
    """
    from slicebus.manager.decide.cluster.worker_cluster_status import held_deletes, release_of
    from slicebus.slices.api.api_names import RELEASE_ANNOTATION

    status = run(access, lambda client: worker_cluster(client, cluster)).get("status", {})
    held, release = sum(hold["jobs"] for hold in held_deletes(status)), release_of(status)
    unseen = sum(hold.get("unseen", 0) for hold in held_deletes(status))
    if not release:
        screen.say(f"no deletes are held for {cluster}")
        return
    consent.ask(f"this deletes what {cluster} still has of {held} jobs")
    if not consent.dry_run:
        _patch(cluster, access, {"metadata": {"annotations": {RELEASE_ANNOTATION: release}}})
    screen.say(f"{'would release' if consent.dry_run else 'released'} {held} deletes on {cluster}")
    if unseen:
        screen.say(
            f"up to {unseen} more jobs are looked at when these are gone, and their deletes held: wait until "
            f"slicebus fleet get {cluster} shows them, then release them too"
        )


@with_options
def repin(
    cluster: Cluster,
    uid: Annotated[str | None, typer.Option(help="The UID of its namespace kube-system.")] = None,
    *,
    consent: Consent,
    access: ClusterAccess,
) -> None:
    """Bind a WorkerCluster to another cluster.

    By default it is the last one that used its name and was refused. Where another cluster has the name and loses it,
    it asks first, and without a terminal it needs --yes. It refuses a cluster that another WorkerCluster is bound to.
    """
    from slicebus.manager.decide.cluster.identity import other_uid, repinned
    from slicebus.manager.state.worker_clusters import pinned_uid
    from slicebus.proto.messages import ClusterUid

    found = run(access, lambda client: worker_cluster(client, cluster))
    new, old = ClusterUid(uid) if uid else other_uid(found), pinned_uid(found)
    if not new:
        screen.warn(f"no other cluster has used the name {cluster}: name one with --uid")
        raise typer.Exit(1)
    other = run(access, lambda client: _bound_to(client, new, other_than=cluster))
    if other is not None:
        screen.warn(f"{new} has the name {other}: take it away with slicebus fleet revoke {other}")
        raise typer.Exit(1)
    if old not in (None, new):
        consent.ask(f"this takes the name {cluster} from the cluster {old}, whose agent is refused from then on")
    if consent.dry_run:
        screen.say(f"would bind {cluster} to {new}")
        return
    _patch(cluster, access, repinned(new), subresource="status")
    screen.say(f"{cluster} is bound to {new}: restart its agent")


async def _bound_to(client: "KubeClient", uid: "ClusterUid", *, other_than: str) -> str | None:
    """The name of another WorkerCluster that is bound to a cluster; None without one."""
    from slicebus.kube.resources import WORKERCLUSTERS
    from slicebus.manager.state.worker_clusters import pinned_uid

    fleet = (await client.list(WORKERCLUSTERS)).items
    names = (found["metadata"]["name"] for found in fleet if pinned_uid(found) == uid)
    return min((name for name in names if name != other_than), default=None)


async def worker_cluster(client: "KubeClient", name: str) -> "Manifest":
    """A WorkerCluster. Raises NotFoundError with the nearest name."""
    from slicebus.kube.resources import WORKERCLUSTERS

    try:
        return await client.get(WORKERCLUSTERS, name)
    except NotFoundError:
        known = [found["metadata"]["name"] for found in (await client.list(WORKERCLUSTERS)).items]
        raise NotFoundError(unknown(name, "WorkerCluster", known)) from None


def _set(cluster: str, access: ClusterAccess, **spec: bool) -> None:
    _patch(cluster, access, {"spec": spec})


def _patch(cluster: str, access: ClusterAccess, body: "Manifest", *, subresource: str = "") -> None:
    async def patch(client: "KubeClient") -> None:
        from slicebus.kube.client import MergePatch
        from slicebus.kube.resources import WORKERCLUSTERS

        try:
            await client.patch(WORKERCLUSTERS, cluster, None, MergePatch(body), subresource=subresource)
        except NotFoundError:
            await worker_cluster(client, cluster)  # It names the nearest.
            raise

    run(access, patch)
