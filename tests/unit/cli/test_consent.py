"""What cannot be undone: who is asked, who is refused, and which commands do so."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from slicebus.cli import screen
from slicebus.cli.consent import Consent
from slicebus.cli.main import app
from slicebus.proto.errors import ConfigurationError

ACT = "this deletes 3 things"
LOSES = {
    ("dead", "discard"),
    ("dead", "requeue"),
    ("fleet", "drain"),
    ("fleet", "release"),
    ("fleet", "repin"),
    ("fleet", "revoke"),
    ("queues", "stop"),
    ("redrive",),
    ("replay",),
}
"""The commands that end jobs or delete, overwrite or publish something."""


class Terminal:
    """A terminal with somebody who gives an answer."""

    def __init__(self) -> None:
        self.is_there = True
        self.answer = True
        self.asked: list[str] = []

    def confirm(self, question: str, **_: object) -> None:
        self.asked.append(question)
        if not self.answer:
            raise typer.Abort


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(screen, "can_ask", lambda: made.is_there)
    monkeypatch.setattr("typer.confirm", made.confirm)
    return made


def test_on_a_terminal_somebody_is_asked(terminal: Terminal) -> None:
    Consent().ask(ACT)
    assert terminal.asked == ["this deletes 3 things. Go on?"]
    terminal.answer = False
    with pytest.raises(typer.Abort):
        Consent().ask(ACT)


def test_without_a_terminal_it_is_refused(terminal: Terminal) -> None:
    terminal.is_there = False
    with pytest.raises(ConfigurationError, match="this deletes 3 things: --yes says that you mean it, --dry-run"):
        Consent().ask(ACT)


@pytest.mark.parametrize("consent", [Consent(yes=True), Consent(dry_run=True)], ids=["yes", "dry run"])
@pytest.mark.parametrize("is_there", [True, False], ids=["terminal", "pipe"])
def test_who_has_agreed_or_only_looks_is_not_asked(terminal: Terminal, consent: Consent, is_there: bool) -> None:
    terminal.is_there = is_there
    consent.ask(ACT)
    assert terminal.asked == []


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_every_command_that_loses_something_has_both_options() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    spelled = {path: {text for each in command.params for text in each.opts} for path, command in commands(root)}
    assert {path for path, options in spelled.items() if options >= {"--yes", "-y", "--dry-run"}} == LOSES
    assert {path for path, options in spelled.items() if "--dry-run" in options} == LOSES | {("queues", "resume")}
    assert not [path for path, options in spelled.items() if options & {"--go", "--dry", "--force-yes"}]
