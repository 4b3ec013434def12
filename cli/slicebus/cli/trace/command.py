"""`slicebus trace`: shows every change of a job, hop by hop."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from slicebus.ambient.clock import now
from slicebus.bus.dead_letters.letters import DeadLetter, LetterSelection
from slicebus.cli import screen
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.dead_letters.actions import survey
from slicebus.cli.journal.known import check_cluster
from slicebus.cli.journal.source import STREAM, Cluster, Since, Span, Until, entries, run_until_stopped
from slicebus.cli.names import in_namespace, is_asked_for, nearest
from slicebus.cli.trace.sending import follow_journal, send
from slicebus.journal.entry import Entry, matching
from slicebus.journal.redaction import Redactor, redacted
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.traces import Trace, sizes, traces
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError
from slicebus.runtime.run import until_signal


class RecordedJobs(msgspec.Struct):
    """What a recording has about the wanted jobs."""

    messages: list[Entry] = []
    events: list[RecordedStep | Consumed] = []
    others: set[str] = set()
    """The keys of all other jobs."""
    clusters: set[str] = set()
    """Those of everything that was read."""
    dead: dict[str, str] = {}
    """The reason of each dead letter, by message id."""

    @property
    def jobs(self) -> list[str]:
        """The wanted jobs, by `Kind/namespace/name`."""
        subjects = {entry.subject for entry in self.messages}
        return sorted(subjects | {step.job for step in self.events if isinstance(step, RecordedStep)})

    def traces(self) -> list[Trace]:
        """The traces of the wanted jobs."""
        return traces(self.messages, self.events, dead=self.dead)


def trace(
    job: Annotated[
        str, typer.Argument(help="name, namespace/name or Kind/namespace/name. Not needed with --follow.")
    ] = "",
    amqp_url: Annotated[str | None, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="The job's, where its name is not enough.")] = "",
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="An exported file instead of a broker.")
    ] = STREAM,
    cluster: Cluster = None,
    since: Since = None,
    until: Until = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained page instead of printing.")
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send the changes that are over to OpenTelemetry instead of printing."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --otlp: go on, with the changes of every job, or of JOB.")
    ] = False,
) -> None:
    """Show every change of a job with its messages and steps. Exit status 1 for an unknown job."""
    span = Span.of(since, until)
    if namespace:
        job = in_namespace(job, namespace)
    if follow:
        if otlp is None or html is not None or source != STREAM or cluster or until:
            raise ConfigurationError("--follow goes with --otlp, and of the others with --since and a job alone")
        run_until_stopped(until_signal(follow_journal(job, span.since or now(), otlp, amqp_url=amqp_url)))
        return
    if not job:
        raise ConfigurationError("name a job; --follow, with --otlp, is for all of them")
    asyncio.run(_trace(job, amqp_url, source, cluster, span, html, otlp))


async def _trace(
    job: str,
    amqp_url: str | None,
    source: str,
    cluster: str | None,
    span: Span,
    html: Path | None,
    otlp: str | None,
) -> None:
    recorded = await find(job, source, span, amqp_url=amqp_url)
    if not recorded.jobs:
        _unknown(job, recorded.others)
    if cluster is not None:
        await check_cluster(cluster, recorded.clusters, amqp_url=amqp_url if source == STREAM else None)
    chosen = [trace for trace in recorded.traces() if cluster in (None, trace.cluster)]
    if html is not None:
        _write(html, job, source, chosen, recorded.messages)
    if otlp is not None:
        await send(chosen, otlp)
    if html is not None or otlp is not None:
        return
    from slicebus.cli.trace.page import print_traces

    print_traces(chosen)
    if not chosen:
        screen.warn(f"nothing about {job} is recorded on {cluster}")


async def find(job: str, source: str, span: Span, *, amqp_url: str | None) -> RecordedJobs:
    """Everything recorded about a job, in one pass and without secrets; of other jobs only the names. Reads a broker's
    dead letters too."""
    recorded, wanted = RecordedJobs(), matching(job=job)
    steps, redactor = Steps(), Redactor()
    within = matching(until=span.until, decisions=True)
    async with aclosing(entries(source, span, within, amqp_url=amqp_url, decisions=True)) as read:
        async for entry in read:
            recorded.clusters.add(entry.cluster)
            for event in steps.feed(entry):
                if span.since is not None and event.at < span.since:
                    continue
                if is_asked_for(event.job, job):
                    recorded.events.append(event)
                elif isinstance(event, RecordedStep):
                    recorded.others.add(event.job)
            if entry.subject and wanted(entry):
                recorded.messages.append(entry.shown(redactor))
            elif entry.subject:
                recorded.others.add(entry.subject)
    if source == STREAM and amqp_url and recorded.jobs:
        recorded.dead = await _dead(amqp_url, recorded.jobs)
    return recorded


async def _dead(amqp_url: str, jobs: Iterable[str]) -> dict[str, str]:
    """The reasons of the dead letters about these jobs."""
    subjects = set(jobs)
    async with bus_of(amqp_url, name="slicebus trace") as bus:
        try:
            letters = (await survey(bus, LetterSelection(), lambda: datetime.now(UTC))).letters
        except (ForbiddenError, NotFoundError) as error:
            screen.warn(f"dead letters cannot be read: {error}")
            return {}
    return {letter.id: _why(letter) for letter in letters if letter.subject in subjects}


def _why(letter: DeadLetter) -> str:
    return f"{letter.type} is dead: {letter.reason}: {redacted(letter.detail)}"


def _unknown(job: str, others: set[str]) -> None:
    """Print similar names, and exit with status 1."""
    screen.fail(f"slicebus: nothing is recorded about a job {job}{nearest(job, others)}")
    raise typer.Exit(1)


def _write(path: Path, job: str, source: str, traces: Sequence[Trace], messages: Sequence[Entry]) -> None:
    from slicebus.journal.page import page

    where = "the journal of a broker" if source == STREAM else Path(source).name
    note = f"Recorded by slicebus, read from {where} at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC."
    try:
        path.write_text(
            page(title=f"Trace of {job}", note=note, traces=traces, sizes=sizes(messages)), encoding="utf-8"
        )
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    screen.warn(f"{path}: {len(traces)} changes")
