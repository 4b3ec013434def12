"""The database of a ledger that several processes use, or that one has left in the middle."""

import threading
from pathlib import Path

import pytest
from alembic import op

from slicebus.cli.ledger.database import check, migrate, open_engine


def test_tables_that_were_made_in_part_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError("no space left on device")

    engine = open_engine(str(tmp_path / "ledger.db"), create=True)
    with monkeypatch.context() as patched:
        patched.setattr(op, "create_index", full)
        with pytest.raises(OSError, match="no space"):
            migrate(engine)
    migrate(engine)
    check(engine)


def test_of_two_that_make_the_tables_the_second_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (open_engine(str(tmp_path / "ledger.db"), create=True) for _ in range(2))
    create, others = op.create_index, list[threading.Thread]()

    def meanwhile(*arguments: str) -> None:
        if not others:
            others.append(threading.Thread(target=migrate, args=(second,)))
            others[0].start()
            others[0].join(0.2)
            assert others[0].is_alive(), "it waits"
        create(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(op, "create_index", meanwhile)
    migrate(first)
    others[0].join()
    check(second)
