"""`slicebus jobs --at` and `queues --at` on a ledger."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from slicebus.cli.journal.source import records_of_file
from slicebus.cli.ledger import moments
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.cli.ledger.tables import grants
from slicebus.journal.recording import Source
from slicebus.ledger.bookkeeper import TakenBatches
from slicebus.ledger.facts import Fact, GrantFact, JobFact, KillFact, LedgerAccount, SliceFact, UnknownSpan, WaitFact
from support.ledgers import ledger_of
from unit.cli.hostile import Called, call

LIFE = str(Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz")
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
GRANTED = LedgerAccount("batch", "team", "east", "a100+cpu", "high", "", '{"cpu":0.1,"memory":1073741824.0}')
WAITING = LedgerAccount("batch", "team", "", "", "high", "")
WHOLE_S = 100


def ms(at_s: float) -> int:
    return round((BEGAN.timestamp() + at_s) * 1000)


def job(name: str, *slices: str) -> list[Fact]:
    owner = JobFact(uid=f"job-{name}", kind="Job", namespace="team", name=name, user="")
    return [owner, *(SliceFact(uid=each, job_uid=owner.uid, namespace="team", name=each) for each in slices)]


def grant(slice: str, since_s: float, until_s: float | None, *, pods: int = 3, ready: int = 0) -> GrantFact:
    until_ms = ms(until_s) if until_s is not None else None
    return GrantFact(
        slice_uid=slice,
        pod_set="main",
        since_ms=ms(since_s),
        until_ms=until_ms,
        pods=pods,
        ready=ready,
        account=GRANTED,
    )


def wait(slice: str, since_s: float, until_s: float | None) -> WaitFact:
    until_ms = ms(until_s) if until_s is not None else None
    return WaitFact(
        slice_uid=slice, since_ms=ms(since_s), until_ms=until_ms, reason="Pending", message="no room", account=WAITING
    )


def kill(slice: str, at_s: float) -> KillFact:
    return KillFact(
        slice_uid=slice, pod_set="main", at_ms=ms(at_s), pods=3, reason="Preempted", message="", account=GRANTED
    )


FACTS = [
    *job("lives", "lives-1", "lives-2"),
    wait("lives-1", 0, 5),
    grant("lives-1", 5, 10),
    grant("lives-1", 10, 20, ready=3),
    wait("lives-2", 15, 20),
    grant("lives-2", 20, 30, pods=5, ready=3),
    *job("loses", "loses-1"),
    grant("loses-1", 5, 25, ready=1),
    kill("loses-1", 22),
    wait("loses-1", 25, None),
    UnknownSpan(since_ms=ms(50), until_ms=ms(60), reason="3 batches are missing", pod_ms=0),
]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine in UTC with neither a kubeconfig nor a broker."""
    for name, value in {"TZ": "UTC", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("KUBECONFIG", "AMQP_URL", "KUBERNETES_SERVICE_HOST", "LEDGER_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    address = str(tmp_path / "ledger.db")
    engine = open_engine(address, create=True)
    migrate(engine)
    after = ReadPosition(next_offset=1, read_ms=ms(WHOLE_S), known_ms=ms(WHOLE_S))
    LedgerStore(engine).write(FACTS, [TakenBatches(Source("manager", "", 1), 1)], ReadPosition(), after)
    engine.dispose()
    return address


def at(second: float, ledger: str, *command: str) -> Called:
    moment = BEGAN + timedelta(seconds=second)
    return call(*command, "--at", moment.isoformat(), "--ledger", ledger)


def test_a_table_says_what_the_ledger_does_not_know(ledger: str) -> None:
    done = at(12, ledger, "jobs")
    assert done.status == 0
    assert done.err.startswith("from the ledger, which knows the jobs that held quota or waited for some, and not: ")
    head, titles, *rows = (line.split() for line in done.out.splitlines())
    assert head == ["AT", "2026-01-31", "12:00:12+00:00"]
    assert titles[:6] == ["NAMESPACE", "NAME", "KIND", "STATE", "CLUSTERQUEUE", "CLUSTER"]
    assert "WANTED" not in titles
    assert rows == [
        ["team", "lives", "Job", "Running", "batch", "east", "3", "3", "12s"],
        ["team", "loses", "Job", "Running", "batch", "east", "3", "1", "7s"],
    ]


@pytest.mark.parametrize(
    ("second", "lives", "loses"),
    [
        (2, ("Pending", 0, 0), None),
        (7, ("Admitted", 3, 0), ("Running", 3, 1)),
        (17, ("Resizing", 3, 3), ("Running", 3, 1)),
        (23, ("Running", 5, 3), ("Evicting", 0, 1)),
        (27, ("Running", 5, 3), ("Pending", 0, 0)),
        (40, None, ("Pending", 0, 0)),
    ],
)
def test_the_states_of_lives(
    ledger: str, second: float, lives: tuple[str, int, int] | None, loses: tuple[str, int, int] | None
) -> None:
    items = json.loads(at(second, ledger, "jobs", "-o", "json").out)["items"]
    found = {row["name"]: (row["state"], sum(row["granted"].values()), row["ready"]) for row in items}
    assert found == {name: state for name, state in (("lives", lives), ("loses", loses)) if state is not None}


def test_filters_and_names(ledger: str) -> None:
    assert at(12, ledger, "jobs", "-o", "name").out == "job.batch/lives\njob.batch/loses\n"
    assert at(27, ledger, "jobs", "--state", "pending", "-o", "name").out == "job.batch/loses\n"
    assert at(27, ledger, "jobs", "-n", "other").out == "AT 2026-01-31 12:00:27+00:00\n"
    assert "did you mean batch?" in at(27, ledger, "jobs", "--queue", "bach").err


def test_queues_have_what_was_used(ledger: str) -> None:
    done = at(17, ledger, "queues")
    _, titles, *rows = (line.split() for line in done.out.splitlines())
    assert titles == ["CLUSTERQUEUE", "FLAVOR", "RESOURCE", "USED", "PENDING", "ADMITTED"]
    assert rows == [["batch", "a100+cpu", "cpu", "600m", "1", "2"], ["batch", "a100+cpu", "memory", "6Gi", "1", "2"]]
    assert "and not: the quota" in done.err
    [batch] = json.loads(at(40, ledger, "queues", "-o", "json").out)["items"]
    assert (batch["name"], batch["pending"], batch["admitted"], batch["use"]) == ("batch", 1, 0, [])
    done = at(17, ledger, "queues", "-A")
    assert (done.status, done.out) == (2, "")
    assert "the ledger does not know LocalQueues" in done.err


def test_a_ledger_that_is_written_meanwhile_shows_one_moment(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = moments._begun

    def meanwhile(table: sql.Table, at_ms: int) -> sql.Select[Any]:
        if table is grants:
            store = LedgerStore(open_engine(ledger, create=True))
            _, before = store.load()
            store.write([*job("late", "late-1"), grant("late-1", 5, None)], [], before, before)
        return begun(table, at_ms)

    monkeypatch.setattr(moments, "_begun", meanwhile)
    assert [row.split()[0] for row in at(12, ledger, "jobs", "-A", "-o", "name").out.splitlines()] == [
        "job.batch/lives",
        "job.batch/loses",
    ]
    assert "job.batch/late\n" in at(12, ledger, "jobs", "-A", "-o", "name").out


def test_a_moment_in_a_gap_is_not_guessed(ledger: str) -> None:
    done = at(55, ledger, "jobs")
    assert (done.status, done.out) == (2, "")
    span = "from 2026-01-31 12:00:50+00:00 to 2026-01-31 12:01:00+00:00"
    assert f"the ledger does not know what was {span}: 3 batches are missing" in done.err
    assert at(60, ledger, "jobs").status == 0


@pytest.mark.parametrize("second", [-1, WHOLE_S + 1])
def test_a_moment_beside_the_ledger_is_an_error_with_its_span(ledger: str, second: float) -> None:
    done = at(second, ledger, "jobs")
    assert (done.status, done.out) == (2, "")
    span = "from 2026-01-31 12:00:00+00:00 to 2026-01-31 12:01:40+00:00"
    assert f"the ledger knows each job {span}" in done.err


def test_a_journal_that_has_the_moment_is_read_before_the_ledger(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_DATABASE", ledger)
    done = call("jobs", "--at", "2026-01-01T00:00:08Z", "--from", LIFE)
    assert (done.status, done.err) == (0, "")
    assert "WANTED" in done.out
    done = call("jobs", "--at", "2026-01-31T12:00:12Z", "--from", LIFE, "-o", "name")
    first, second = done.err.splitlines()
    assert "is after the last record" in first
    assert second.startswith("from the ledger")
    assert done.out == "job.batch/lives\njob.batch/loses\n"


def test_a_ledger_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    done = call("jobs", "--at", "-1d", "--ledger", str(tmp_path / "none.db"))
    assert done.status == 2
    assert done.err == f"slicebus: --ledger {tmp_path}/none.db: there is no such file; `slicebus ledger` makes it\n"


def test_the_ledger_of_a_recording_shows_the_states_that_its_journal_shows(tmp_path: Path) -> None:
    address = ledger_of(records_of_file(LIFE), tmp_path / "ledger.db")
    same = ("kind", "name", "namespace", "state", "granted", "ready", "cluster_queue", "cluster")
    for second in (4.2, 8, 15.5, 19):
        moment = f"2026-01-01T00:00:{second:06.3f}Z"
        told, found = (
            json.loads(call("jobs", "--at", moment, *source, "-o", "json").out)["items"]
            for source in (("--from", LIFE), ("--ledger", address))
        )
        assert [[row[name] for name in same] for row in found] == [[row[name] for name in same] for row in told]
        assert found
