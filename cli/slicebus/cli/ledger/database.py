"""Opens the database of the ledger: a file of SQLite, or a PostgreSQL by its address. Needs the extra `ledger`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite

from slicebus.proto.errors import ConfigurationError, InvalidError, UnavailableError

OPTION = "--database"
_POSTGRESQL = ("postgresql", "postgres")
_POOL = sql.NullPool
"""A pool leaves its connections to the collector of garbage: a page that reads moments would hold one for each."""
_PRIVATE = 0o600
_MIGRATION_LOCK = 0x51BE
"""The number of an advisory lock of PostgreSQL: any that nobody else takes in this database."""
_BUSY_S = 30
"""How long a writer of SQLite waits for another."""


def open_engine(address: str, *, create: bool = False, option: str = OPTION) -> sql.Engine:
    """The engine of a file's path, or of an address `postgresql://…`. Raises ConfigurationError, with the option.

    `create`: for the ledger's writer. A file that it makes is for its owner alone.
    """
    scheme, is_address, _ = address.partition("://")
    if not is_address:
        _check_file(Path(address), create=create, option=option)
        url, options = sql.URL.create("sqlite", database=address), {"timeout": _BUSY_S}
        engine = sql.create_engine(url, connect_args=options, poolclass=_POOL)
        if create:
            sql.event.listen(engine, "connect", _set_up)
        return engine
    if scheme not in _POSTGRESQL:
        raise ConfigurationError(f"{option}: {scheme} is no database of the ledger: use a file, or postgresql://")
    try:
        url = sql.make_url(address).set(drivername="postgresql+psycopg")
    except (exc.ArgumentError, ValueError) as error:
        raise ConfigurationError(f"{option}: not an address as postgresql://user@host/name") from error
    return sql.create_engine(url, module=psycopg, poolclass=_POOL)


def shown(engine: sql.Engine) -> str:
    """The database for people, without a password."""
    return engine.url.render_as_string(hide_password=True) if engine.url.host else f"{engine.url.database}"


def migrate(engine: sql.Engine) -> None:
    """Make the tables, or bring them to this version: all of it or nothing, also where two do so at once. Raises the
    errors of `database_errors`."""
    with database_errors(engine), engine.begin() as connection:
        _lock(connection)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check(engine: sql.Engine, *, option: str = OPTION) -> None:
    """Raises ConfigurationError for a database that is no ledger of this version, and changes nothing."""
    with database_errors(engine), engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    if found != (head := ScriptDirectory.from_config(_config()).get_current_head()):
        what = f"its tables are of version {found}, not {head}" if found else "it has no ledger"
        raise ConfigurationError(f"{option} {shown(engine)}: {what}; `slicebus ledger` brings it to this version")


def insert(connection: sql.Connection, table: sql.Table) -> "sqlite.Insert | postgresql.Insert":
    """An insert of the dialect, which knows what to do with a row that is there."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


@contextmanager
def one_moment(engine: sql.Engine) -> Iterator[sql.Connection]:
    """A connection that reads everything as it was at its first read, whatever a ledger writes meanwhile. Raises the
    errors of `database_errors`."""
    with database_errors(engine), engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")  # Python begins none for a read.
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
        yield connection


@contextmanager
def database_errors(engine: sql.Engine) -> Iterator[None]:
    """Translate the errors of the database. Raises UnavailableError where it cannot be used now, InvalidError where it
    refuses what it is asked."""
    try:
        yield
    except exc.OperationalError as error:
        raise UnavailableError(f"the database {shown(engine)} cannot be used: {_words(error)}") from error
    except exc.DBAPIError as error:
        raise InvalidError(f"the database {shown(engine)} refuses: {_words(error)}") from error


def _check_file(path: Path, *, create: bool, option: str) -> None:
    """Raises ConfigurationError for a file that cannot be used."""
    try:
        if create:
            path.touch(mode=_PRIVATE)
        elif not path.is_file():
            raise ConfigurationError(f"{option} {path}: there is no such file; `slicebus ledger` makes it")
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror or error}") from error


def _lock(connection: sql.Connection) -> None:
    """Wait until nobody else changes the tables, up to the end of the transaction."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # Python begins none for a change of tables.
    else:
        connection.execute(sql.select(sql.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))


def _words(error: exc.DBAPIError) -> str:
    return " ".join(str(error.orig).split())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _set_up(connection: Any, _: object) -> None:
    """Let readers read while the ledger writes. A write that is lost with the machine is lost with its position."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
