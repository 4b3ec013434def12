"""Every command for people, by name. A command's module is imported when somebody calls it, or reads the help of all:
together they take most of a second of processor time to import, and one call needs one."""

from collections import UserDict
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from slicebus.cli import screen

if TYPE_CHECKING:
    from typer._click import Command, Context

COMMANDS: Mapping[str, str] = {
    "demo": "slicebus.cli.demo.command:demo",
    "doctor": "slicebus.cli.doctor.command:doctor",
    "jobs": "slicebus.cli.jobs.command:jobs",
    "top": "slicebus.cli.top.command:top",
    "tree": "slicebus.cli.jobs.tree_command:tree",
    "wait": "slicebus.cli.jobs.waiting:wait",
    "explain": "slicebus.cli.explain.command:explain",
    "simulate": "slicebus.cli.simulate.command:simulate",
    "diff": "slicebus.cli.difference.command:diff",
    "whatif": "slicebus.cli.whatif.command:whatif",
    "trace": "slicebus.cli.trace.command:trace",
    "view": "slicebus.cli.view.command:view",
    "replay": "slicebus.cli.replay.command:replay",
    "redrive": "slicebus.cli.journal.redrive:command",
    "queues": "slicebus.cli.queues.command:queues",
    "ledger": "slicebus.cli.ledger.command:ledger",
    "usage": "slicebus.cli.usage.command:usage",
    "fleet": "slicebus.cli.fleet.command:fleet",
    "journal": "slicebus.cli.journal.command:journal",
    "dead": "slicebus.cli.dead_letters.command:dead",
    "broker": "slicebus.cli.broker.command:broker",
}
"""The function of each command, or the group of several, as `module:name`, in the order of the help."""
_READER_GONE = 141
"""The exit status of programs that SIGPIPE ends."""


class ImportedGroup(TyperGroup):
    """The group `slicebus`: `COMMANDS`, then those that are registered with it."""

    def __init__(self, *, commands: "Mapping[str, Command] | None" = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _ImportedCommands({**COMMANDS, **(commands or {})})

    def invoke(self, ctx: "Context") -> Any:
        """Call a command. Where the reader of its output goes away, as `head` does, it has given no answer."""
        try:
            return super().invoke(ctx)
        except* BrokenPipeError:
            screen.flush_nowhere()
        raise typer.Exit(_READER_GONE)

    def list_commands(self, ctx: "Context") -> list[str]:
        """Their names, in order, without importing any."""
        return list(self.commands)


class _ImportedCommands(UserDict[str, Any]):
    """Commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> "Command":
        command: Command | str = super().__getitem__(name)
        return _imported(name, command) if isinstance(command, str) else command


@cache
def _imported(name: str, place: str) -> "Command":
    module, _, attribute = place.partition(":")
    found, app = getattr(import_module(module), attribute), typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)
    return typer.main.get_group(app).commands[name]
