"""`slicebus journal`: reads the recorded messages."""

import asyncio
from contextlib import aclosing
from datetime import datetime
from typing import Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.options import with_options
from slicebus.cli.files import STANDARD_OUTPUT, private_file
from slicebus.cli.journal.entry_lines import line
from slicebus.cli.journal.known import Recorded, check_followed
from slicebus.cli.journal.source import (
    STREAM,
    AmqpUrl,
    MessageFilter,
    Since,
    Span,
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
@with_options
def tail(
    amqp_url: AmqpUrl,
    *,
    filter: MessageFilter,
    since: Since = None,
    follow: Annotated[bool, typer.Option(help="Go on with new messages.")] = True,
    heartbeats: Annotated[bool, typer.Option("--heartbeats", help="With the heartbeats of the agents.")] = False,
    json: AsJson = False,
) -> None:
    """Print messages as they are recorded.

    Each is a line: time, cluster, type, job, and a summary. Heartbeats are left out, and counted at the end, unless
    there is --heartbeats or --type heartbeat.
    """
    hidden = None if heartbeats or filter.type is not None else Heartbeat.type
    run = run_until_stopped if follow else asyncio.run
    run(_print(STREAM, filter, Span.of(since), amqp_url=amqp_url, follow=follow, json=json, hidden=hidden))


@journal.command()
@with_options
def query(
    amqp_url: Annotated[str | None, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker.")] = None,
    *,
    filter: MessageFilter,
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
    asyncio.run(_print(source, filter, Span.of(since, until), amqp_url=amqp_url, follow=False, json=json))


@journal.command()
@with_options
def export(
    amqp_url: AmqpUrl,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to write, for your user alone; - for standard output.")
    ],
    *,
    filter: MessageFilter,
    since: Since = None,
    until: Until = None,
    decisions: Annotated[
        bool, typer.Option(help="With the recorded decisions, and the state before them: `slicebus replay` needs both.")
    ] = True,
    redact: Annotated[bool, typer.Option(help="Take secrets out.")] = True,
) -> None:
    """Write messages to a file as JSON Lines, without secrets."""
    span = Span.of(since, until)
    matches = filter.matching(until=span.until, decisions=decisions)

    async def write() -> None:
        messages, batches, recorded = 0, 0, Recorded()
        with private_file(file) as written, WorkProgress("export", "records") as progress:
            read = entries(
                STREAM,
                span,
                recorded.noting(matches),
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
            await recorded.explain(filter.cluster, filter.job, amqp_url=amqp_url)

    asyncio.run(write())


def _matches(filter: MessageFilter, until: datetime | None) -> Filter:
    """The wanted messages as a filter of entries. With the type `decisions` they are the batches of decisions."""
    if filter.type == DECISIONS_TYPE:
        by_time = matching(until=until, decisions=True)
        return lambda entry: entry.is_decisions and filter.cluster in (None, entry.cluster) and by_time(entry)
    return filter.matching(until=until)


async def _print(
    source: str,
    filter: MessageFilter,
    span: Span,
    *,
    amqp_url: str | None,
    follow: bool,
    json: bool,
    hidden: str | None = None,
) -> None:
    """Print the wanted messages, but no message of a `hidden` type; how many there were is said at the end."""
    if follow and filter.cluster is not None and amqp_url is not None:
        await check_followed(filter.cluster, amqp_url=amqp_url)
    recorded, redactor, left_out, is_empty = Recorded(), Redactor(), 0, True
    read = entries(source, span, recorded.noting(_matches(filter, span.until)), amqp_url=amqp_url, follow=follow)
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
        await recorded.explain(filter.cluster, filter.job, amqp_url=amqp_url if source == STREAM else None)
