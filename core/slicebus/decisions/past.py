"""Finds the state by which the leaders of a role decided at a moment of the past.

The state is put together as a replay does it, and no decision is made again. Decisions and messages have their times
in a recording, changes of objects and tables have none. A change is known to be of the moment or before where a
decision or message after it is, or where its batch was published by then.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from slicebus.bus.contract import Record as StreamRecord
from slicebus.decisions.decider import RoleState
from slicebus.decisions.replay import Model, Position, Replay
from slicebus.journal.entry import Entry
from slicebus.journal.recording import (
    Batch,
    Began,
    Decided,
    Gap,
    Received,
    Record,
    RoleName,
    SnapshotPart,
)
from slicebus.journal.recording import Source as Leader
from slicebus.journal.recording_reader import Phase, batch_of

_NOWHERE = Position(0, 0)
"""No decision is made, which would have a place."""


class PastState(msgspec.Struct, frozen=True):
    """What a leader knew at the moment."""

    state: RoleState
    seen: datetime
    """The time of its last record by then: a leader records something every few seconds."""


class Past:
    """Finds the state at one moment. Feed it a recording, from a snapshot of each leader before the moment on.

    Of several leaders it takes the one with the latest record by then: the last one to lead, or any shard, as each
    watches everything.
    """

    def __init__(self, at: datetime, role: RoleName, model: Model) -> None:
        self.known_from: datetime | None = None
        """The first moment from which on a state is known, where that is later."""
        self._at_s = at.timestamp()
        self._role = role
        self._model = model
        self._followers: dict[Leader, _Follower] = {}

    def feed(self, record: StreamRecord) -> None:
        """Take one record of the journal. Raises InvalidError."""
        batch = batch_of(record, self._role)
        if batch is None:
            return
        leader = batch.source
        follower = self._followers.setdefault(leader, _Follower(leader, self._model, self._at_s))
        published = Entry.from_record(record).published
        follower.feed(batch, published.timestamp() if published else self._at_s)
        if self.known_from is None and follower.is_late and follower.replay.reader.phase is Phase.KNOWN:
            self.known_from = published

    @property
    def state(self) -> PastState | None:
        """The state; None where that of the last leaders is not known."""
        begun = sorted((one for one in self._followers.values() if one.seen_s), key=lambda one: one.seen_s)
        last = {one.leader.shard: one for one in begun}.values()
        known = [one for one in last if one.replay.reader.phase is Phase.KNOWN and not one.is_late]
        if not known:
            return None
        best = max(known, key=lambda one: one.seen_s)
        return PastState(best.replay.state, datetime.fromtimestamp(max(0.0, best.seen_s), UTC))

    @property
    def is_complete(self) -> bool:
        """Whether later records change nothing any more."""
        followers = sorted(self._followers.values(), key=lambda one: one.leader.epoch)
        newest = {one.leader.shard: one for one in followers}.values()
        has_ended = bool(newest) and all(one.is_past and not one.is_collecting for one in newest)
        return has_ended and (self.state is not None or self.known_from is not None)


class _Follower:
    """Follows one leader to the moment, and through the rest of a snapshot that it had begun by then."""

    def __init__(self, leader: Leader, model: Model, at_s: float) -> None:
        self.leader = leader
        self.replay = Replay(leader, model)
        self.seen_s = 0.0
        self.is_past = False
        """Whether a record is known to be later than the moment."""
        self.is_late = False
        """Whether its state is that of a later moment."""
        self._at_s = at_s
        self._held: list[Record] = []
        """Changes that may be later than the moment, or before a decision that is not."""

    @property
    def is_collecting(self) -> bool:
        """Whether the rest of a snapshot is to come."""
        return self.replay.reader.phase is Phase.COLLECTING and not self.is_late

    def feed(self, batch: Batch, published_s: float) -> None:
        """Take the next batch. Raises InvalidError."""
        if self.replay.reader.has(batch):
            return  # Published twice.
        self.replay.reader.begin(batch)
        records: Sequence[Record] = batch.records
        if not self.is_past:
            by, records = self._split(records, published_s)
            self._apply(by)
        if self.is_past:
            self._apply(self._of_use(records))

    def _split(self, records: Sequence[Record], published_s: float) -> tuple[list[Record], list[Record]]:
        """What is of the moment or before, and what is later. Nothing is later unless a decision or message is."""
        by, held = list[Record](), self._held
        for index, record in enumerate(records):
            if not isinstance(record, (Decided, Received)):
                held.append(record)
            elif record.at > self._at_s:
                self.is_past = True
                later = [*held, *records[index:]]
                # What was dropped before a gap may be of the moment.
                return (by, later) if not isinstance(later[0], Gap) else ([*by, later[0]], later[1:])
            else:
                self.seen_s = max(self.seen_s, record.at)
                by += held
                held = []
        if published_s <= self._at_s:
            self.seen_s = max(self.seen_s, published_s)
            by += held
            held = []
        self._held = held
        return by, []

    def _of_use(self, later: Sequence[Record]) -> Iterable[Record]:
        """What is of use after the moment: the rest of a snapshot; or everything, to find out from when on the state is
        known."""
        if self.replay.reader.phase is Phase.KNOWN:
            return ()
        if self.replay.reader.phase is Phase.UNKNOWN or any(map(_interrupts, later)):
            self.is_late = True
        return later if self.is_late else filter(_continues, later)

    def _apply(self, records: Iterable[Record]) -> None:
        """Change the state. Decisions and messages change nothing, and take the most time."""
        for record in records:
            if not isinstance(record, (Decided, Received)):
                for _ in self.replay.take(record, _NOWHERE):
                    raise AssertionError("no decision was fed")


def _continues(record: Record) -> bool:
    """Whether it is a part of a snapshot, but not the first."""
    return isinstance(record, SnapshotPart) and record.part > 0


def _interrupts(record: Record) -> bool:
    """Whether a snapshot that had begun will not be completed."""
    return isinstance(record, (Began, Gap)) or (isinstance(record, SnapshotPart) and record.part == 0)
