"""`slicebus dead`: lists, requeues and discards dead letters."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import orjson
import typer

from slicebus.bus.contract import Bus
from slicebus.bus.dead_letters.letters import Choice, DeadLetter, LetterSelection
from slicebus.cli import screen
from slicebus.cli.broker.connection import bus_of
from slicebus.cli.cluster.filters import option_of, unknown
from slicebus.cli.cluster.options import Options, with_options
from slicebus.cli.consent import Consent
from slicebus.cli.dead_letters.actions import Act, Requeuer, messages, settle, survey
from slicebus.cli.dead_letters.actions import discard as discard_one
from slicebus.cli.dead_letters.pages import in_full, table, to_json
from slicebus.cli.durations import duration
from slicebus.cli.journal.known import has_queue
from slicebus.cli.progress import WorkProgress
from slicebus.proto.errors import ConfigurationError, DeadReason
from slicebus.proto.messages import MESSAGES

dead = typer.Typer(help="List dead letters, and requeue or discard them.", no_args_is_help=True)

AmqpUrl = Annotated[
    str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker, as the manager's user: amqps://.")
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, or their ends as `list` shows them.")]
All = Annotated[bool, typer.Option("--all", help="Every dead letter: needed without any other option.")]
AgentUser = Annotated[
    list[str] | None,
    typer.Option(metavar="CLUSTER=USER", help="The broker user of an agent that is not named as its cluster."),
]

_Result = TypeVar("_Result")


class LetterFilter(Options, frozen=True, kw_only=True):
    """Which dead letters; None is no condition."""

    cluster: Annotated[str | None, typer.Option(help="Only this cluster.")] = None
    type: Annotated[
        str | None,
        option_of(tuple(MESSAGES), "message type", help="Only this message type, such as scale-request."),
    ] = None
    reason: Annotated[
        DeadReason | None,
        option_of(
            DeadReason,
            "reason",
            help=f"Only messages that were dead-lettered for this reason: {', '.join(DeadReason)}.",
        ),
    ] = None
    older_than: Annotated[
        str | None, typer.Option(help="Only messages dead-lettered at least so long ago: 90s, 10m, 2h, 3d.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many, the oldest.")] = None

    def selection(self, ids: Iterable[str] = ()) -> LetterSelection:
        """The same as a selection, with these ids. Raises ConfigurationError for an invalid duration."""
        return LetterSelection(
            ids=tuple(ids),
            cluster=self.cluster,
            type=self.type,
            reason=self.reason,
            older_than=duration(self.older_than, option="--older-than") if self.older_than else None,
            limit=self.limit,
        )


def _now() -> datetime:
    return datetime.now(UTC)


@dead.command("list")
@with_options
def list_(
    amqp_url: AmqpUrl,
    *,
    filter: LetterFilter,
    json: Annotated[bool, typer.Option("--json", help="Print JSON Lines.")] = False,
) -> None:
    """Print the dead letters, oldest first."""
    letters = _chosen(amqp_url, filter.selection()).letters
    now = _now()
    if json:
        for letter in letters:
            screen.say_json(orjson.dumps(to_json(letter, now)))
    elif letters:
        for line in table(letters, now):
            screen.show(line)
    else:
        screen.warn("no dead letters")


@dead.command()
def show(
    amqp_url: AmqpUrl,
    id: Annotated[str, typer.Argument(help="An id, or its end as `list` shows it.")],
    redact: Annotated[bool, typer.Option(help="Take secrets out.")] = True,
) -> None:
    """Print a dead letter in full. Exit status 1 when there is none with that id."""
    choice = _chosen(amqp_url, LetterSelection(ids=(id,)))
    problems = _problems(choice)
    if not problems:

        async def print_all(bus: Bus) -> None:
            async with aclosing(messages(bus, choice.letters)) as whole:
                async for message in whole:
                    screen.say_lines(in_full(message, _now(), redact=redact))

        _run(amqp_url, print_all)
    _report(problems)


@dead.command()
@with_options
def requeue(
    amqp_url: AmqpUrl,
    ids: Ids = None,
    *,
    filter: LetterFilter,
    all: All = False,
    agent_user: AgentUser = None,
    consent: Consent,
) -> None:
    """Send dead letters back to the queues they came from.

    Safe to repeat: receivers ignore duplicates. It asks first; without a terminal it needs --yes. Exit status 1
    when an id was not found, or a letter could not be sent back.
    """
    wanted = _narrowed(filter.selection(ids or ()), all=all)
    agents = dict(map(_agent_user, agent_user or ()))
    _act(amqp_url, wanted, "requeue", lambda bus: Requeuer(bus, agents=agents, dry_run=consent.dry_run), consent)


@dead.command()
@with_options
def discard(
    amqp_url: AmqpUrl,
    ids: Ids = None,
    *,
    filter: LetterFilter,
    all: All = False,
    consent: Consent,
) -> None:
    """Delete dead letters. The journal keeps its copies.

    It asks first; without a terminal it needs --yes. Exit status 1 when an id was not found.
    """
    wanted = _narrowed(filter.selection(ids or ()), all=all)
    _act(amqp_url, wanted, "discard", lambda bus: discard_one, consent)


def _act(url: str, wanted: LetterSelection, word: str, act: Callable[[Bus], Act], consent: Consent) -> None:
    """Choose, confirm, act. No message is held while the user is asked."""
    choice = _chosen(url, wanted)
    problems = _problems(choice)
    if choice.letters:
        _ask(choice.letters, word, consent)

    async def run(bus: Bus) -> bool:
        fine = True
        settled = settle(bus, choice.letters, act(bus), dry_run=consent.dry_run)
        with WorkProgress(word, "dead letters", total=len(choice.letters)) as progress:
            async with aclosing(settled) as outcomes:
                async for outcome in outcomes:
                    progress.step()
                    letter = outcome.letter
                    verb = consent.would(word) if outcome.done else "left"
                    screen.say(f"{verb} {letter.short_id} {letter.cluster}.{letter.type}: {outcome.text}")
                    fine = fine and outcome.done
        return fine

    fine = _run(url, run)
    if not choice.letters and not problems:
        screen.warn("no dead letters")
    _report(problems, fine=fine)


def _chosen(url: str, wanted: LetterSelection) -> Choice:
    """The wanted letters. Raises ConfigurationError, with the nearest name, where there are none and their cluster is
    unknown."""

    async def look(bus: Bus) -> Choice:
        choice = await survey(bus, wanted, _now)
        if wanted.cluster is not None and not choice.letters and not await has_queue(bus, wanted.cluster):
            all_letters = (await survey(bus, LetterSelection(), _now)).letters
            known = {letter.cluster for letter in all_letters}
            raise ConfigurationError(unknown(wanted.cluster, "cluster", known))
        return choice

    return _run(url, look)


def _ask(letters: Sequence[DeadLetter], word: str, consent: Consent) -> None:
    act = f"this {word}s {len(letters)} dead letters"
    consent.check(act)
    if not (consent.yes or consent.dry_run):
        for line in table(letters, _now()):
            screen.show(line)
    consent.ask(act)


def _run(url: str, main: Callable[[Bus], Awaitable[_Result]]) -> _Result:
    async def run() -> _Result:
        async with bus_of(url, name="slicebus dead") as bus:
            return await main(bus)

    return asyncio.run(run())


def _problems(choice: Choice) -> list[str]:
    """The ids that name no message, or several."""
    several = "several messages have an id that ends so: give more of it"
    return [*(f"{text}: not found" for text in choice.missing), *(f"{text}: {several}" for text in choice.ambiguous)]


def _report(problems: Sequence[str], *, fine: bool = True) -> None:
    """Print the problems, and exit with status 1 if there are any."""
    for problem in problems:
        screen.warn(problem)
    if problems or not fine:
        raise typer.Exit(1)


def _narrowed(wanted: LetterSelection, *, all: bool) -> LetterSelection:
    if wanted.is_everything and not all:
        raise typer.BadParameter("say which: ids, --cluster, --type, --reason, --older-than, --limit, or --all")
    return wanted


def _agent_user(text: str) -> tuple[str, str]:
    cluster, _, user = text.partition("=")
    if not (cluster and user):
        raise ConfigurationError(f"--agent-user {text}: use CLUSTER=USER")
    return cluster, user
