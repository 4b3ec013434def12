"""`slicebus ledger` follows the journal of a fleet, and `slicebus usage` says who used what."""

import asyncio
import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.cli.ledger import tables
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.following import follow_into
from slicebus.cli.ledger.retention import Retention
from slicebus.proto.errors import ConflictError
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually
from unit.cli.hostile import call


async def write(url: str, database: Path) -> str:
    """Write what there is, and say what the command has said."""
    done = await asyncio.to_thread(call, "ledger", "--amqp-url", url, "--database", str(database), "--no-follow")
    assert done.status == 0, done
    return done.out


def usage(database: Path, *more: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of `slicebus usage`, by what they are grouped by."""
    done = call("usage", "--database", str(database), "-o", "json", *more)
    assert done.status == 0, done
    return {(*row["group"].values(),): row for row in json.loads(done.out)["items"]}


async def test_a_fleets_life_is_counted_once(world: World, urls: dict[str, str], tmp_path: Path) -> None:
    await set_quota(world, 4)
    first, second = Scenario(world, "Job", "first"), Scenario(world, "Job", "second")
    await first.submit()
    await first.expect_pods(running=1)
    await first.scale(3)
    await first.expect_pods(running=3)
    await first.scale(6)
    await first.expect_pods(running=3, gated=3)
    ledger = tmp_path / "ledger.db"
    url = urls["manager"]

    async def has_wait() -> bool:
        await write(url, ledger)
        return usage(ledger)[("batch",)]["waitSeconds"] > 0

    await eventually(has_wait, "the ledger knows who waits")
    await world.manager.delete(first.resource, first.name, NAMESPACE)
    await first.expect_nothing_left()
    await second.submit()
    await second.expect_pods(running=1)

    async def has_all() -> bool:
        await write(url, ledger)
        engine = open_engine(str(ledger))
        with engine.connect() as connection:
            jobs = connection.execute(sql.select(tables.jobs.c.name)).scalars().all()
            ready = (
                connection.execute(sql.select(tables.grants.c.ready).where(tables.grants.c.until_ms == tables.OPEN_MS))
                .scalars()
                .all()
            )
        engine.dispose()
        return sorted(jobs) == ["first", "second"] and ready == [1]

    await eventually(has_all, "the ledger has both jobs, and the second one is ready")
    again = tmp_path / "again.db"
    await write(url, again)
    await write(url, ledger)
    until = json.loads(call("usage", "--database", str(again), "-o", "json").out)["until"]
    parts, whole = (usage(found, "--until", until, "--by", "queue,namespace,cluster") for found in (ledger, again))
    assert parts == whole
    assert {key[:2] for key in whole} == {("batch", NAMESPACE)}
    rows = [row for row in whole.values() if row["grantedPodSeconds"]]
    assert rows
    for row in rows:
        assert row["readyPodSeconds"] + row["idlePodSeconds"] == pytest.approx(row["grantedPodSeconds"])
        assert row["resourceHours"]["cpu"]["granted"] == pytest.approx(row["grantedPodSeconds"] / 3600)
    table = call("usage", "--database", str(ledger))
    assert table.out.splitlines()[0].split()[:2] == ["QUEUE", "POD"]
    [line] = csv.DictReader(io.StringIO(call("usage", "--database", str(ledger), "-o", "csv").out))
    assert line["queue"] == "batch"
    assert float(line["granted_pod_seconds"]) > 0


async def test_of_two_that_follow_one_ends_and_nothing_is_counted_twice(
    world: World, urls: dict[str, str], tmp_path: Path
) -> None:
    await set_quota(world, 4)
    job = Scenario(world, "Job", "followed")
    engine, forever = open_engine(str(tmp_path / "ledger.db"), create=True), timedelta(days=9999)
    migrate(engine)
    bus = await connect(urls["manager"], name="test")
    follow = [
        asyncio.create_task(follow_into(bus, engine, Retention(forever, forever), follow=True), name=f"ledger-{number}")
        for number in (1, 2)
    ]
    try:
        await job.submit()
        await job.expect_pods(running=1)
        done, going_on = await asyncio.wait(follow, return_when=asyncio.FIRST_COMPLETED)
        [ended] = done
        assert isinstance(ended.exception(), ConflictError)

        async def is_counted() -> bool:
            with engine.connect() as connection:
                found = connection.execute(sql.select(tables.grants.c.ready, tables.grants.c.until_ms)).all()
            return [row.ready for row in found if row.until_ms == tables.OPEN_MS] == [1]

        await eventually(is_counted, "the other one has the grant, once")
        assert len(going_on) == 1
    finally:
        for task in follow:
            task.cancel()
        await asyncio.gather(*follow, return_exceptions=True)
        await bus.aclose()
        engine.dispose()
