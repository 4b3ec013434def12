"""`slicebus tree`: a job with everything that belongs to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, connected, run_led
from slicebus.cli.cluster.filters import check_known
from slicebus.cli.cluster.listing import show_one
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.leaders import Leaders
from slicebus.proto.errors import ConfigurationError, NotFoundError, SlicebusError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slicebus.cli.jobs.tree import TreeNode, WorkerSide
    from slicebus.kube.client import KubeClient
    from slicebus.proto.messages import JobRef


@with_options
def tree(
    job: Annotated[str, typer.Argument(help="name, namespace/name or Kind/namespace/name.")],
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE|CONTEXT",
            help="The kubeconfig of a worker cluster, or a context of yours: shows the pods there. Once for each.",
        ),
    ] = None,
    *,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Show a job as a tree: slices, copies, and pods.

    Copies and pods are what the manager knows; with --worker those that the worker's API server has. Exit status 1 for
    an unknown job, and where no manager works: what it knows is then as old as its last write.
    """

    async def show(client: "KubeClient", leaders: Leaders) -> None:
        for node in await _trees(client, job, scope, workers, leaders):
            _show(node, format.output)

    workers = dict(_worker(text, access) for text in worker or ())
    with absence_told():
        run_led(access, managers, show)


def _worker(text: str, access: ClusterAccess) -> tuple[str, ClusterAccess]:
    name, _, given = text.partition("=")
    if not (name and given):
        raise ConfigurationError(f"--worker {text}: use NAME=FILE, or NAME=CONTEXT")
    if Path(given).expanduser().is_file():
        return name, ClusterAccess(kubeconfig=given)
    return name, ClusterAccess(kubeconfig=access.kubeconfig, context=given)


async def _trees(
    client: "KubeClient", job: str, scope: JobScope, workers: "Mapping[str, ClusterAccess]", leaders: Leaders
) -> "list[TreeNode]":
    from slicebus.cli.cluster.finding import find_jobs
    from slicebus.cli.jobs.tree import cluster_names, tree_of
    from slicebus.manager.decide.problems import is_reached

    found = await find_jobs(client, job, scope)
    store, sight = found.reading.store, leaders.seen(found.reading.sight)
    for name in workers if sight.clusters else ():
        check_known(name, "worker cluster", [cluster.name for cluster in store.quotas.worker_clusters])
    nodes = []
    for ref in found.refs:
        view = store.view(ref)
        sides = {name: await _side(workers[name], ref) for name in cluster_names(view) if name in workers}
        nodes.append(tree_of(view, sides, is_reached=is_reached(store, view, sight)))
    return nodes


async def _side(access: ClusterAccess, ref: "JobRef") -> "WorkerSide":
    """What a worker has of a job. A worker that cannot be read leaves the rest of the tree as it is."""
    from slicebus.cli.jobs.tree import WorkerSide, belonging
    from slicebus.kube.resources import JOB_RESOURCES, PODS
    from slicebus.slices.jobs import KINDS

    try:
        async with await connected(access) as client:
            try:
                copy = await client.get(JOB_RESOURCES[ref.kind], ref.name, ref.namespace)
            except NotFoundError:
                return WorkerSide(None, ())
            pods = (await client.list(PODS, namespace=ref.namespace)).items
            return WorkerSide(copy, belonging(pods, KINDS[ref.kind].pod_selectors(copy)))
    except SlicebusError as error:
        return WorkerSide(None, (), str(error))


def _show(node: "TreeNode", output: Output) -> None:
    def show_page() -> None:
        from slicebus.cli.jobs.tree import drawn

        for line in drawn(node):
            screen.say(line)

    show_one(node, output, name=f"{node.kind}/{node.name}", page=show_page)
