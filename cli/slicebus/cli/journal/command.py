"""`slicebus journal`: reads the recorded messages."""

from contextlib import aclosing
from typing import Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.files import private_file
from slicebus.cli.journal.entry_lines import line
from slicebus.cli.journal.source import (
    STREAM,
    AmqpUrl,
    Cluster,
    Correlation,
    Job,
    Since,
    Span,
    Type,
    Until,
    entries,
    run,
)
from slicebus.journal.entry import Filter, matching
from slicebus.journal.export import to_line
from slicebus.journal.redaction import Redactor
from slicebus.proto.topology import DECISIONS_TYPE

journal = typer.Typer(help="Read the recorded messages.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON Lines, as export does.")]


@journal.command()
def tail(
    amqp_url: AmqpUrl,
    cluster: Cluster = None,
    job: Job = None,
    type: Type = None,
    correlation: Correlation = None,
    since: Since = None,
    follow: Annotated[bool, typer.Option(help="Go on with new messages.")] = True,
    json: AsJson = False,
) -> None:
    """Print messages as they are recorded.

    Each is a line: time, cluster, type, job, and a summary.
    """
    wanted = _wanted(cluster, job, type, correlation)
    run(_print(STREAM, Span.of(since), wanted, amqp_url=amqp_url, follow=follow, json=json))


@journal.command()
def query(
    amqp_url: Annotated[str | None, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker.")] = None,
    cluster: Cluster = None,
    job: Job = None,
    type: Type = None,
    correlation: Correlation = None,
    since: Since = None,
    until: Until = None,
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="An exported file instead of a broker.")
    ] = STREAM,
    json: AsJson = False,
) -> None:
    """Print the recorded messages that match.

    With `--type decisions` they are the batches of recorded decisions.
    """
    span = Span.of(since, until)
    wanted = _wanted(cluster, job, type, correlation, span)
    run(_print(source, span, wanted, amqp_url=amqp_url, follow=False, json=json))


@journal.command()
def export(
    amqp_url: AmqpUrl,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to write, for your user alone; - for standard output.")
    ],
    cluster: Cluster = None,
    job: Job = None,
    type: Type = None,
    correlation: Correlation = None,
    since: Since = None,
    until: Until = None,
    decisions: Annotated[
        bool, typer.Option(help="With the recorded decisions, and the state before them: `slicebus replay` needs both.")
    ] = True,
    redact: Annotated[bool, typer.Option(help="Take secrets out.")] = True,
) -> None:
    """Write messages to a file as JSON Lines, without secrets."""
    span = Span.of(since, until)
    wanted = matching(
        cluster=cluster, job=job, type=type, correlation=correlation, until=span.until, decisions=decisions
    )

    async def write() -> None:
        messages = batches = 0
        read = entries(STREAM, span, wanted, amqp_url=amqp_url, decisions=decisions)
        with private_file(file) as written:
            async with aclosing(read) as recorded_entries:
                async for entry in recorded_entries:
                    written.write(to_line(entry.record, redact=redact) + b"\n")
                    messages += not entry.is_decisions
                    batches += entry.is_decisions
        recorded = f", {batches} batches of decisions" if decisions else ""
        screen.warn(f"{messages} messages{recorded}")

    run(write())


def _wanted(
    cluster: str | None,
    job: str | None,
    type: str | None,
    correlation: str | None,
    span: Span = Span(),  # noqa: B008 a frozen value
) -> Filter:
    """A filter of messages; of batches of decisions for `--type decisions`."""
    if type == DECISIONS_TYPE:
        by_time = matching(until=span.until, decisions=True)
        return lambda entry: entry.is_decisions and cluster in (None, entry.cluster) and by_time(entry)
    return matching(cluster=cluster, job=job, type=type, correlation=correlation, until=span.until)


async def _print(source: str, span: Span, wanted: Filter, *, amqp_url: str | None, follow: bool, json: bool) -> None:
    redactor = Redactor()
    async with aclosing(entries(source, span, wanted, amqp_url=amqp_url, follow=follow)) as recorded_entries:
        async for entry in recorded_entries:
            if json:
                screen.say_json(to_line(entry.record))
            else:
                screen.show(line(entry.shown(redactor)))
