"""`slicebus journal`: what went over the bus."""

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import click
import typer
from rich.console import Console

from slicebus.bus.contract import StreamOffset
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.cli.entries import line
from slicebus.journal.entry import Entry, Filter, matching
from slicebus.journal.export import to_line
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.topology import JOURNAL

journal = typer.Typer(help="Read the recorded messages.", no_args_is_help=True)

AmqpUrl = Annotated[str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker: amqp:// or amqps://.")]
Cluster = Annotated[str | None, typer.Option(help="Only this cluster.")]
Job = Annotated[str | None, typer.Option(help="Only this job: name, namespace/name or Kind/namespace/name.")]
Type = Annotated[str | None, typer.Option(help="Only this message type, such as scale-request.")]
Correlation = Annotated[str | None, typer.Option(help="Only the messages of this chain.")]
Since = Annotated[str | None, typer.Option(help="From then on: 10m, 2h, 3d, or a time such as 2026-01-31T12:00:00Z.")]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@journal.command()
def tail(
    amqp_url: AmqpUrl,
    cluster: Cluster = None,
    job: Job = None,
    type: Type = None,
    correlation: Correlation = None,
    since: Since = None,
    follow: Annotated[bool, typer.Option(help="Go on with what comes.")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON Lines, as export does.")] = False,
) -> None:
    """Print messages as they are recorded: time, cluster, type, job, and what they say."""
    wanted = matching(cluster=cluster, job=job, type=type, correlation=correlation)
    start = _offset(since, default="next" if follow else "first")
    console = Console(highlight=False, soft_wrap=True)

    async def run() -> None:
        async for entry in _entries(amqp_url, start, wanted, follow=follow):
            if json:
                sys.stdout.write(to_line(entry.record).decode() + "\n")
                sys.stdout.flush()
            else:
                console.print(line(entry))

    _run(run())


@journal.command()
def export(
    amqp_url: AmqpUrl,
    file: Annotated[str, typer.Argument(help="Where to write; - for standard output.")],
    cluster: Cluster = None,
    job: Job = None,
    type: Type = None,
    correlation: Correlation = None,
    since: Since = None,
    redact: Annotated[bool, typer.Option(help="Take secrets out.")] = True,
) -> None:
    """Write messages to a file as JSON Lines, without secrets."""
    wanted = matching(cluster=cluster, job=job, type=type, correlation=correlation)

    async def run() -> None:
        count = 0
        with click.open_file(file, "wb") as out:
            async for entry in _entries(amqp_url, _offset(since, default="first"), wanted, follow=False):
                out.write(to_line(entry.record, redact=redact) + b"\n")
                count += 1
        typer.echo(f"{count} messages", err=True)

    _run(run())


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(main)
    except KeyboardInterrupt:
        raise typer.Exit from None


async def _entries(url: str, start: StreamOffset, wanted: Filter, *, follow: bool) -> AsyncIterator[Entry]:
    bus = await connect(url, name="slicebus journal", settings=BusSettings(connect_s=5.0))
    try:
        async for record in bus.read_stream(JOURNAL, start, follow=follow):
            entry = Entry.from_record(record)
            if wanted(entry):
                yield entry
    finally:
        await bus.aclose()


def _offset(since: str | None, *, default: StreamOffset) -> StreamOffset:
    """Where to start. Raises ConfigurationError for a time that is none."""
    if since is None:
        return default
    if since[-1:] in _UNITS and since[:-1].isdecimal():
        return datetime.now(UTC) - timedelta(**{_UNITS[since[-1]]: int(since[:-1])})
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as error:
        raise ConfigurationError(f"--since {since}: use 10m, 2h, 3d, or a time such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
