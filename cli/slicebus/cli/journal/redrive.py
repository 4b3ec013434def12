"""`slicebus redrive`: publishes recorded messages to the live bus again."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
import typer

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.letters import MessageRequeue
from slicebus.cli import screen
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.cluster.options import with_options
from slicebus.cli.consent import Consent
from slicebus.cli.dead_letters.actions import Republisher
from slicebus.cli.journal.known import Recorded
from slicebus.cli.journal.source import (
    STREAM,
    MessageFilter,
    Since,
    Source,
    Span,
    Until,
    entries,
)
from slicebus.cli.progress import WorkProgress
from slicebus.journal.entry import Entry, Filter
from slicebus.journal.redrive import NewestMessages, NotRedriven, redrive
from slicebus.proto.errors import ConfigurationError, NotFoundError

_OFFSETS = re.compile(r"(\d+)?(-)?(\d+)?")


@with_options
def command(
    source: Source,
    amqp_url: Annotated[
        str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The live broker, as the manager's user.")
    ],
    *,
    filter: MessageFilter,
    since: Since = None,
    until: Until = None,
    offsets: Annotated[
        str | None, typer.Option(metavar="FROM-TO", help="Only these offsets of the journal: 17, 17-40, 17-.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Every message: needed without any other option.")] = False,
    consent: Consent,
) -> None:
    """Publish recorded messages again, under their ids and senders.

    Safe to repeat: receivers ignore duplicates. It leaves messages that a newer one about their job has overtaken, and
    reports of a past state. It shows what it would publish, and asks; without a terminal it needs --yes or --dry-run.
    Exit status 1 when something could not be published.
    """
    chosen = (*msgspec.structs.astuple(filter), since, until, offsets)
    if not all and not any(chosen):
        options = "--cluster, --job, --type, --correlation, --since, --until, --offsets"
        raise typer.BadParameter(f"say which: {options}, or --all")
    span = Span.of(since, until)
    by_content = filter.matching(until=span.until)
    within = offset_range(offsets) if offsets else None

    def wanted(entry: Entry) -> bool:
        return (within is None or entry.offset in within) and by_content(entry)

    recorded = Recorded()
    selected = asyncio.run(_select(source, span, recorded.noting(wanted), amqp_url, consent))
    if not selected.messages:
        asyncio.run(recorded.explain(filter.cluster, filter.job, amqp_url=amqp_url if source == STREAM else None))
        return
    is_shown_first = not consent.yes or consent.dry_run or not selected.count
    fine = not is_shown_first or asyncio.run(_publish(selected, amqp_url, dry_run=True))
    if selected.count and not consent.dry_run:
        consent.ask(f"this publishes {selected.count} messages again")
        fine = asyncio.run(_publish(selected, amqp_url, dry_run=False))
    if not fine:
        raise typer.Exit(1)


class SelectedMessages(msgspec.Struct, frozen=True):
    """The messages that were asked for, what the live journal has had since, and how many may be published again."""

    messages: list[Entry]
    since: NewestMessages
    count: int


async def _select(source: str, span: Span, wanted: Filter, amqp_url: str, consent: Consent) -> SelectedMessages:
    async with bus_of(amqp_url, name="slicebus redrive") as bus:
        consent.check("this publishes messages again")
        with WorkProgress("read", "records") as progress:
            messages, since = await select(source, span, wanted, amqp_url=amqp_url, progress=progress)
        decided = [redrive(entry, since, manager=bus.user) for entry in messages]
    return SelectedMessages(messages, since, sum(isinstance(each, MessageRequeue) for each in decided))


async def _publish(selected: SelectedMessages, amqp_url: str, *, dry_run: bool) -> bool:
    async with bus_of(amqp_url, name="slicebus redrive") as bus:
        with WorkProgress("redrive", "messages", total=len(selected.messages)) as progress:
            return await publish(bus, selected.messages, selected.since, dry_run=dry_run, progress=progress)


async def select(
    source: str, span: Span, wanted: Filter, *, amqp_url: str, progress: WorkProgress | None = None
) -> tuple[list[Entry], NewestMessages]:
    """The wanted messages, each once, and the newest messages of the live journal since the first of them."""
    since, messages = NewestMessages(), []
    if source != STREAM:
        async with aclosing(entries(source, span, wanted, amqp_url=None)) as read:
            messages = [entry async for entry in read]
        moments = [entry.published for entry in messages if entry.published]
        if not moments:
            return messages, since
        span = Span(since=min(moments))
    live = entries(STREAM, Span(since=span.since), lambda entry: True, amqp_url=amqp_url, progress=progress)
    async with aclosing(live) as read:
        async for entry in read:
            since.see(entry)
            if source == STREAM and wanted(entry):
                messages.append(entry)
    return _each_once(messages), since


def offset_range(text: str) -> range:
    """The range of `17`, `17-40`, `17-` or `-40`, with both ends. Raises ConfigurationError."""
    match = _OFFSETS.fullmatch(text)
    if match is None or not (match[1] or match[3]):
        raise ConfigurationError(f"--offsets {text}: use 17, 17-40, 17- or -40")
    first = int(match[1] or 0)
    last = int(match[3]) if match[3] else first if not match[2] else 2**62
    return range(first, last + 1)


def _each_once(messages: Sequence[Entry]) -> list[Entry]:
    """The entries, each message id once: a redriven message is in the journal twice."""
    first: dict[str, Entry] = {}
    for entry in messages:
        first.setdefault(entry.record.message.message_id or f"offset {entry.offset}", entry)
    return list(first.values())


async def publish(
    bus: Bus, messages: Sequence[Entry], since: NewestMessages, *, dry_run: bool, progress: WorkProgress | None = None
) -> bool:
    """Publish every message that may be published again, in order, and print each. False when one failed."""
    publisher, fine = Republisher(bus, dry_run=dry_run), True
    of_a_moment: Counter[tuple[str, str]] = Counter()
    for entry in messages:
        if progress is not None:
            progress.step()
        decided = redrive(entry, since, manager=bus.user)
        if isinstance(decided, NotRedriven) and decided.of_a_moment:
            of_a_moment[entry.type, decided.why] += 1
            continue
        verb, why = "would redrive" if dry_run else "redrive", ""
        if isinstance(decided, MessageRequeue):
            try:
                why = await publisher(decided)
            except NotFoundError as error:
                verb, why, fine = "failed", str(error), False
        else:
            verb, why = "left", decided.why
        screen.say(f"{verb} {entry.offset} {entry.cluster}.{entry.type} {entry.subject}: {why}")
    for (type, why), count in sorted(of_a_moment.items()):
        screen.say(f"left {count} {type}: outdated, {why}")
    return fine
