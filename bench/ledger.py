"""Measures the ledger: how fast it takes in a journal, and what a month's usage takes.

    python bench/ledger.py [--jobs 10] [--resizes 20] [--slices 10000000]

Ingest: a fleet in this process lives through resizes, and a ledger reads its journal into SQLite, one transaction for
500 records. Beside it stands the rate of resizes of bench/fleet.py.

Usage: a ledger of SQLite gets so many slices of 30 days, each with a grant, under 1,000 accounts, day by day, and each
day is rolled up. Their UIDs come in order: to make 10 million rows is not what is measured. Then the usage of the 30
days is summed by queue, the last of them from its grants.
"""

import argparse
import asyncio
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import figures
import msgspec
import sqlalchemy as sql
from figures import Figure, Target

from slicebus.bus.contract import Record
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.following import LedgerWriter
from slicebus.cli.ledger.retention import Retention, roll_up
from slicebus.cli.ledger.spans import DAY_MS
from slicebus.cli.ledger.store import LedgerStore, ReadPosition, read_position
from slicebus.cli.ledger.tables import ACCOUNT_FIELDS, accounts
from slicebus.cli.usage.summing import sum_up
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS
from slicebus.ledger.bookkeeper import LedgerState
from slicebus.ledger.facts import LedgerAccount
from slicebus.proto.topology import JOURNAL
from slicebus.sandbox.bus import MemoryBroker

FLEET_RATE = 8.0
"""Resizes a second, the default of bench/fleet.py."""
FASTER = Target(5, is_least=True, of_ratio=True)
SOON = Target(2)
DAYS = 30
_ACCOUNTS = 1000
_QUEUES = 50
_RUN_MS = 600_000
_RECORDS = 500
_POLL_S = 0.05
_PATIENCE_S = 300.0
_NAME = "bench-ledger"
_FOREVER = Retention(timedelta(days=9999), timedelta(days=9999))


async def settled(world: World, jobs: int, size: int) -> None:
    """Wait until so many pods of every job are ready."""
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            found = (await world.manager.list(JOBS)).items
            if [job.get("status", {}).get("ready") for job in found] == [size] * jobs:
                return
            await asyncio.sleep(_POLL_S)


async def lived(jobs: int, resizes: int) -> list[Record]:
    """The manager's stream of a fleet whose jobs have all been resized so often."""
    urls = {role: f"memory://{role}@{_NAME}" for role in ("manager", "east", "west")}
    async with embedded_world() as world, fleet(world, urls):
        for resource, manifest in objects.quota(jobs * 4):
            await world.ensure(world.manager, resource, manifest)
        for number in range(jobs):
            await world.manager.create(JOBS, objects.job(f"job-{number}"))
        await settled(world, jobs, 1)
        for turn in range(resizes):
            size = 2 - turn % 2
            for client in world.workers.values():
                for job in (await client.list(JOBS)).items:
                    metadata, body = job["metadata"], MergePatch({"spec": {"parallelism": size}})
                    await client.patch(JOBS, metadata["name"], metadata["namespace"], body)
            await settled(world, jobs, size)
    return list(MemoryBroker.named(_NAME).streams[JOURNAL].records)


async def ingest(folder: Path, jobs: int, resizes: int) -> list[Figure]:
    """Time the ledger of a fleet's life."""
    records = await lived(jobs, resizes)
    engine = open_engine(str(folder / "ingest.db"), create=True)
    migrate(engine)
    store = LedgerStore(engine)
    writer = LedgerWriter(store, LedgerState(), ReadPosition(), _FOREVER, user_label="")
    began_s = time.perf_counter()
    for at in range(0, len(records), _RECORDS):
        await writer.write(records[at : at + _RECORDS])
    took_s = time.perf_counter() - began_s
    engine.dispose()
    rate = jobs * resizes / took_s
    return [
        Figure.of(
            "ingest", rate, "resizes/s", beside="the rate of bench/fleet.py", beside_value=FLEET_RATE, target=FASTER
        ),
        Figure.of(f"records of the journal, of {jobs * resizes} resizes", len(records) / took_s, "records/s"),
    ]


def add_accounts(engine: sql.Engine) -> None:
    """Give a ledger accounts of many queues."""
    with engine.begin() as connection:
        for number in range(_ACCOUNTS):
            account = LedgerAccount(f"queue-{number % _QUEUES}", f"team-{number % 97}", f"cluster-{number % 7}", "cpu")
            fields = msgspec.structs.asdict(account) | {"priority": str(number), "requests": '{"cpu":1.0}'}
            connection.execute(sql.insert(accounts), {name: fields[name] for name in ACCOUNT_FIELDS})


def add_day(engine: sql.Engine, day: int, slices: int) -> None:
    """Give a ledger slices with one grant each, spread over a day, as if it had followed to the end of that."""
    numbers = range(day * slices + 1, (day + 1) * slices + 1)
    with closing(engine.raw_connection()) as raw:
        cursor: Any = raw.cursor()
        cursor.executemany(
            "INSERT INTO slices (id, uid, job_uid, namespace, name) VALUES (?, ?, ?, 'team', 'job')",
            ((number, f"{number:032x}", f"{number:032x}") for number in numbers),
        )
        cursor.executemany(
            "INSERT INTO grants (slice_id, pod_set, since_ms, until_ms, pods, ready, account_id) "
            "VALUES (?, 'main', ?, ?, 2, 1, ?)",
            (
                (number, at_ms, at_ms + _RUN_MS, 1 + number % _ACCOUNTS)
                for number in numbers
                for at_ms in [(number - 1) * DAY_MS // slices]
            ),
        )
        raw.commit()
    at_ms = (day + 1) * DAY_MS
    with engine.connect() as connection:
        before = read_position(connection)
    LedgerStore(engine).write([], [], before, ReadPosition(next_offset=1, read_ms=at_ms, known_ms=at_ms))


def usage(folder: Path, slices: int) -> list[Figure]:
    """Time a month's usage by queue."""
    engine = open_engine(str(folder / "usage.db"), create=True)
    migrate(engine)
    add_accounts(engine)
    rolled_s, days = 0.0, 0
    for day in range(DAYS):
        add_day(engine, day, slices // DAYS)
        began_s = time.perf_counter()
        days += roll_up(engine)
        rolled_s += time.perf_counter() - began_s
    began_s = time.perf_counter()
    report = sum_up(engine, 0, DAYS * DAY_MS, ["queue"])
    took_s = time.perf_counter() - began_s
    engine.dispose()
    assert len(report.rows) == _QUEUES
    assert sum(row.granted_pod_seconds for row in report.rows) > 0.99 * slices * 2 * _RUN_MS / 1000
    what = f"of {slices:,} slices"
    return [
        Figure.of(f"usage of a month by queue, {what}", took_s, "s", target=SOON),
        Figure.of(f"to roll up a day, {what}", rolled_s / days, "s"),
        Figure.of(f"the database, {what}", (folder / "usage.db").stat().st_size / 1e6, "MB"),
    ]


async def measure(given: argparse.Namespace) -> list[Figure]:
    """Both."""
    with TemporaryDirectory() as folder:
        return [*await ingest(Path(folder), given.jobs, given.resizes), *usage(Path(folder), given.slices)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the ledger: its ingest, and a month's usage.")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--resizes", type=int, default=20, help="of each job")
    parser.add_argument("--slices", type=int, default=10_000_000)
    return figures.run(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
