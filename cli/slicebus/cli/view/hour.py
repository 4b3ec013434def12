"""Collects an hour of the journal: every message, and the steps of recorded decisions."""

from collections import deque
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime, timedelta

import msgspec

from slicebus.bus.contract import Bus, Record
from slicebus.bus.sizes import size_of
from slicebus.cli.doctor.check import Check
from slicebus.cli.journal.turns import in_turns
from slicebus.journal.beginnings import BEFORE, Beginnings
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import Redactor
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.streams import read_journals
from slicebus.proto.topology import MANAGER_KEY

KEPT = timedelta(hours=1)
OVERLAP = timedelta(seconds=10)
"""Clocks of publishers and of the broker may differ by so much."""
_MOST_BYTES = 64 * 1024**2
"""Of the messages that are kept: of a busier fleet it is less than an hour."""
_MOST_STEPS = 200_000
_MOST_IDS = 100_000


class RecordedHour(msgspec.Struct, frozen=True, kw_only=True):
    """What a page shows of the journal."""

    entries: tuple[Entry, ...]
    """The messages without secrets, oldest first."""
    events: tuple[RecordedStep | Consumed, ...]
    problem: str
    """Why it is not read, or not up to its end; empty where it is."""
    dead_letters: Check | None
    """None where nobody has counted them."""

    def about(self, job: str) -> "tuple[list[Entry], list[RecordedStep | Consumed]]":
        """The messages and steps of one job, `Kind/namespace/name`."""
        return (
            [entry for entry in self.entries if entry.subject == job],
            [event for event in self.events if event.job == job],
        )


class HourReader:
    """Takes the records of both streams from `BEFORE` a time on, and keeps what is later than that time."""

    def __init__(self, since: datetime) -> None:
        self.bytes = 0
        """Of the messages that are kept."""
        self.first: datetime | None = None
        """When the first record of a manager's decisions was published that it was given; None before that."""
        self._since = since
        self._beginnings = Beginnings(since)
        self._steps = Steps()
        self._redactor = Redactor()
        self._entries: deque[tuple[Entry, int]] = deque()
        self._events: deque[RecordedStep | Consumed] = deque(maxlen=_MOST_STEPS)
        self._ids: dict[str, None] = {}
        """The last messages that were read, oldest first."""
        self._number = 0

    def feed(self, record: Record) -> Entry | None:
        """Take the next record, and return its entry; None for one that has come before."""
        if self._is_known(record.message.message_id):
            return None
        self._number += 1
        entry = Entry.from_record(msgspec.structs.replace(record, offset=self._number))
        if self.first is None and entry.is_decisions and entry.cluster == MANAGER_KEY:
            self.first = entry.published
        for due in self._beginnings.feed(entry):
            self._keep(due, self._steps.feed(due))
        return entry

    def drop_before(self, moment: datetime) -> None:
        """Forget what is older, and the oldest of what is too much."""
        while self._entries and (self.bytes > _MOST_BYTES or _is_before(self._entries[0][0], moment)):
            self.bytes -= self._entries.popleft()[1]
        while self._events and self._events[0].at < moment:
            self._events.popleft()

    def hour(self, *, problem: str = "", dead_letters: Check | None = None) -> RecordedHour:
        """What is kept now."""
        return RecordedHour(
            entries=tuple(entry for entry, _ in self._entries),
            events=tuple(self._events),
            problem=problem,
            dead_letters=dead_letters,
        )

    def _is_known(self, id: str | None) -> bool:
        if not id:
            return False
        if id in self._ids:
            return True
        self._ids[id] = None
        if len(self._ids) > _MOST_IDS:
            del self._ids[next(iter(self._ids))]
        return False

    def _keep(self, entry: Entry, events: Iterator[RecordedStep | Consumed]) -> None:
        self._events.extend(event for event in events if event.at >= self._since)
        if entry.is_decisions:
            return
        size = size_of(entry.record.message)
        self._entries.append((entry.shown(self._redactor), size))
        self.bytes += size


async def read_hour(bus: Bus, until: datetime) -> tuple[RecordedHour, int]:
    """The hour before a moment, and its bytes."""
    since = until - KEPT
    reader = HourReader(since)
    async with aclosing(in_turns(read_journals(bus, since - BEFORE, follow=False))) as records:
        async for record in records:
            if _is_past(record, until):
                break
            reader.feed(record)
            reader.drop_before(since)
    return up_to(reader.hour(), until), reader.bytes


def up_to(hour: RecordedHour, until: datetime) -> RecordedHour:
    """What of an hour was there at a moment."""
    return msgspec.structs.replace(
        hour,
        entries=tuple(entry for entry in hour.entries if entry.published is None or entry.published <= until),
        events=tuple(event for event in hour.events if event.at <= until),
    )


def _is_past(record: Record, until: datetime) -> bool:
    """Whether a record and those after it are later than a moment, by the broker's clock and by its publisher's."""
    published = Entry.from_record(record).published
    times = [time for time in (record.timestamp, published) if time is not None]
    return bool(times) and min(times) > until + OVERLAP


def _is_before(entry: Entry, moment: datetime) -> bool:
    return entry.published is not None and entry.published < moment
