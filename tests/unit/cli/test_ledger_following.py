"""A ledger that follows, when it is interrupted."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.following import LedgerWriter
from slicebus.cli.ledger.retention import Retention
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.proto.errors import ConfigurationError
from unit.ledger.recorded import Leader, put, workload

FOREVER = Retention(timedelta(days=9999), timedelta(days=9999))


def writer_of(file: Path) -> LedgerWriter:
    engine = open_engine(str(file), create=True)
    migrate(engine)
    store = LedgerStore(engine)
    return LedgerWriter(store, *store.load(), FOREVER, user_label="")


async def test_a_write_ends_before_its_ledger_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, has_begun, may_end = LedgerStore.write, threading.Event(), threading.Event()

    def slow(*arguments: Any) -> ReadPosition:
        has_begun.set()
        may_end.wait()
        return write(*arguments)

    monkeypatch.setattr(LedgerStore, "write", slow)
    first = writer_of(tmp_path / "ledger.db")
    record = Leader().begins(0, put(workload("a", 2, admitted=2))).record
    writing = asyncio.create_task(first.write([record]))
    await asyncio.to_thread(has_begun.wait)
    writing.cancel()
    await asyncio.sleep(0.05)
    try:
        assert not writing.done(), "its thread writes still"
    finally:
        may_end.set()
    await asyncio.gather(writing, return_exceptions=True)
    assert writing.cancelled()
    await writer_of(tmp_path / "ledger.db").write([record])


async def test_a_file_for_the_probe_that_can_be_touched_no_longer_is_one_line(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "ledger.db")
    with pytest.raises(ConfigurationError, match=r"^--alive .*/gone/alive: No such file or directory$"):
        await writer.run(asyncio.Queue(), tmp_path / "gone" / "alive")
