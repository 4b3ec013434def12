"""`slicebus journal`: reads the recorded messages."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.files import STANDARD_OUTPUT, private_file
from slicebus.cli.journal.entry_lines import line
from slicebus.cli.journal.known import Recorded, check_followed
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
    run_until_stopped,
)
from slicebus.cli.progress import WorkProgress
from slicebus.journal.entry import Filter, matching
from slicebus.journal.export import to_line
from slicebus.journal.redaction import Redactor
from slicebus.proto.messages import Heartbeat
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
    heartbeats: Annotated[bool, typer.Option("--heartbeats", help="With the heartbeats of the agents.")] = False,
    json: AsJson = False,
) -> None:
    """Print messages as they are recorded.

    Each is a line: time, cluster, type, job, and a summary. Heartbeats are left out, and counted at the end, unless
    there is --heartbeats or --type heartbeat.
    """
    chosen = Chosen(cluster, job, type, correlation, Span.of(since))
    hidden = None if heartbeats or type is not None else Heartbeat.type
    run = run_until_stopped if follow else asyncio.run
    run(_print(STREAM, chosen, amqp_url=amqp_url, follow=follow, json=json, hidden=hidden))


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
    chosen = Chosen(cluster, job, type, correlation, Span.of(since, until))
    asyncio.run(_print(source, chosen, amqp_url=amqp_url, follow=False, json=json))


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
        messages, batches, recorded = 0, 0, Recorded()
        with private_file(file) as written, WorkProgress("export", "records") as progress:
            read = entries(
                STREAM,
                span,
                recorded.noting(wanted),
                amqp_url=amqp_url,
                decisions=decisions,
                progress=None if file == STANDARD_OUTPUT else progress,
            )
            async with aclosing(read) as found:
                async for entry in found:
                    written.write(to_line(entry.record, redact=redact) + b"\n")
                    messages += not entry.is_decisions
                    batches += entry.is_decisions
        screen.warn(f"{messages} messages{f', {batches} batches of decisions' if decisions else ''}")
        if not messages:
            await recorded.explain(cluster, job, amqp_url=amqp_url)

    asyncio.run(write())


class Chosen(msgspec.Struct, frozen=True):
    """Which messages; None is no condition. With the type `decisions` they are the batches of decisions."""

    cluster: str | None
    job: str | None
    type: str | None
    correlation: str | None
    span: Span

    @property
    def filter(self) -> Filter:
        """The same as a filter of entries."""
        if self.type == DECISIONS_TYPE:
            by_time = matching(until=self.span.until, decisions=True)
            return lambda entry: entry.is_decisions and self.cluster in (None, entry.cluster) and by_time(entry)
        return matching(
            cluster=self.cluster,
            job=self.job,
            type=self.type,
            correlation=self.correlation,
            until=self.span.until,
        )


async def _print(
    source: str, chosen: Chosen, *, amqp_url: str | None, follow: bool, json: bool, hidden: str | None = None
) -> None:
    """Print what is chosen, but no message of a `hidden` type; how many there were is said at the end."""
    if follow and chosen.cluster is not None and amqp_url is not None:
        await check_followed(chosen.cluster, amqp_url=amqp_url)
    recorded, redactor, left_out, is_empty = Recorded(), Redactor(), 0, True
    read = entries(source, chosen.span, recorded.noting(chosen.filter), amqp_url=amqp_url, follow=follow)
    try:
        async with aclosing(read) as found:
            async for entry in found:
                is_empty = False
                if entry.type == hidden:
                    left_out += 1
                elif json:
                    screen.say_json(to_line(entry.record))
                else:
                    screen.show(line(entry.shown(redactor)))
    finally:
        if left_out:
            screen.warn(f"{left_out} {hidden}{'s are' if left_out > 1 else ' is'} left out: --{hidden}s shows them")
    if is_empty and not follow:
        await recorded.explain(chosen.cluster, chosen.job, amqp_url=amqp_url if source == STREAM else None)
