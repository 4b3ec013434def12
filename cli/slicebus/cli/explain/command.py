"""`slicebus explain`: why a job has the size that it has."""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, run_led
from slicebus.cli.cluster.listing import show_one
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.leaders import Leaders

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.explain import Explanation


@with_options
def explain(
    job: Annotated[str, typer.Argument(help="name, namespace/name or Kind/namespace/name.")],
    *,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Explain why a job waits or runs as it does.

    It shows the quota, the place in the queue, and the history of its slices. With the rights of one namespace it says
    what it leaves out, and goes on. Exit status 1 for an unknown job, and where no manager works: what is shown is then
    as old as its last write.
    """

    async def show(client: "KubeClient", leaders: Leaders) -> None:
        for explanation in await _explanations(client, job, scope, leaders):
            _show(explanation, format.output)

    with absence_told():
        run_led(access, managers, show)


async def _explanations(client: "KubeClient", job: str, scope: JobScope, leaders: Leaders) -> "list[Explanation]":
    from slicebus.ambient.clock import now
    from slicebus.cli.cluster.finding import find_jobs
    from slicebus.manager.decide.explain import explain as explanation_of

    found = await find_jobs(client, job, scope)
    sight = leaders.seen(found.reading.sight)
    return [explanation_of(found.reading.store, ref, sight, moment=now()) for ref in found.refs]


def _show(explanation: "Explanation", output: Output) -> None:
    def show_page() -> None:
        from slicebus.cli.explain.page import page

        screen.show(page(explanation))

    show_one(explanation, output, name=explanation.job, page=show_page)
