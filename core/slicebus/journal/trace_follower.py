"""Follows a journal, and says which spans are new: those of the changes that are over, once each.

A role's decisions are recorded a moment after its messages, so a job is looked at once nothing was recorded of it for a
while. What is kept of a job ends some time after its last change, and is bounded.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import msgspec

from slicebus.journal.entry import Entry
from slicebus.journal.redaction import Redactor
from slicebus.journal.spans import TraceSpan, is_over, spans
from slicebus.journal.steps import Consumed, RecordedStep, Steps
from slicebus.journal.traces import traces

QUIET = timedelta(seconds=3)
"""After this time without a record of a job, what is recorded of it is whole."""
_KEPT = timedelta(minutes=2)
"""So long after its last record a job is kept whose changes are over: what comes later belongs to another change."""
_MOST_RECORDS = 2000
"""Of one job. Older ones belong to changes that are over, or to one that the next has overtaken."""


class _Job(msgspec.Struct):
    """What is kept of one job."""

    read_at: datetime
    """When the last record of it was read."""
    messages: list[Entry] = []
    events: list[RecordedStep | Consumed] = []
    is_new: bool = True
    """Whether something was read since it was looked at."""
    is_over: bool = False
    """Whether all its changes were over then."""
    sent: set[bytes] = set()
    """The ids of the spans that were given out."""


class TraceFollower:
    """Feed it entries in the order of the journal, and ask what is new."""

    def __init__(self, wanted: Callable[[str], bool] = lambda job: True, *, since: datetime | None = None) -> None:
        """`wanted` takes a job by `Kind/namespace/name`. Changes that began before `since` are left out: what was read
        of them lacks a part."""
        self._wanted = wanted
        self._since = since
        self._steps = Steps(wanted)
        self._jobs: dict[str, _Job] = {}
        self._redactor = Redactor()

    def __len__(self) -> int:
        """How many jobs it keeps records of."""
        return len(self._jobs)

    def feed(self, entry: Entry, *, now: datetime) -> None:
        """Take the next entry."""
        for event in filter(lambda event: event.job, self._steps.feed(entry)):
            self._of(event.job, now).events.append(event)
        if entry.subject and not entry.is_decisions and self._wanted(entry.subject):
            self._of(entry.subject, now).messages.append(entry)

    def due(self, now: datetime) -> Iterator[TraceSpan]:
        """The spans that are new. Each is given out once."""
        for key, job in list(self._jobs.items()):
            quiet = now - job.read_at
            if job.is_new and quiet >= QUIET:
                job.is_new = False
                yield from self._look(job)
            if not job.is_new and job.is_over and quiet >= _KEPT:
                del self._jobs[key]

    def _of(self, key: str, now: datetime) -> _Job:
        job = self._jobs.setdefault(key, _Job(read_at=now))
        job.read_at, job.is_new = now, True
        return job

    def _look(self, job: _Job) -> Iterator[TraceSpan]:
        """The new spans of a job, whose records are whole now."""
        job.messages, job.events = job.messages[-_MOST_RECORDS:], job.events[-_MOST_RECORDS:]
        changes, there = traces(job.messages, job.events), set[bytes]()
        for trace in changes:
            if is_over(trace) and (self._since is None or trace.began >= self._since):
                for span in spans(trace, self._redactor):
                    there.add(span.span_id)
                    if span.span_id not in job.sent:
                        yield span
        job.sent, job.is_over = there, all(map(is_over, changes))
