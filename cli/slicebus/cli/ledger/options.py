"""The options of the commands that use a ledger, and what they say without the packages that it needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from slicebus.proto.errors import ConfigurationError

DEFAULT_DATABASE = "ledger.db"
DATABASE_VARIABLE = "LEDGER_DATABASE"
LEDGER_OPTION = "--ledger"
"""By which commands that read the past name one."""
Database = Annotated[
    str,
    typer.Option(
        envvar=DATABASE_VARIABLE,
        show_envvar=True,
        help="The ledger: a file of SQLite, or postgresql://user@host/name.",
    ),
]
PastDatabase = Annotated[
    str | None,
    typer.Option(
        LEDGER_OPTION,
        envvar=DATABASE_VARIABLE,
        show_envvar=True,
        metavar="DATABASE",
        help="A ledger, for a past that the journal does not have, or without one.",
    ),
]


def check_address(address: str) -> None:
    """Raise ConfigurationError for an address of `LEDGER_OPTION` that cannot work. The database is not asked."""
    with ledger_extra():
        from slicebus.cli.ledger.database import open_engine

    open_engine(address, option=LEDGER_OPTION).dispose()


@contextmanager
def ledger_extra() -> Iterator[None]:
    """Raise ConfigurationError where what is imported within needs the extra `ledger`, and it is not installed."""
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(f"it needs the extra ledger, pip install 'slicebus[ledger]': {error}") from error
