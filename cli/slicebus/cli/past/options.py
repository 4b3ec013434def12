"""The options of commands that can show a moment of the past."""

from typing import Annotated

import typer

from slicebus.cli.cluster.options import Options, Watch
from slicebus.cli.journal.source import STREAM
from slicebus.cli.ledger.options import PastDatabase
from slicebus.proto.errors import ConfigurationError


class PastMoment(Options, frozen=True, kw_only=True):
    """Which moment, and whose journal has it."""

    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="As it was then, from what was recorded: 03:00, -15m, or 2026-01-31T03:00:00Z."
        ),
    ] = None
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="With --at: an exported journal instead of a broker.")
    ] = STREAM
    amqp_url: Annotated[
        str | None,
        typer.Option(envvar="AMQP_URL", show_envvar=True, help="With --at: the broker, as the manager or a viewer."),
    ] = None
    ledger: PastDatabase = None

    @property
    def has_journal(self) -> bool:
        """Whether a broker or a file is named."""
        return self.source != STREAM or bool(self.amqp_url)

    def asked(self, watch: Watch) -> str | None:
        """The moment that was asked for; None for the present. Raises ConfigurationError for options that do not go
        together."""
        if self.at is not None and watch.watch:
            raise ConfigurationError("--at and --watch exclude each other")
        if self.at is None and self.source != STREAM:
            raise ConfigurationError("--from is for --at: the present is on the cluster")
        return self.at
