"""`slicebus ledger`: writes what the journal says of use into a database."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.durations import duration
from slicebus.cli.journal.source import AmqpUrl, run_until_stopped
from slicebus.cli.ledger.options import DEFAULT_DATABASE, Database, ledger_extra
from slicebus.proto.errors import UnavailableError

if TYPE_CHECKING:
    import sqlalchemy as sql

    from slicebus.cli.ledger.following import Written
    from slicebus.cli.ledger.retention import Retention


def ledger(
    amqp_url: AmqpUrl,
    database: Database = DEFAULT_DATABASE,
    follow: Annotated[bool, typer.Option(help="Go on with what is recorded.")] = True,
    keep: Annotated[str, typer.Option(metavar="AGE", help="How long every grant, wait and kill is kept.")] = "90d",
    keep_days: Annotated[str, typer.Option(metavar="AGE", help="How long the sums of each day are kept.")] = "1095d",
    user_label: Annotated[
        str, typer.Option(metavar="LABEL", help="The label of a job that names its user: without it users are empty.")
    ] = "",
    alive: Annotated[
        str | None, typer.Option(metavar="FILE", help="Touch this file while it works, for a probe.")
    ] = None,
) -> None:
    """Follow the journal, and write who used what into a database.

    It makes the tables where they are not there. A restart goes on where it ended, and nothing is counted twice. Of two
    that write into one database, one ends with exit status 2. What the journal does not say is written as not known.
    A broker or a database that does not answer is tried again while it follows.
    """
    with ledger_extra():
        from slicebus.cli.ledger.database import open_engine, shown
        from slicebus.cli.ledger.retention import Retention
    retention = Retention(duration(keep, option="--keep"), duration(keep_days, option="--keep-days"))
    engine = open_engine(database, create=True)
    if follow:
        screen.warn(f"following the journal into {shown(engine)}")
    file = Path(alive) if alive is not None else None

    async def write() -> "Written":
        if follow and (task := asyncio.current_task()):
            # A pod ends by SIGTERM, which does nothing to the first process of a container that has no handler for it.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await _write(amqp_url, engine, retention, user_label=user_label, follow=follow, alive=file)

    try:
        written = run_until_stopped(write()) if follow else asyncio.run(write())
    except asyncio.CancelledError:
        raise typer.Exit from None
    screen.say(f"{written.facts} facts written into {shown(engine)}, {written.days} days rolled up")


async def _write(
    amqp_url: str, engine: "sql.Engine", retention: "Retention", *, user_label: str, follow: bool, alive: "Path | None"
) -> "Written":
    from slicebus.ambient.backoff import Backoff
    from slicebus.cli.broker.connection import bus_of
    from slicebus.cli.ledger.database import migrate
    from slicebus.cli.ledger.following import follow_into, touch

    backoff, failures = Backoff(first_s=1.0, most_s=30.0), 0
    while True:
        if alive is not None:
            touch(alive)
        try:
            await asyncio.to_thread(migrate, engine)
            async with bus_of(amqp_url, name="slicebus ledger") as bus:
                return await follow_into(bus, engine, retention, user_label=user_label, follow=follow, alive=alive)
        except UnavailableError as error:
            if not follow:
                raise
            failures += 1
            screen.warn(f"{error}; it is tried again")
            await asyncio.sleep(backoff.pause_s(failures))
