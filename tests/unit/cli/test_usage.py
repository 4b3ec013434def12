"""`slicebus usage` and `slicebus ledger`: what they print, and what they say of wrong input."""

import sys
from pathlib import Path

import msgspec
import pytest

from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.spans import AccountSums
from slicebus.cli.usage.rows import NotKnown, UsageReport, UsageRow, as_csv, as_json, as_table, usage_row
from unit.cli.hostile import call

SUMS = AccountSums(granted_ms=7_200_000, ready_ms=3_600_000, waited_ms=90_000, waits=2, killed=3)
ROW = usage_row({"queue": "batch", "user": ""}, [({"cpu": 2.0, "memory": 2.0**30}, SUMS), ({"cpu": 1.0}, SUMS)])
REPORT = UsageReport(0, 3_600_000, 0, [ROW, UsageRow(group={"queue": "idle", "user": "ann"})], [])
BY = ("queue", "user")


def test_a_row_sums_accounts() -> None:
    assert (ROW.granted_pod_seconds, ROW.ready_pod_seconds, ROW.idle_pod_seconds) == (14_400, 7200, 7200)
    assert (ROW.waits, ROW.wait_seconds, ROW.killed_pods) == (4, 180, 6)
    hours = {name: (one.granted, one.ready, one.idle) for name, one in ROW.resource_hours.items()}
    assert hours == {"cpu": (6.0, 3.0, 3.0), "memory": (2.0, 1.0, 1.0)}


def test_the_table_has_hours() -> None:
    titles, batch, idle = as_table(REPORT, BY)
    assert titles == [
        "QUEUE",
        "USER",
        "POD HOURS",
        "READY",
        "IDLE",
        "WAITS",
        "MEAN WAIT",
        "KILLED PODS",
        "CPU HOURS",
        "MEMORY_GIB HOURS",
    ]
    assert batch == ["batch", "-", "4.00", "2.00", "2.00", "4", "45s", "6", "6.00", "2.00"]
    assert idle == ["idle", "ann", "0.00", "0.00", "0.00", "0", "-", "0", "0.00", "0.00"]


def test_csv_has_seconds_and_every_sum() -> None:
    titles, batch, _ = as_csv(REPORT, BY).splitlines()
    assert titles.split(",")[:8] == [
        *BY,
        *(f"{kind}_pod_seconds" for kind in ("granted", "ready", "idle")),
        "waits",
        "wait_seconds",
        "killed_pods",
    ]
    assert titles.split(",")[8:] == [
        f"{name}_hours_{kind}" for name in ("cpu", "memory_gib") for kind in ("granted", "ready", "idle")
    ]
    assert batch == "batch,,14400.000,7200.000,7200.000,4,180.000,6,6.0000,3.0000,3.0000,2.0000,1.0000,1.0000"


def test_json_says_what_is_not_known() -> None:
    report = msgspec.structs.replace(REPORT, not_known=[NotKnown(0, 1500, "it was away", 3.5)])
    document = msgspec.json.decode(as_json(report, BY))
    assert (document["since"], document["until"]) == ("1970-01-01T00:00:00.000Z", "1970-01-01T01:00:00.000Z")
    assert document["items"][0]["resourceHours"]["cpu"] == {"granted": 6.0, "ready": 3.0, "idle": 3.0}
    [span] = document["notKnown"]
    assert span == {
        "since": "1970-01-01T00:00:00.000Z",
        "until": "1970-01-01T00:00:01.500Z",
        "reason": "it was away",
        "podSeconds": 3.5,
    }


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """An empty one."""
    engine = open_engine(str(tmp_path / "ledger.db"), create=True)
    migrate(engine)
    engine.dispose()
    return str(tmp_path / "ledger.db")


def test_an_empty_ledger_says_so(ledger: str) -> None:
    done = call("usage", "--database", ledger)
    assert (done.status, done.out) == (0, "")
    assert done.err.splitlines() == ["the ledger is empty", "nothing was used"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "queu"), "there is no field to sum by queu; did you mean queue?"),
        (("--since", "yesterday"), "--since yesterday: use 10m, 2h, 3d, or a time such as 2026-01-31T12:00:00Z"),
        (("--since", "1h", "--until", "2h"), "--since is not before --until"),
        (("-o", "yaml"), "there is no output format yaml"),
    ],
)
def test_wrong_options_are_one_line(ledger: str, options: tuple[str, ...], said: str) -> None:
    done = call("usage", "--database", ledger, *options)
    assert done.status == 2
    assert said in done.err


def test_a_ledger_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = call("usage", "--database", str(tmp_path / "none.db"))
    assert done.status == 2
    assert done.err == f"slicebus: --database {tmp_path}/none.db: there is no such file; `slicebus ledger` makes it\n"


@pytest.mark.parametrize("command", ["usage", "ledger"])
def test_without_the_packages_it_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("slicebus.cli.ledger.", "slicebus.cli.usage.s"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    done = call(command, *(("--amqp-url", "memory://manager@none") if command == "ledger" else ()))
    assert done.status == 2
    assert done.err.startswith("slicebus: it needs the extra ledger, pip install 'slicebus[ledger]': ")


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    address = "amqp://guest:secret@127.0.0.1:1"
    done = call("ledger", "--amqp-url", address, "--database", str(tmp_path / "l.db"), "--no-follow")
    assert done.status == 2
    assert "secret" not in done.err
    assert len(done.err.splitlines()) == 1
