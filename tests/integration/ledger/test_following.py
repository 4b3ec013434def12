"""A ledger follows the manager's stream, on both buses: what is there, what comes, and from where it ended."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sql

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.following import follow_into
from slicebus.cli.ledger.retention import Retention
from slicebus.cli.ledger.tables import OPEN_MS, grants
from slicebus.journal.entry import Entry
from slicebus.proto.topology import DECISIONS, manager_topology
from support.waiting import eventually
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
