"""`slicebus whatif`: what would a recorded past have been with another policy?"""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.bus.contract import StreamOffset
from slicebus.cli import screen
from slicebus.cli.cluster.listing import show_one
from slicebus.cli.cluster.options import OutputFormat, with_options
from slicebus.cli.journal.source import STREAM, Span, records_of_manager
from slicebus.cli.ledger.options import PastDatabase, ledger_extra
from slicebus.journal.beginnings import BEFORE
from slicebus.proto.errors import ConfigurationError, InvalidError

if TYPE_CHECKING:
    from datetime import datetime

    from slicebus.manager.decide.whatif.asking import DrawnAnswer
    from slicebus.manager.decide.whatif.recorded_past import RecordedPast

_DOUBTED = 3
_DAY = "24h"
_NEAR_S = 60.0
"""A journal that begins so much later than asked is the past that was asked for."""


@with_options
def whatif(
    *,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota", metavar="QUEUE.RESOURCE=AMOUNT", help="Other quota: batch.cpu=+20%, batch.cpu@spot=64."
        ),
    ] = None,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="CLUSTER=AMOUNT", help="Other room: east=-50%, east.cpu@spot=+64."),
    ] = None,
    preemption: Annotated[
        list[str] | None,
        typer.Option(
            "--preemption", metavar="QUEUE.FIELD=POLICY", help="Other policy: batch.withinClusterQueue=LowerPriority."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="FILE", help="Queues, flavors, priority classes, clusters; as for diff."),
    ] = None,
    constant_work: Annotated[
        bool, typer.Option("--constant-work", help="With other sizes a run takes as many pod-seconds, not as long.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From then on: 24h, 7d; else a day, or a whole file.")
    ] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="An exported journal instead of a broker.")
    ] = STREAM,
    amqp_url: Annotated[
        str | None, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker, as the manager or a viewer.")
    ] = None,
    ledger: PastDatabase = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write a page with curves into this file, too.")
    ] = None,
    format: OutputFormat,
) -> None:
    """Say what a recorded past would have been by another policy.

    Jobs come, run and end as the journal or a ledger has it, and the manager's own code decides when they start, with
    other quota, clusters, preemption or objects. Each change is played alone, and all together. The unchanged policy is
    always played too: it shows how far an answer can be believed. Nothing is written.

    Exit status 0; 3 where less than 95% of the admissions come out as they were.
    """
    begin = Span.of(since or (_DAY if source == STREAM else None), None).since
    if not any((quota, clusters, preemption, policy)):
        raise ConfigurationError("say what to change: --quota, --clusters, --preemption or --policy")

    def ask(past: "RecordedPast") -> "DrawnAnswer":
        from slicebus.cli.cluster.deciding import asked
        from slicebus.cli.whatif.options import changes_of
        from slicebus.manager.decide.whatif import asking

        with asked("whatif"):
            changes = changes_of(
                past, quota=quota or (), clusters=clusters or (), preemption=preemption or (), policy=policy or ()
            )
            return asking.ask(past, changes, constant_work=constant_work)

    from slicebus.cli.replay.command import few_collections

    with few_collections():
        found = ask(_past(source, begin, amqp_url, ledger))

    if html is not None:
        from slicebus.cli.whatif.curves import html as page_of

        _write(html, page_of(found))

    def show_page() -> None:
        from slicebus.cli.whatif.page import page

        screen.show(page(found.answer))

    show_one(found.answer, format.output, name="whatif", page=show_page)
    if not found.answer.reproduction.is_enough:
        raise typer.Exit(_DOUBTED)


def _past(source: str, since: "datetime | None", amqp_url: str | None, ledger: str | None) -> "RecordedPast":
    """The past from then on: of the journal, or of a ledger where there is none, or it begins later."""
    if source != STREAM or not ledger:
        return asyncio.run(read_past(source, since, amqp_url=amqp_url))
    assert since is not None, "of a broker it is a day"
    if amqp_url:
        found = asyncio.run(_read(source, since, amqp_url=amqp_url))
        if found is not None and found.since <= since.timestamp() + _NEAR_S:
            return _playable(found)
        screen.warn("the journal begins later: this is from the ledger")
    with ledger_extra():
        from slicebus.cli.whatif.ledger_reading import read_ledger
    return _playable(read_ledger(ledger, since))


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--html {name}: {error.strerror or error}") from error


async def read_past(source: str, since: "datetime | None", *, amqp_url: str | None) -> "RecordedPast":
    """The past that the journal has from then on. Raises ConfigurationError, and InvalidError where it has nothing."""
    past = await _read(source, since, amqp_url=amqp_url)
    if past is None:
        raise InvalidError("the journal has no decisions of a manager from then on")
    return _playable(past)


async def _read(source: str, since: "datetime | None", *, amqp_url: str | None) -> "RecordedPast | None":
    from slicebus.cli.journal.turns import in_turns
    from slicebus.manager.decide.whatif.recorded_past import PastReader

    reader = PastReader(since.timestamp() if since is not None else None)
    start: StreamOffset = since - BEFORE if since is not None else "first"
    async with aclosing(in_turns(records_of_manager(source, start, amqp_url=amqp_url))) as records:
        async for record in records:
            reader.feed(record)
    return reader.past()


def _playable(past: "RecordedPast") -> "RecordedPast":
    """Raises ConfigurationError for a past that nobody can play."""
    if past.is_beside_kueue:
        raise ConfigurationError("a Kueue admitted there: only it knows what it would have decided")
    return past
