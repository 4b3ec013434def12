"""`slicebus simulate`: would a job run?"""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import absence_told, namespace_of, run
from slicebus.cli.cluster.listing import show_one
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.journal.source import STREAM, Span
from slicebus.cli.leaders import say_leaders
from slicebus.cli.past.options import PastMoment
from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from slicebus.cli.simulate.questions import Manifest
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
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="What it would have been then, by the journal alone: 03:00, -15m, or a date."
        ),
    ] = None,
    source: Annotated[
        str,
        typer.Option("--from", metavar="FILE", help="With --since or --at: an exported journal instead of a broker."),
    ] = STREAM,
    amqp_url: Annotated[
        str | None,
        typer.Option(
            envvar="AMQP_URL", show_envvar=True, help="With --since or --at: the broker, as the manager or a viewer."
        ),
    ] = None,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Say whether jobs would run, without submitting them.

    The manager's own code decides what its next cycle would, by the objects that you may read. Nothing is written. A
    job that waits shows why, who is before it, and the smallest changes that would let it run, each tried. With
    --since it says when that job would start. Several jobs are decided together. With --at it says what would have
    become of them at a moment of the past, and asks no cluster.

    Exit status 0 if all would run, 3 if one would wait, 1 if one is refused or no manager works.
    """
    ways = [bool(job and size), bool(filename), queue is not None]
    if since is None and at is None and source != STREAM:
        raise ConfigurationError("--from is for --since and --at: whether a job runs is on the cluster")
    if since is not None and at is not None:
        raise ConfigurationError("--at and --since exclude each other: when a job would start is asked of the present")
    begin = Span.of(since, None).since
    of_plain = (pods, request, priority) != (None, None, None)
    if ways.count(True) != 1 or bool(job) != bool(size) or (of_plain and queue is None):
        raise ConfigurationError(_WAYS)

    def new_jobs(namespace: str) -> "list[Manifest]":
        from slicebus.cli.simulate.questions import a_job, jobs_of

        if queue is None:
            return jobs_of(filename or (), namespace=namespace)
        return [a_job(queue=queue, pods=pods or 1, requests=request or (), priority=priority, namespace=namespace)]

    async def ask(client: "KubeClient") -> int:
        from slicebus.cli.cluster.deciding import decisive
        from slicebus.cli.cluster.finding import find_jobs
        from slicebus.cli.cluster.reading import read
        from slicebus.cli.simulate.asking import forecast, history_of, of_job, of_size
        from slicebus.cli.simulate.questions import sizes_of

        leaders = await say_leaders(client, managers.manager_namespace)
        namespace = scope.only or client.namespace
        if job:
            found = await find_jobs(client, job, scope)
            store = decisive(found.reading, leaders)
            hypotheses = [of_size(store, ref, sizes_of(size or ())) for ref in found.refs]
        else:
            jobs = new_jobs(namespace)
            store = decisive(await read(client, fallback=namespace), leaders)
            hypotheses = [await of_job(client, store, each) for each in jobs]
        history = await history_of(source, begin, amqp_url=amqp_url) if begin is not None else None
        status = _told(forecast(store, hypotheses, history), format.output)
        return _REFUSED if leaders.problems else status

    def ask_then(moment: str) -> int:
        from slicebus.ambient.clock import now
        from slicebus.cli.cluster.finding import jobs_then
        from slicebus.cli.durations import local_time
        from slicebus.cli.past.moments import moment_of
        from slicebus.cli.past.reading import read_journal
        from slicebus.cli.simulate.asking import forecast, of_manifest, of_size
        from slicebus.cli.simulate.questions import sizes_of
        from slicebus.kube.client import DEFAULT_NAMESPACE

        jobs = [] if job else new_jobs(scope.only or namespace_of(access) or DEFAULT_NAMESPACE)
        options = PastMoment(at=at, source=source, amqp_url=amqp_url)
        reading = read_journal(options, moment_of(moment, now()))
        store = reading.decisive()
        with reading.shown():
            hypotheses = [
                *(of_size(store, ref, sizes_of(size or ())) for ref in (jobs_then(store, job, scope) if job else ())),
                *(of_manifest(store, each) for each in jobs),
            ]
            forecasts = forecast(store, hypotheses)
            if format.output.is_table and not format.no_headers:
                screen.say(f"AT {local_time(reading.at)}")
            return _told(forecasts, format.output, at=reading.at)

    with absence_told():
        if status := run(access, ask) if at is None else ask_then(at):
            raise typer.Exit(status)


def _told(forecasts: "Sequence[Forecast]", output: Output, *, at: "datetime | None" = None) -> int:
    """Show forecasts, and return the exit status. `at` is their moment, where it is not the present."""
    for each in forecasts:
        _show(each, output, at)
    return _status(forecasts)


def _status(forecasts: "Sequence[Forecast]") -> int:
    from slicebus.manager.decide.forecast.verdict import Prospect

    outcomes = {each.verdict.outcome for each in forecasts}
    if Prospect.REFUSED in outcomes:
        return _REFUSED
    return _WAITS if Prospect.WAITS in outcomes else 0


def _show(forecast: "Forecast", output: Output, at: "datetime | None") -> None:
    def show_page() -> None:
        from slicebus.cli.simulate.page import page

        screen.show(page(forecast))

    shown = forecast if at is None else {"at": at.isoformat(), **msgspec.structs.asdict(forecast)}
    show_one(shown, output, name=forecast.job, page=show_page)
