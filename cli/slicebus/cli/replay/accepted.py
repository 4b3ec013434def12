"""Writes this version's decisions into a recording as the expected ones."""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Raw

from slicebus.bus.contract import Record
from slicebus.decisions.replay import Replayed
from slicebus.journal.export import to_line
from slicebus.journal.recording import Batch, Decided, Failure, Received, decode_batch, with_records
from slicebus.journal.recording import Record as Recorded


def accepted(record: Record, decisions: Iterable[Replayed]) -> Record:
    """A batch with the decisions as they were made now; one that this version does not have is left out."""
    by_index = {decision.position.index: decision for decision in decisions if not decision.same}
    if not by_index:
        return record
    batch: Batch = decode_batch(record.message)
    message = with_records(record.message, batch, tuple(_accepted(batch.records, by_index)))
    return msgspec.structs.replace(record, message=message)


def write(path: Path, records: Iterable[Record]) -> None:
    """Write an export again. What was redacted in it stays so."""
    data = b"".join(to_line(record, redact=False) + b"\n" for record in records)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _accepted(records: tuple[Recorded, ...], decisions: Mapping[int, Replayed]) -> Iterator[Recorded]:
    for index, record in enumerate(records):
        decision = decisions.get(index)
        if decision is None:
            yield record
        elif isinstance(record, Received):
            yield msgspec.structs.replace(record, problem=msgspec.json.decode(decision.replayed, type=str))
        elif isinstance(record, Decided) and not decision.problem:
            yield _decided(record, decision.replayed)


def _decided(record: Decided, outcome: bytes) -> Decided:
    try:
        failed = msgspec.json.decode(outcome, type=Failure)
    except msgspec.ValidationError:
        return msgspec.structs.replace(record, outcome=Raw(outcome), failed=None)
    return msgspec.structs.replace(record, outcome=Raw(b"[]"), failed=failed)
