"""Ledgers that have what a recording says."""

from collections.abc import Iterable
from pathlib import Path

from slicebus.bus.contract import Record
from slicebus.cli.ledger.database import migrate, open_engine
from slicebus.cli.ledger.store import LedgerStore, ReadPosition
from slicebus.journal.entry import Entry
from slicebus.ledger.bookkeeper import Bookkeeper, LedgerState


def ledger_of(records: Iterable[Record], database: Path | str) -> str:
    """The address of a ledger in a file, or in an empty database, which has followed these records."""
    engine = open_engine(str(database), create=True)
    migrate(engine)
    keeper = Bookkeeper(LedgerState())
    facts = [fact for record in records for fact in keeper.feed(Entry.from_record(record))]
    after = ReadPosition(next_offset=1, read_ms=keeper.known_ms, known_ms=keeper.known_ms)
    LedgerStore(engine).write(facts, keeper.taken, ReadPosition(), after)
    engine.dispose()
    return str(database)
