"""The database of a ledger, on SQLite and on PostgreSQL: the same facts, the same sums, and nothing twice."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from slicebus.cli.ledger import tables
from slicebus.cli.ledger.database import check, migrate, open_engine
from slicebus.cli.ledger.retention import Retention, prune, roll_up
from slicebus.cli.ledger.spans import DAY_MS
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.cli.usage.rows import UsageReport
from slicebus.cli.usage.summing import sum_up
from slicebus.journal.recording import Source
from slicebus.ledger.bookkeeper import TakenBatches
from slicebus.ledger.facts import (
    Fact,
    GrantFact,
    JobFact,
    KillFact,
    LedgerAccount,
    PolicyFact,
    ResizeFact,
    SliceFact,
    SpecFact,
    UnknownSpan,
    WaitFact,
)
from slicebus.proto.errors import ConfigurationError, ConflictError, UnavailableError

_numbers = itertools.count(1)
BATCH = LedgerAccount("batch", "team", "east", "a100", "high", "ann", '{"cpu":2.0,"memory":1073741824.0}')
OTHER = LedgerAccount("other", "team", "west", "cpu", "0", "", '{"cpu":1.0}')
LEADER = TakenBatches(Source("manager", "", 1), 7)
FOREVER = Retention(timedelta(days=10_000), timedelta(days=10_000))
HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sql.Engine]:
    """An empty ledger."""
    address = str(tmp_path / "ledger.db")
    if request.param == "postgresql":
        address = request.getfixturevalue("postgresql").database(f"ledger_{next(_numbers)}")
    made = open_engine(address, create=True)
    migrate(made)
    yield made
    made.dispose()


def slice_of(number: int, **changes: Any) -> list[Fact]:
    """A slice and its job."""
    job = JobFact(uid=f"job-{number}", kind="Job", namespace="team", name=f"job-{number}", user="ann")
    own = SliceFact(uid=f"slice-{number}", job_uid=job.uid, namespace="team", name=f"slice-{number}")
    return [job, msgspec.structs.replace(own, **changes)]


def grant(number: int, since_ms: int, until_ms: int | None, pods: int = 2, ready: int = 1, **more: Any) -> GrantFact:
    account = more.pop("account", BATCH)
    return GrantFact(
        slice_uid=f"slice-{number}",
        pod_set="main",
        since_ms=since_ms,
        until_ms=until_ms,
        pods=pods,
        ready=ready,
        account=account,
    )


def wait(number: int, since_ms: int, until_ms: int | None, *, admitted: bool = False) -> WaitFact:
    return WaitFact(
        slice_uid=f"slice-{number}",
        since_ms=since_ms,
        until_ms=until_ms,
        reason="Pending",
        message="no quota",
        admitted=admitted,
        account=BATCH,
    )


def kill(number: int, at_ms: int) -> KillFact:
    return KillFact(
        slice_uid=f"slice-{number}", pod_set="main", at_ms=at_ms, pods=2, reason="Preempted", message="", account=BATCH
    )


def write(engine: sql.Engine, *facts: Fact, known_ms: int, taken: TakenBatches = LEADER) -> ReadPosition:
    """Write facts as a ledger does that has just begun."""
    store = LedgerStore(engine)
    _, before = store.load()
    return store.write(facts, [taken], before, ReadPosition(next_offset=9, read_ms=known_ms, known_ms=known_ms))


def shown(report: UsageReport) -> dict[tuple[str, ...], tuple[float, float, float, int, float, int]]:
    return {
        tuple(row.group.values()): (
            row.granted_pod_seconds,
            row.ready_pod_seconds,
            row.idle_pod_seconds,
            row.waits,
            row.wait_seconds,
            row.killed_pods,
        )
        for row in report.rows
    }


def test_the_changes_of_the_tables_make_these_tables(engine: sql.Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    migrate(engine)
    check(engine)


def test_a_ledger_goes_on_where_it_ended(engine: sql.Engine) -> None:
    facts = [
        *slice_of(1),
        *slice_of(2, gone_ms=9000),
        grant(1, 1000, None),
        wait(1, 500, 1000),
        grant(2, 1000, 9000),
        wait(1, 2000, None),
    ]
    after = write(engine, *facts, known_ms=9000)
    state, position = LedgerStore(engine).load()
    assert position == after == ReadPosition(1, 9, 9000, 9000)
    assert (state.taken, state.known_ms) == ((LEADER,), 9000)
    assert state.opened.slices == (facts[1],)
    assert (state.opened.grants, state.opened.waits) == ((grant(1, 1000, None),), (wait(1, 2000, None),))


def test_what_is_told_anew_takes_the_place_of_what_was_told(engine: sql.Engine) -> None:
    write(engine, *slice_of(1), grant(1, 0, None), wait(1, 0, None), known_ms=1000)
    write(engine, grant(1, 0, 4000), grant(1, 4000, None, ready=2), wait(1, 0, 2000, admitted=True), known_ms=10_000)
    found = shown(sum_up(engine, 0, 10_000, ["queue"]))
    assert found == {("batch",): (20.0, 4.0 + 12.0, 4.0, 1, 2.0, 0)}


def test_what_happened_at_a_moment_stays(engine: sql.Engine) -> None:
    resize = ResizeFact(slice_uid="slice-1", pod_set="main", at_ms=5, before=1, after=2)
    for _ in range(2):
        write(
            engine,
            *slice_of(1),
            kill(1, 5),
            resize,
            UnknownSpan(since_ms=1, until_ms=2, reason="x", pod_ms=3),
            known_ms=10,
        )
    report = sum_up(engine, 0, 10, ["queue"])
    assert [row.killed_pods for row in report.rows] == [2]
    assert [(span.reason, span.pod_seconds) for span in report.not_known] == [("x", 0.003)]


def test_of_two_followers_one_writes(engine: sql.Engine) -> None:
    first, second = LedgerStore(engine), LedgerStore(engine)
    (_, of_first), (_, of_second) = first.load(), second.load()
    at = ReadPosition(next_offset=1, read_ms=1, known_ms=1)
    position = first.write([*slice_of(1), grant(1, 0, None)], [LEADER], of_first, at)
    with pytest.raises(ConflictError, match="another ledger writes into"):
        second.write([*slice_of(2), grant(2, 0, None)], [LEADER], of_second, at)
    first.write([grant(1, 0, 1)], [LEADER], position, at)
    with pytest.raises(ConflictError):
        first.write([*slice_of(3)], [LEADER], position, at)
    with engine.connect() as connection:
        assert connection.execute(sql.select(tables.slices.c.uid)).scalars().all() == ["slice-1"]


def test_a_write_that_fails_leaves_nothing(engine: sql.Engine) -> None:
    write(engine, *slice_of(1), known_ms=1)
    with pytest.raises(KeyError):
        write(engine, grant(7, 0, None), known_ms=2)
    assert LedgerStore(engine).load()[1].revision == 1


def test_texts_that_a_database_refuses_end_no_ledger(engine: sql.Engine) -> None:
    """An API server takes a NUL in a message, and any text for the UID of an owner."""
    account = msgspec.structs.replace(BATCH, user="an\0n")
    waits = msgspec.structs.replace(wait(1, 0, None), message="no\0quota", account=account)
    lost = msgspec.structs.replace(kill(1, 5), message="\0", for_uid="z" * 300)
    write(engine, *slice_of(1), waits, lost, known_ms=10_000)
    opened = LedgerStore(engine).load()[0].opened
    assert [(each.message, each.account.user) for each in opened.waits] == [("no\ufffdquota", "an\ufffdn")]
    assert {*shown(sum_up(engine, 0, 10_000, ["user"]))} == {("an\ufffdn",), ("ann",)}


def test_jobs_with_uids_that_have_no_room_stay_apart(engine: sql.Engine) -> None:
    for number, uid in enumerate(["y" * 65, "y" * 66], start=1):
        job = JobFact(uid=uid, kind="Job", namespace="team", name=f"job-{number}", user="ann")
        own = SliceFact(uid=f"slice-{number}", job_uid=uid, namespace="team", name=f"slice-{number}")
        write(engine, job, own, grant(number, 0, None), known_ms=10_000)
    write(engine, *LedgerStore(engine).load()[0].opened.slices, known_ms=10_000)
    with engine.connect() as connection:
        named = sql.select(tables.jobs.c.name, tables.slices.c.name).join(
            tables.slices, tables.slices.c.job_uid == tables.jobs.c.uid
        )
        found = sorted(map(tuple, connection.execute(named)))
    assert found == [("job-1", "slice-1"), ("job-2", "slice-2")]


def test_sums_by_every_field(engine: sql.Engine) -> None:
    facts = [*slice_of(1), *slice_of(2), grant(1, 0, None), grant(2, 0, 5000, pods=1, ready=0, account=OTHER)]
    write(engine, *facts, known_ms=10_000)
    expected = {
        "queue": {"batch", "other"},
        "namespace": {"team"},
        "flavor": {"a100", "cpu"},
        "cluster": {"east", "west"},
        "priority": {"high", "0"},
        "user": {"ann", ""},
    }
    for field, names in expected.items():
        report = sum_up(engine, 0, 99_000, [field])
        assert {key for (key,) in shown(report)} == names
        assert sum(row.granted_pod_seconds for row in report.rows) == 25.0
    [batch, _] = sum_up(engine, 0, 99_000, ["queue", "cluster"]).rows
    assert batch.group == {"queue": "batch", "cluster": "east"}
    assert batch.resource_hours["cpu"].granted == pytest.approx(2 * 20 / 3600)
    assert batch.resource_hours["memory"].idle == pytest.approx(10 / 3600)


def three_days(engine: sql.Engine) -> None:
    """A grant over three days, waits and kills in them, and one that goes on."""
    facts = [*slice_of(1, gone_ms=2 * DAY_MS + 500), *slice_of(2), *slice_of(3)]
    facts += [grant(1, HOUR_MS, 2 * DAY_MS + HOUR_MS), grant(2, DAY_MS + HOUR_MS, None, account=OTHER)]
    facts += [wait(1, 0, HOUR_MS, admitted=True), wait(3, DAY_MS - 1000, None), kill(1, DAY_MS - 1), kill(1, DAY_MS)]
    write(engine, *facts, known_ms=3 * DAY_MS)


SPANS = [
    (0, 3 * DAY_MS),
    (DAY_MS // 2, 3 * DAY_MS),
    (0, DAY_MS),
    (DAY_MS + 5, DAY_MS + 9),
    (DAY_MS // 2, 2 * DAY_MS + 1),
    (DAY_MS, 9 * DAY_MS),
]


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_rolled_up_days_have_the_same_sums(engine: sql.Engine, span: tuple[int, int]) -> None:
    three_days(engine)
    before = sum_up(engine, *span, ["queue", "cluster"])
    assert roll_up(engine) == 2
    assert roll_up(engine) == 0
    assert shown(sum_up(engine, *span, ["queue", "cluster"])) == shown(before)


def test_a_week_begins_with_a_whole_day(engine: sql.Engine) -> None:
    facts = [*slice_of(1), grant(1, 0, HOUR_MS), grant(1, 9 * DAY_MS, None, pods=1, ready=0)]
    write(engine, *facts, known_ms=9 * DAY_MS + HOUR_MS)
    roll_up(engine)
    week = sum_up(engine, DAY_MS // 2, 99 * DAY_MS, ["queue"])
    assert (week.since_ms, week.until_ms) == (0, 9 * DAY_MS + HOUR_MS)
    assert [row.granted_pod_seconds for row in week.rows] == [3 * 3600]
    days = sum_up(engine, DAY_MS // 2, 5 * DAY_MS, ["queue"])
    assert (days.since_ms, days.rows) == (DAY_MS // 2, [])


def test_a_day_that_is_rolled_up_begins_no_earlier(engine: sql.Engine) -> None:
    """Nobody has recorded what was before noon."""
    noon_ms = 12 * HOUR_MS
    write(engine, *slice_of(1), grant(1, noon_ms, noon_ms + HOUR_MS), known_ms=2 * DAY_MS + HOUR_MS)
    assert roll_up(engine) == 2
    report = sum_up(engine, 0, 2 * DAY_MS, ["queue"])
    assert (report.began_ms, report.since_ms) == (noon_ms, noon_ms)
    prune(engine, Retention(timedelta(hours=1), timedelta(days=99)))
    assert sum_up(engine, 0, 2 * DAY_MS, ["queue"]).began_ms == 0, "of its details nothing is left"


def test_a_day_is_rolled_up_when_nothing_of_it_comes_any_more(engine: sql.Engine) -> None:
    write(engine, *slice_of(1), grant(1, 0, None), known_ms=DAY_MS + HOUR_MS - 1)
    assert roll_up(engine) == 0
    write(engine, known_ms=DAY_MS + HOUR_MS)
    assert roll_up(engine) == 1


def test_an_empty_ledger_has_nothing(engine: sql.Engine) -> None:
    assert roll_up(engine) == 0
    prune(engine, FOREVER)
    report = sum_up(engine, 0, 10, ["queue"])
    assert (report.rows, report.began_ms) == ([], None)


def test_waits_before_the_first_grant_count(engine: sql.Engine) -> None:
    began_ms = DAY_MS + 5
    write(engine, *slice_of(1), wait(1, began_ms, None), known_ms=2 * DAY_MS)
    only_waits = sum_up(engine, 0, 9 * DAY_MS, ["queue"])
    assert (only_waits.began_ms, [row.wait_seconds for row in only_waits.rows]) == (began_ms, [(DAY_MS - 5) / 1000])
    admitted_ms = 4 * DAY_MS
    waited, granted = wait(1, began_ms, admitted_ms, admitted=True), grant(1, admitted_ms, None)
    write(engine, waited, granted, known_ms=5 * DAY_MS + HOUR_MS)
    before = sum_up(engine, 0, 5 * DAY_MS, ["queue"])
    assert roll_up(engine) == 4
    after = sum_up(engine, 0, 5 * DAY_MS, ["queue"])
    assert shown(after) == shown(before)
    assert after.began_ms == began_ms


def test_nothing_is_used_after_what_is_known(engine: sql.Engine) -> None:
    write(engine, *slice_of(1), *slice_of(2), grant(1, 0, None), wait(2, 0, None), known_ms=HOUR_MS)
    report = sum_up(engine, 2 * HOUR_MS, 3 * HOUR_MS, ["queue"])
    assert (report.since_ms, report.until_ms, report.rows) == (2 * HOUR_MS, 2 * HOUR_MS, [])


def test_details_go_and_sums_stay(engine: sql.Engine) -> None:
    three_days(engine)
    before = shown(sum_up(engine, 0, 2 * DAY_MS, ["queue"]))
    roll_up(engine)
    prune(engine, Retention(timedelta(days=1), timedelta(days=100)))
    assert shown(sum_up(engine, 0, 2 * DAY_MS, ["queue"])) == before
    half = sum_up(engine, DAY_MS // 2, 2 * DAY_MS, ["queue"])
    assert (shown(half), half.since_ms) == (before, 0)
    with engine.connect() as connection:
        assert connection.execute(sql.select(sql.func.count()).select_from(tables.kills)).scalar() == 0
        assert connection.execute(sql.select(sql.func.count()).select_from(tables.grants)).scalar() == 2
    write(engine, known_ms=9 * DAY_MS)
    roll_up(engine)
    prune(engine, Retention(timedelta(days=1), timedelta(days=100)))
    with engine.connect() as connection:
        assert connection.execute(sql.select(tables.slices.c.uid)).scalars().all() == ["slice-2", "slice-3"]
        assert connection.execute(sql.select(tables.jobs.c.uid)).scalars().all() == ["job-2", "job-3"]


def test_sums_go_when_they_are_old(engine: sql.Engine) -> None:
    three_days(engine)
    roll_up(engine)
    prune(engine, Retention(timedelta(days=1), timedelta(days=2)))
    with engine.connect() as connection:
        assert connection.execute(sql.select(sql.func.min(tables.days.c.day_ms))).scalar() == DAY_MS


def test_no_sum_goes_before_its_details(engine: sql.Engine) -> None:
    write(engine, *slice_of(1), grant(1, 0, None), known_ms=9 * DAY_MS + HOUR_MS)
    roll_up(engine)
    span = DAY_MS + HOUR_MS, 5 * DAY_MS
    before = shown(sum_up(engine, *span, ["queue"]))
    prune(engine, Retention(timedelta(days=100), timedelta(days=2)))
    assert shown(sum_up(engine, *span, ["queue"])) == before


def test_no_detail_goes_that_is_not_rolled_up(engine: sql.Engine) -> None:
    three_days(engine)
    prune(engine, Retention(timedelta(0), timedelta(0)))
    with engine.connect() as connection:
        assert connection.execute(sql.select(sql.func.count()).select_from(tables.grants)).scalar() == 2


def test_a_database_that_is_no_ledger_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        open_engine(str(tmp_path / "none.db"))
    with pytest.raises(ConfigurationError, match="No such file or directory"):
        open_engine(str(tmp_path / "no" / "folder.db"), create=True)
    empty = open_engine(str(tmp_path / "empty.db"), create=True)
    with pytest.raises(ConfigurationError, match="it has no ledger"):
        check(empty)
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 99)
    with pytest.raises(Exception, match="not a database"):
        check(open_engine(str(tmp_path / "text")))


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    open_engine(str(tmp_path / "ledger.db"), create=True)
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("address", ["mysql://host/name", "postgresql://host:port/x"])
def test_an_address_that_is_none_is_said(address: str) -> None:
    with pytest.raises(ConfigurationError):
        open_engine(address)


def test_a_server_that_is_not_there_is_said_without_the_password() -> None:
    engine = open_engine("postgresql://ann:secret@127.0.0.1:1/x")
    with pytest.raises(UnavailableError, match="cannot be used") as said:
        migrate(engine)
    assert "secret" not in str(said.value)


def spec(number: int, at_ms: int, document: str, templates: str = "{}") -> SpecFact:
    return SpecFact(slice_uid=f"slice-{number}", at_ms=at_ms, document=document, templates=templates)


def policy(name: str, at_ms: int, document: str) -> PolicyFact:
    return PolicyFact(resource="queues", namespace="", name=name, at_ms=at_ms, document=document)


def count(engine: sql.Engine, table: sql.Table) -> int:
    with engine.connect() as connection:
        return connection.execute(sql.select(sql.func.count()).select_from(table)).scalar_one()


def test_what_is_asked_for_goes_on_with_the_last(engine: sql.Engine) -> None:
    first, last = spec(1, 1000, "one"), spec(1, 2000, "two", "other")
    policies = [policy("a", 1000, "one"), policy("a", 2000, "two"), policy("b", 1000, "one"), policy("b", 3000, "")]
    write(engine, *slice_of(1), *slice_of(2, gone_ms=2500), first, last, spec(2, 1000, "one"), *policies, known_ms=9000)
    state, _ = LedgerStore(engine).load()
    assert state.opened.specs == (last,)
    assert state.policies == (policies[1],)
    assert (count(engine, tables.specs), count(engine, tables.templates)) == (3, 2)


def test_what_nobody_asks_for_any_more_is_removed_with_the_details(engine: sql.Engine) -> None:
    old, new = spec(2, 1000, "one", "of one that is gone"), spec(1, 1000, "one", "of one that is there")
    later = DAY_MS + 1000
    policies = [policy("a", 1000, "1"), policy("a", 2000, "2"), policy("a", later, "3"), policy("b", 1000, "1")]
    facts = [*slice_of(1), *slice_of(2, gone_ms=5000), grant(1, 1000, None), grant(2, 1000, 5000), new, old]
    write(engine, *facts, *policies, policy("b", 2000, ""), known_ms=10 * DAY_MS)
    roll_up(engine)
    prune(engine, Retention(timedelta(days=9), timedelta(days=10_000)))
    with engine.connect() as connection:
        kept = connection.execute(sql.select(tables.policies.c.name, tables.policies.c.document)).all()
    assert sorted(map(tuple, kept)) == [("a", "2"), ("a", "3")]
    assert (count(engine, tables.specs), count(engine, tables.templates)) == (1, 1)
    store = LedgerStore(engine)
    _, before = store.load()
    store.forget_templates()
    store.write([*slice_of(3), spec(3, later, "one", old.templates)], [], before, before)
    assert count(engine, tables.templates) == 2
