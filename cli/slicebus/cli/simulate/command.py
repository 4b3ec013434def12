"""`slicebus simulate`: would a job run?"""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, run
from slicebus.cli.cluster.listing import show_one
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.journal.source import STREAM, Span
from slicebus.cli.leaders import say_leaders
from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.forecast.forecast import Forecast

_REFUSED, _WAITS = 1, 3
_WAYS = "name a JOB and its --size, or files with --filename, or a --queue with --pods, --request and --priority"


@with_options
def simulate(
    job: Annotated[str, typer.Argument(help="A job that exists, with --size.", show_default=False)] = "",
    *,
    filename: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", metavar="FILE", help="Jobs as YAML or JSON; - for standard input."),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="PODSET=N", help="Pods of a job that exists: workers=64.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="NAME", help="The LocalQueue of a plain Job.")] = None,
    pods: Annotated[
        int | None, typer.Option("--pods", min=1, help="Of the plain Job; else one.", show_default=False)
    ] = None,
    request: Annotated[
        list[str] | None,
        typer.Option("--request", metavar="NAME=AMOUNT", help="What each of its pods requests: cpu=4,memory=1Gi."),
    ] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="CLASS", help="The WorkloadPriorityClass of the plain Job.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Say when a job that waits would start, by the journal since then: 7d."
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="With --since: an exported journal instead of a broker.")
    ] = STREAM,
    amqp_url: Annotated[
        str | None,
        typer.Option(envvar="AMQP_URL", show_envvar=True, help="With --since: the broker, as the manager or a viewer."),
    ] = None,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Say whether jobs would run, without submitting them.

    The manager's own code decides what its next cycle would, by the objects that you may read. Nothing is written. A
    job that waits shows why, who is before it, and the smallest changes that would let it run, each tried. With
    --since it says when that job would start. Several jobs are decided together.

    Exit status 0 if all would run, 3 if one would wait, 1 if one is refused or no manager works.
    """
    ways = [bool(job and size), bool(filename), queue is not None]
    if since is None and source != STREAM:
        raise ConfigurationError("--from is for --since: whether a job runs is on the cluster")
    begin = Span.of(since, None).since
    of_plain = (pods, request, priority) != (None, None, None)
    if ways.count(True) != 1 or bool(job) != bool(size) or (of_plain and queue is None):
        raise ConfigurationError(_WAYS)

    async def ask(client: "KubeClient") -> int:
        from slicebus.cli.cluster.deciding import decisive
        from slicebus.cli.cluster.finding import find_jobs
        from slicebus.cli.cluster.reading import read
        from slicebus.cli.simulate.asking import forecast, history_of, of_job, of_size
        from slicebus.cli.simulate.questions import a_job, jobs_of, sizes_of

        leaders = await say_leaders(client, managers.manager_namespace)
        namespace = scope.only or client.namespace
        if job:
            found = await find_jobs(client, job, scope)
            store = decisive(found.reading, leaders)
            hypotheses = [of_size(store, ref, sizes_of(size or ())) for ref in found.refs]
        else:
            jobs = (
                [a_job(queue=queue, pods=pods or 1, requests=request or (), priority=priority, namespace=namespace)]
                if queue is not None
                else jobs_of(filename or (), namespace=namespace)
            )
            store = decisive(await read(client, fallback=namespace), leaders)
            hypotheses = [await of_job(client, store, each) for each in jobs]
        history = await history_of(source, begin, amqp_url=amqp_url) if begin is not None else None
        forecasts = forecast(store, hypotheses, history)
        for each in forecasts:
            _show(each, format.output)
        return _REFUSED if leaders.problems else _status(forecasts)

    with absence_told():
        if status := run(access, ask):
            raise typer.Exit(status)


def _status(forecasts: "Sequence[Forecast]") -> int:
    from slicebus.manager.decide.forecast.verdict import Prospect

    outcomes = {each.verdict.outcome for each in forecasts}
    if Prospect.REFUSED in outcomes:
        return _REFUSED
    return _WAITS if Prospect.WAITS in outcomes else 0


def _show(forecast: "Forecast", output: Output) -> None:
    def show_page() -> None:
        from slicebus.cli.simulate.page import page

        screen.show(page(forecast))

    show_one(forecast, output, name=forecast.job, page=show_page)
