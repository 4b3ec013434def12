"""What commands read from a ledger: on PostgreSQL they say what they say on SQLite."""

from pathlib import Path

import pytest

from slicebus.cli.journal.source import records_of_file
from support.ledgers import ledger_of
from support.postgresql import PostgresServer
from unit.cli.hostile import call

RECORDING = Path(__file__).parents[2] / "replays" / "eviction.jsonl.gz"
MOMENTS = [f"2026-01-01T00:00:{second:02}Z" for second in (8, 20, 40)]
QUOTA = ("--since", "2026-01-01T00:00:00Z", "--quota", "batch.cpu@reserved=+4")


@pytest.fixture(scope="module")
def ledgers(postgresql: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The addresses of two that have followed the same recording."""
    addresses = str(tmp_path_factory.mktemp("ledger") / "ledger.db"), postgresql.database("reading")
    return [ledger_of(records_of_file(str(RECORDING)), address) for address in addresses]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("command", ["jobs", "queues"])
def test_a_moment_of_the_past(ledgers: list[str], command: str, moment: str) -> None:
    _expect_same(ledgers, command, "--at", moment, "-o", "json")


def test_a_past_that_is_played_again(ledgers: list[str]) -> None:
    _expect_same(ledgers, "whatif", *QUOTA, "-o", "json")


def _expect_same(ledgers: list[str], *command: str) -> None:
    one, other = (call(*command, "--ledger", address) for address in ledgers)
    assert (one.status, len(one.out) > 100) == (0, True), one.err
    assert (other.out, other.status) == (one.out, 0), other.err
