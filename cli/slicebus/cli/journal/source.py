"""Reads recorded messages from the journals of a broker, or from an exported file."""

import asyncio
import gzip
import sys
import zlib
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
import typer

from slicebus.ambient.clock import now
from slicebus.bus.contract import Bus, Record, StreamOffset
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.cluster.filters import option_of
from slicebus.cli.cluster.options import Options
from slicebus.cli.durations import duration
from slicebus.cli.progress import WorkProgress, share_between
from slicebus.journal.beginnings import BEFORE, Beginnings
from slicebus.journal.entry import Entry, Filter, matching
from slicebus.journal.export import from_line
from slicebus.journal.streams import read_journals
from slicebus.proto.errors import ConfigurationError, InvalidError
from slicebus.proto.messages import MESSAGES
from slicebus.proto.topology import DECISIONS_TYPE, JOURNAL

Result = TypeVar("Result")
STREAM = "stream"
"""The source that stands for the journals of the broker."""
STANDARD_INPUT = "-"

AmqpUrl = Annotated[str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker: amqp:// or amqps://.")]
Source = Annotated[
    str, typer.Argument(metavar="FILE|stream", help="An exported file, - for standard input, or stream.")
]
Cluster = Annotated[str | None, typer.Option(help="Only this cluster.")]
Since = Annotated[str | None, typer.Option(help="From then on: 10m, 2h, 3d, or a time such as 2026-01-31T12:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Until then: 10m (ago), or a time such as 2026-01-31T12:00:00Z.")]


class MessageFilter(Options, frozen=True, kw_only=True):
    """Which recorded messages; None is no condition."""

    cluster: Cluster = None
    job: Annotated[str | None, typer.Option(help="Only this job: name, namespace/name or Kind/namespace/name.")] = None
    type: Annotated[
        str | None,
        option_of((*MESSAGES, DECISIONS_TYPE), "message type", help="Only this message type, such as scale-request."),
    ] = None
    correlation: Annotated[str | None, typer.Option(help="Only the messages of this chain.")] = None

    def matching(self, *, until: datetime | None, decisions: bool = False) -> Filter:
        """The same as a filter of entries; `until` and `decisions` as in `journal.entry.matching`."""
        return matching(
            cluster=self.cluster,
            job=self.job,
            type=self.type,
            correlation=self.correlation,
            until=until,
            decisions=decisions,
        )


class Span(msgspec.Struct, frozen=True):
    """The part of the journal to read; None leaves an end open."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, since: str | None, until: str | None = None) -> "Span":
        """The span of the options. Raises ConfigurationError for an invalid time."""
        return cls(
            since=_moment(since, option="--since") if since else None,
            until=_moment(until, option="--until") if until else None,
        )


def run_until_stopped(main: Coroutine[Any, Any, Result]) -> Result:
    """Run what goes on until somebody stops it: Ctrl-C is its end, with exit status 0. That of a command with an answer
    has another status, since there is none."""
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        raise typer.Exit from None


async def entries(
    source: str,
    span: Span,
    wanted: Filter,
    *,
    amqp_url: str | None,
    follow: bool = False,
    decisions: bool = False,
    progress: WorkProgress | None = None,
) -> AsyncGenerator[Entry, None]:
    """The wanted entries of the span. `decisions` adds the snapshots that the first decisions need."""
    beginnings = Beginnings(span.since) if span.since is not None and decisions else None
    start: StreamOffset = "next" if follow else "first"
    if span.since is not None:
        start = span.since - BEFORE if beginnings else span.since
    async with aclosing(records(source, start, amqp_url=amqp_url, follow=follow, progress=progress)) as read:
        async for record in read:
            entry = Entry.from_record(record)
            if beginnings is None and _is_before(entry, span.since):
                continue
            for due in beginnings.feed(entry) if beginnings else (entry,):
                if wanted(due):
                    yield due


async def records(
    source: str,
    start: StreamOffset = "first",
    *,
    amqp_url: str | None,
    follow: bool = False,
    progress: WorkProgress | None = None,
) -> AsyncGenerator[Record, None]:
    """Every record from `start` on; a file is read whole. Raises ConfigurationError and InvalidError."""
    if source != STREAM:
        for record in records_of_file(source, progress):
            yield record
        return
    async with _journal(amqp_url) as bus, aclosing(read_journals(bus, start, follow=follow)) as read:
        first, last = start if isinstance(start, datetime) else None, now()
        async for record in read:
            first = first or record.timestamp
            if progress is not None:
                progress.step(share_between(record.timestamp, first, last))
            yield record


async def records_of_manager(source: str, start: StreamOffset, *, amqp_url: str | None) -> AsyncGenerator[Record, None]:
    """The same of the manager's stream alone, which has all that it decided, and which no agent can write to."""
    if source != STREAM:
        for record in records_of_file(source):
            yield record
        return
    async with _journal(amqp_url) as bus, aclosing(bus.read_stream(JOURNAL, start, follow=False)) as read:  # type: ignore[type-var]
        async for record in read:
            yield record


def _journal(amqp_url: str | None) -> AbstractAsyncContextManager[Bus]:
    if not amqp_url:
        raise ConfigurationError("AMQP_URL is not set: name the broker, or an exported file")
    return bus_of(amqp_url, name="slicebus journal")


def records_of_file(name: str, progress: WorkProgress | None = None) -> Iterator[Record]:
    """Every record of an export, which may be compressed. Raises ConfigurationError and InvalidError."""
    try:
        with _opened(name) as raw, _unpacked(raw, name) as file:
            size = 0 if name == STANDARD_INPUT else Path(name).stat().st_size
            for number, line in enumerate(file, start=1):
                try:
                    yield from_line(line)
                except InvalidError as error:
                    raise InvalidError(f"{name}, line {number}: {error}") from error
                if progress is not None:
                    progress.step(raw.tell() / size if size else None)
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise ConfigurationError(f"{name}: it is cut, or not as gzip wrote it: {error}") from error


def _opened(name: str) -> BinaryIO:
    return sys.stdin.buffer if name == STANDARD_INPUT else Path(name).open("rb")


def _unpacked(raw: BinaryIO, name: str) -> BinaryIO:
    return gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw  # type: ignore[return-value]


def _is_before(entry: Entry, since: datetime | None) -> bool:
    """Whether an entry is older than wanted: a stream is read by whole chunks, and a file from its beginning."""
    return since is not None and entry.published is not None and entry.published < since


def _moment(text: str, *, option: str) -> datetime:
    try:
        return datetime.now(UTC) - duration(text, option=option)
    except (ConfigurationError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
        own = moment.astimezone().isoformat()
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"{option} {text}: use 10m, 2h, 3d, or a time such as 2026-01-31T12:00:00Z") from error
    if moment.tzinfo is None:
        raise ConfigurationError(f"{option} {text} has no zone: use {moment.isoformat()}Z, or {own} for that of here")
    return moment
