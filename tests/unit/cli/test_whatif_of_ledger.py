"""`slicebus whatif --ledger`: the answer is the one that the journal gives."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sql

from slicebus.cli.journal.source import records_of_file
from slicebus.cli.ledger import tables
from slicebus.cli.ledger.database import migrate, open_engine
from support.ledgers import ledger_of
from unit.cli.hostile import Called, call

REPLAYS = Path(__file__).parents[2] / "replays"
JOURNAL = str(REPLAYS / "eviction.jsonl.gz")
KUEUE = str(REPLAYS / "beside-kueue.jsonl.gz")
QUOTA = ("--quota", "batch.cpu@reserved=+4")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AMQP_URL", "LEDGER_DATABASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ledger_of(records_of_file(JOURNAL), tmp_path_factory.mktemp("ledger") / "ledger.db")


def whatif(*options: str, since: str = "2026-01-01T00:00:00Z") -> Called:
    return call("whatif", *options, "--since", since, *QUOTA)


def test_the_answer_is_that_of_the_journal(ledger: str) -> None:
    told, found = (
        json.loads(whatif(*source, "-o", "json").out) for source in (("--from", JOURNAL), ("--ledger", ledger))
    )
    assert found["reproduction"]["admissions"] == found["reproduction"]["close"] == 4
    for name in ("jobs", "reproduction"):
        assert found[name] == told[name]
    for summary in ("was", "unchanged"):
        same = ("preemptions", "pods_killed")
        assert [found[summary][name] for name in same] == [told[summary][name] for name in same] == [1, 4]
    assert [play["summary"]["preemptions"] for play in found["plays"]] == [0]
    assert [row["job"] for row in found["plays"][0]["changed"]] == [row["job"] for row in told["plays"][0]["changed"]]


def test_a_ledger_that_begins_later_says_so(ledger: str) -> None:
    done = whatif("--ledger", ledger, since="2025-01-01T00:00:00Z")
    assert done.status == 0
    assert done.err.startswith("the ledger has what a play needs from 2026-01-01 ")


def test_the_variable_names_it_and_a_file_is_read_before_it(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER_DATABASE", ledger)
    assert whatif().status == 0
    monkeypatch.setenv("LEDGER_DATABASE", "/none.db")
    assert whatif("--from", JOURNAL).status == 0


def test_beside_a_kueue_there_is_no_answer(tmp_path: Path) -> None:
    done = whatif("--ledger", ledger_of(records_of_file(KUEUE), tmp_path / "ledger.db"))
    assert (done.status, done.out) == (2, "")
    assert "a Kueue admitted there" in done.err


def test_a_ledger_of_an_earlier_version_has_nothing_to_play(ledger: str, tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "empty.db"), create=True)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(sql.insert(tables.position).values(id=1, revision=1, next_offset=1, known_ms=1))
    engine.dispose()
    done = whatif("--ledger", str(tmp_path / "empty.db"))
    assert done.status == 2
    assert "it has no queues and sizes to play" in done.err
