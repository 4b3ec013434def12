"""Sums up each entry in one line, for people."""

from slicebus.journal.entry import Entry
from slicebus.journal.recording import Decided, decode_batch
from slicebus.proto.errors import InvalidError


def summary(entry: Entry) -> str:
    """Sum up an entry, or say why it cannot be read."""
    if entry.is_decisions:
        return _of_batch(entry)
    return entry.received.message.summary() if entry.received else entry.problem


def _of_batch(entry: Entry) -> str:
    try:
        batch = decode_batch(entry.record.message)
    except InvalidError as error:
        return str(error)
    decided = sum(isinstance(record, Decided) for record in batch.records)
    return f"{batch.source}, batch {batch.number}: {len(batch.records)} records, {decided} decisions"
