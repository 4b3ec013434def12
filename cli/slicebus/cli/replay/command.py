"""`slicebus replay`: makes recorded decisions again with this version, and compares them."""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.options import with_options
from slicebus.cli.consent import Consent
from slicebus.cli.journal.source import STREAM, Since, Source, Span, entries, records
from slicebus.cli.progress import WorkProgress
from slicebus.proto.errors import ConfigurationError, InvalidError

if TYPE_CHECKING:
    from slicebus.bus.contract import Record as StreamRecord
    from slicebus.decisions.replay import Position, Replayed, Replayer
    from slicebus.journal.entry import Entry
    from slicebus.journal.recording import Source as Leader

_OBJECTS = 1_000_000
"""New containers between two garbage collections; Python's default is 700."""


@with_options
def replay(
    source: Source,
    amqp_url: Annotated[str | None, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker.")] = None,
    since: Since = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="OFFSET", help="Stop after this offset of the journal; 17.3 is a record of it."),
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Print each decision and wait for a key.")] = False,
    state: Annotated[
        bool,
        typer.Option("--state", help="At the end, show the job states of manager and agents, and their differences."),
    ] = False,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Write this version's decisions into the file as the expected ones."),
    ] = False,
    *,
    consent: Consent,
) -> None:
    """Make the recorded decisions again with this version.

    Stops at the first that differs, with exit status 1. With --accept it asks before it writes, and without a terminal
    it needs --yes.
    """
    from slicebus.cli.replay.page import MODELS
    from slicebus.decisions.replay import WINDOW, Replayer

    if accept:
        _accept(source, consent)
    # Single steps, and the job states where the replay stops, need everything in the order of the recording.
    run = _Run(Replayer(MODELS), until=_position(until), step=step, window=1 if step or state else WINDOW)
    with few_collections():
        asyncio.run(run.read(source, Span.of(since), amqp_url))
    run.report(state=state)
    if run.different is not None:
        raise typer.Exit(1)
    if not run.made and until is None:
        raise InvalidError(f"{source}: no decision in it can be made again")


@contextmanager
def few_collections() -> Iterator[None]:
    """Collect garbage seldom: a recording has many long-lived objects and no cycles, and collecting took a fifth of the
    time."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class _Run:
    """One replay of a recording."""

    def __init__(self, replayer: "Replayer", *, until: "Position | None", step: bool, window: int) -> None:
        self.made: Counter[Leader] = Counter()
        self.different: Replayed | None = None
        self._replayer = replayer
        self._until = until
        self._step = step
        self._window = window

    async def read(self, source: str, span: Span, amqp_url: str | None) -> None:
        """Feed the recording until it ends or a decision differs."""
        with WorkProgress("replay", "records") as progress:
            recording = entries(
                source,
                span,
                lambda entry: entry.is_decisions,
                amqp_url=amqp_url,
                decisions=True,
                progress=None if self._step else progress,
            )
            async with aclosing(recording), aclosing(self._windows(recording)) as windows:
                async for window in windows:
                    self._feed(window)
                    if self.different is not None:
                        return

    async def _windows(self, recording: "AsyncGenerator[Entry, None]") -> "AsyncGenerator[list[StreamRecord], None]":
        """The records to feed together. Those before an unreadable record are fed before its error is raised."""
        window: list[StreamRecord] = []
        try:
            async for entry in recording:
                if self._until is not None and entry.offset > self._until.offset:
                    break
                window.append(entry.record)
                if len(window) == self._window:
                    yield window
                    window = []
        except InvalidError:
            yield window
            raise
        yield window

    def _feed(self, window: "list[StreamRecord]") -> None:
        for decision in self._replayer.feed_together(window, until=self._until):
            self.made[decision.source] += 1
            if self._step:
                self._show(decision)
            if not decision.same:
                self.different = decision
                return

    def report(self, *, state: bool) -> None:
        """Print the result."""
        from slicebus.cli.replay.page import by_source, in_full, passed_over
        from slicebus.cli.replay.page import state as shown

        if self.different is not None:
            screen.show(in_full(self.different))
            screen.show(f"decision {self.made.total()} differs")
        else:
            screen.show(f"{self.made.total()} decisions made again, none differs")
            if self.made:
                screen.show(by_source(self.made), style="dim")
        for text in passed_over(self._replayer):
            screen.show(text, style="yellow")
        if state:
            screen.show(shown(self._replayer))

    def _show(self, decision: "Replayed") -> None:
        from slicebus.cli.replay.page import in_full

        screen.show(in_full(decision))
        if sys.stdin.isatty():
            typer.getchar()


def _accept(source: str, consent: Consent) -> None:
    """Replace the recorded decisions with those of this version."""
    from slicebus.cli.replay.accepted import accepted, write
    from slicebus.cli.replay.page import MODELS
    from slicebus.decisions.replay import Replayer

    if source in (STREAM, "-"):
        raise ConfigurationError("--accept changes a file, and nothing else")
    replayer, written, different = Replayer(MODELS), [], 0

    async def read() -> None:
        nonlocal different
        with WorkProgress("replay", "records") as progress:
            async with aclosing(records(source, amqp_url=None, progress=progress)) as recording:
                async for record in recording:
                    decisions = list(replayer.feed(record))
                    different += sum(not decision.same for decision in decisions)
                    written.append(accepted(record, decisions))

    asyncio.run(read())
    if different:
        consent.ask(f"this writes {different} other decisions into {source} over those that were recorded")
    if not consent.dry_run:
        write(Path(source), written)
    screen.say(f"{different} decisions {'would be ' if consent.dry_run else ''}accepted")


def _position(text: str | None) -> "Position | None":
    from slicebus.decisions.replay import Position

    try:
        return Position.parse(text) if text is not None else None
    except ValueError as error:
        raise ConfigurationError(f"--until {text}: use an offset such as 17, or 17.3") from error
