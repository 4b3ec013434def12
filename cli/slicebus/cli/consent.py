"""The consent to what cannot be undone: asked for on a terminal, given by `--yes` elsewhere; `--dry-run` needs none."""

from typing import Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.options import Options
from slicebus.proto.errors import ConfigurationError

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Consent(Options, frozen=True, kw_only=True):
    """Whether the user has agreed already, or only wants to see."""

    dry_run: DryRun = False
    yes: Yes = False

    def check(self, act: str) -> None:
        """Raise ConfigurationError where nobody can be asked. `act` says what the command does: `this deletes jobs`."""
        if not (self.dry_run or self.yes or screen.can_ask()):
            raise ConfigurationError(f"{act}: --yes says that you mean it, --dry-run only shows it")

    def ask(self, act: str) -> None:
        """Ask on a terminal, unless that is not needed. Raises ConfigurationError where nobody can be asked, and
        typer.Abort for a no."""
        self.check(act)
        if not (self.dry_run or self.yes):
            screen.confirm(f"{act}. Go on?")

    def would(self, verb: str) -> str:
        """`delete`, or in a dry run `would delete`."""
        return f"would {verb}" if self.dry_run else verb
