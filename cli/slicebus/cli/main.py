"""The `slicebus` command line."""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import typer

from slicebus.cli import screen
from slicebus.cli.commands import ImportedGroup
from slicebus.cli.entry import ROLES
from slicebus.proto.errors import SlicebusError
from slicebus.runtime.logs import configure_logging

_PLUGIN = "kubectl-slicebus"
"""The name by which kubectl finds it."""
COMPLETES = "_SLICEBUS_COMPLETE"
"""The variable by which a shell asks for completions."""

app = typer.Typer(
    name="slicebus",
    cls=ImportedGroup,
    help="Elastic batch jobs on many Kubernetes clusters, under one quota.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Boxes take a third of 80 columns, and cut names off.
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(show_version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    # An error says what failed, in one line: no library logs it too. The roles and the demo log as they are set up to.
    configure_logging(format="console", level="CRITICAL")
    if show_version:
        screen.say(version("slicebus"))
        raise typer.Exit


@app.command()
def manager() -> None:
    """Run the manager.

    It creates workload slices, admits them, and sends them to the agents.
    """
    import_module(ROLES["manager"]).run()


@app.command()
def agent() -> None:
    """Run the agent of one worker cluster.

    It watches jobs, requests resizes, and carries out the manager's orders.
    """
    import_module(ROLES["agent"]).run()


def main() -> None:
    """Run a command. An error that the user can repair is one line and exit status 2."""
    sys.excepthook = screen.show_unexpected
    if COMPLETES in os.environ:
        os.environ["COLUMNS"] = "10000"  # A shell takes each line for a word, so that help may not be wrapped.
    try:
        app(prog_name=_name_of(sys.argv[0]))
    except SlicebusError as error:
        screen.fail(f"slicebus: {error}")
        sys.exit(2)


def _name_of(program: str) -> str:
    """How the user has called this: help and errors repeat it."""
    return "kubectl slicebus" if Path(program).stem == _PLUGIN else "slicebus"
