"""Reads recordings: which records of the journal are a role's, and which of them apply to a state that is known.

A recording is of use from a snapshot on, up to a gap. What was recorded since the first part of a snapshot waits for
the last one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Generic, TypeVar

import msgspec

from slicebus.bus.contract import Record as StreamRecord
from slicebus.journal.recording import (
    Batch,
    Began,
    Decided,
    Forgot,
    Gap,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    RoleName,
    SnapshotPart,
    Source,
    decode_batch,
)
from slicebus.proto.errors import MALFORMED, InvalidError
from slicebus.proto.topology import DECISIONS_TYPE

Mark = TypeVar("Mark")
"""What a caller says of a record, and gets back with it: its time, or its place."""
Event = Put | Gone | Noted | Forgot | Received | Decided


class Phase(Enum):
    """How much of a leader's state is known."""

    UNKNOWN = auto()
    """Before the first snapshot, or after a gap: records are skipped."""
    COLLECTING = auto()
    """Within a snapshot: records since its first part wait."""
    KNOWN = auto()


class Lost(msgspec.Struct, frozen=True):
    """The state is unknown from here to the next snapshot."""

    why: str
    """Empty where nothing was lost: a leader began."""


class Whole(msgspec.Struct, Generic[Mark], frozen=True):
    """A snapshot is complete: the state is known."""

    begun: Mark
    """That of its first part."""
    content: list[Put | Noted] = []
    since: list[tuple[Mark, Event]] = []
    """What was recorded since its first part."""


class Skipped(msgspec.Struct, frozen=True):
    """A record applies to no known state."""


_SKIPPED = Skipped()
_MOST_WORDS = 500
"""Characters of why a state is lost. A ledger has them in a key, for which a database has little room."""


class SourceReader(Generic[Mark]):
    """Reads what one leader recorded: for each batch, whether it `has` it, then `begin`, then `take` its records."""

    def __init__(self, source: Source, *, known: int = 0) -> None:
        """`known`: how many of its batches the caller had before: that the stream has them no longer is no loss."""
        self.source = source
        self.phase = Phase.UNKNOWN
        self.is_cut = False
        """Whether the stream does not have its first batch."""
        self._known = known
        self._next = 0
        self._snapshot: Whole[Mark] | None = None
        """The one that is being collected."""

    def has(self, batch: Batch) -> bool:
        """Whether a batch, or a later one, has begun already: it was published twice."""
        return batch.number < self._next

    def begin(self, batch: Batch) -> Lost | None:
        """Begin the next batch. Missing ones before it are lost."""
        self.is_cut = self.is_cut or (self._next == 0 and batch.number > 0)
        missing = batch.number - (self._next or min(self._known, batch.number))
        self._next = batch.number + 1
        return self._lose(f"{missing} batches of {self.source} are missing") if missing else None

    def take(self, record: Record, mark: Mark) -> Event | Whole[Mark] | Lost | Skipped | None:
        """Take the next record. None: it is of a snapshot, or waits for one."""
        match record:
            case SnapshotPart():
                return self._collect(record, mark)
            case Began():
                return self._lose("")
            case Gap(dropped=dropped):
                return self._lose(f"{self.source} has dropped {dropped} records")
            case _ if self.phase is Phase.KNOWN:
                return record
            case _ if self._snapshot is not None:
                self._snapshot.since.append((mark, record))
                return None
            case _:
                return _SKIPPED

    def refuse(self, error: Exception) -> Lost:
        """Lose the state by a record that could not be applied to it."""
        return self._lose(f"a record of {self.source} cannot be read: {error!r}"[:_MOST_WORDS])

    def _lose(self, why: str) -> Lost:
        self.phase, self._snapshot = Phase.UNKNOWN, None
        return Lost(why)

    def _collect(self, part: SnapshotPart, mark: Mark) -> Whole[Mark] | None:
        if self.phase is Phase.KNOWN:
            return None
        if part.part == 0:
            self.phase, self._snapshot = Phase.COLLECTING, Whole(mark)
        if self._snapshot is None:
            return None
        self._snapshot.content.extend(part.content)
        if not part.last:
            return None
        whole, self.phase, self._snapshot = self._snapshot, Phase.KNOWN, None
        return whole


def batch_of(record: StreamRecord, role: RoleName) -> Batch | None:
    """The batch of a role's leader; None where a record of the journal is anything else. Raises InvalidError."""
    message = record.message
    if message.type != DECISIONS_TYPE:
        return None
    batch = decode_batch(message)
    is_own = batch.source.role == role and batch.source.routing_key == message.routing_key
    return batch if is_own else None


def malformed(what: str, error: Exception, *, role: str = "role") -> InvalidError:
    """What to raise for one of `MALFORMED`: `what` was read, which no role has recorded."""
    return InvalidError(f"{what} that no {role} records: {error!r}")


@contextmanager
def malformed_refused(what: str, *, role: str = "role") -> Iterator[None]:
    """Raise InvalidError where what is read is nothing that a role has recorded."""
    try:
        yield
    except MALFORMED as error:
        raise malformed(what, error, role=role) from error
