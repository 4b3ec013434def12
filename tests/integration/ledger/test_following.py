"""A ledger follows the manager's stream, on both buses: what is there, what comes, and from where it ended."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.ledger import following
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.following import follow_into
from slicebus.cli.ledger.retention import Retention
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.cli.ledger.tables import OPEN_MS, grants
from slicebus.journal.entry import Entry
from slicebus.proto.topology import DECISIONS, manager_topology
from support.processes import COMMAND_S
from support.waiting import eventually
from unit.cli.hostile import call
from unit.ledger.recorded import Leader, clock, gone, ms_of, put, workload

FOREVER = Retention(timedelta(days=9999), timedelta(days=9999))


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    """The manager's connection to an empty broker."""
    if request.param == "memory":
        url = f"memory://manager@{request.getfixturevalue('broker_name')}"
    else:
        url = request.getfixturevalue("rabbitmq").url(request.getfixturevalue("vhost"), "manager")
    made = await connect(url, name="test")
    await made.declare(manager_topology())
    yield made
    await made.aclose()


@pytest.fixture
def engine(tmp_path: Path) -> sql.Engine:
    made = open_engine(str(tmp_path / "ledger.db"), create=True)
    migrate(made)
    return made


def found(engine: sql.Engine) -> list[tuple[int, int, int]]:
    """The grants: beginning, end and pods."""
    with engine.connect() as connection:
        rows = connection.execute(sql.select(grants.c.since_ms, grants.c.until_ms, grants.c.pods)).all()
    return [tuple(row) for row in rows]  # type: ignore[misc]


async def publish(bus: Bus, *entries: Entry) -> None:
    for entry in entries:
        await bus.publish(DECISIONS, entry.record.message)


async def test_a_ledger_writes_what_is_new(bus: Bus, engine: sql.Engine) -> None:
    leader, running = Leader(), workload("a", 2, admitted=2)
    await publish(bus, leader.begins(0), leader.batch(5, clock(5), put(running)))
    first = await follow_into(bus, engine, FOREVER, follow=False)
    assert (first.facts > 0, found(engine)) == (True, [(ms_of(5), OPEN_MS, 2)])
    assert (await follow_into(bus, engine, FOREVER, follow=False)).facts == 0
    await publish(bus, leader.batch(9, clock(9), gone("a")))
    assert (await follow_into(bus, engine, FOREVER, follow=False)).facts == 2
    assert found(engine) == [(ms_of(5), ms_of(9), 2)]


async def test_a_ledger_goes_on_with_what_comes(bus: Bus, engine: sql.Engine) -> None:
    leader, running = Leader(), workload("a", 2, admitted=2)
    await publish(bus, leader.begins(0))
    following = asyncio.create_task(follow_into(bus, engine, FOREVER, follow=True), name="ledger")
    try:
        await publish(bus, leader.batch(5, clock(5), put(running)))

        async def has_begun() -> bool:
            return found(engine) == [(ms_of(5), OPEN_MS, 2)]

        await eventually(has_begun, "the grant is written")
        await publish(bus, leader.batch(9, clock(9), gone("a")))

        async def has_ended() -> bool:
            return found(engine) == [(ms_of(5), ms_of(9), 2)]

        await eventually(has_ended, "its end is written")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_days_are_rolled_up_on_the_way(bus: Bus, engine: sql.Engine) -> None:
    leader, day_s = Leader(), 86_400
    await publish(bus, leader.begins(0), leader.batch(5, clock(5), put(workload("a", 2, admitted=2))))
    await publish(bus, leader.batch(2 * day_s, clock(2 * day_s)))
    assert (await follow_into(bus, engine, FOREVER, follow=False)).days == 2


async def test_it_touches_a_file_while_it_works_and_not_while_a_write_goes_on(
    bus: Bus, engine: sql.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_TOUCH_EVERY_S", 0.01)
    alive, silent = tmp_path / "alive", threading.Event()
    leader, write = Leader(), LedgerStore.write
    await publish(bus, leader.begins(0))

    def slow(*arguments: Any) -> ReadPosition:
        silent.wait()
        return write(*arguments)

    async def has_touched() -> bool:
        alive.unlink(missing_ok=True)
        await asyncio.sleep(0.1)
        return alive.exists()

    task = asyncio.create_task(follow_into(bus, engine, FOREVER, follow=True, alive=alive), name="ledger:alive")
    try:
        await eventually(has_touched, "it works")
        monkeypatch.setattr(LedgerStore, "write", slow)
        await publish(bus, leader.batch(5, clock(5), put(workload("a", 2, admitted=2))))

        async def is_silent() -> bool:
            return not await has_touched()

        await eventually(is_silent, "the database is silent")
        silent.set()
        await eventually(has_touched, "it works again")
    finally:
        silent.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("database", ["l.db", "postgresql://ledger@127.0.0.1:1/ledger"], ids=["broker", "database"])
def test_what_is_away_at_the_start_is_waited_for_and_sigterm_ends_that(tmp_path: Path, database: str) -> None:
    alive, where = tmp_path / "alive", database if ":" in database else str(tmp_path / database)
    options = ("--amqp-url", "amqp://guest@127.0.0.1:1", "--database", where, "--alive", str(alive))
    command = [Path(sys.executable).with_name("slicebus"), "ledger", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "it is tried again" not in process.stderr.readline():
            assert process.poll() is None
        assert alive.exists(), "it works meanwhile"
        process.terminate()
        assert process.wait(COMMAND_S) == 0


def test_a_file_that_cannot_be_touched_is_an_error(tmp_path: Path) -> None:
    database = ("--amqp-url", "amqp://guest@127.0.0.1:1", "--database", str(tmp_path / "l.db"))
    done = call("ledger", *database, "--alive", str(tmp_path / "none" / "alive"))
    assert (done.status, done.out) == (2, "")
    assert "--alive" in done.err
    assert "No such file or directory" in done.err
