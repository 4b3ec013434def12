"""A followed journal gives each span of a change that is over out once, and forgets jobs whose changes are over."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from slicebus.cli.journal.source import records_of_file
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import Redactor
from slicebus.journal.spans import TraceSpan, is_over, spans
from slicebus.journal.trace_follower import QUIET, TraceFollower
from slicebus.journal.traces import traces
from unit.journal.records import BEGAN

RECORDINGS = sorted((Path(__file__).parents[2] / "replays").glob("*.jsonl*"))
LONG = timedelta(minutes=5)


def entries(recording: Path) -> list[Entry]:
    return [Entry.from_record(record) for record in records_of_file(str(recording))]


def life() -> list[Entry]:
    return entries(next(path for path in RECORDINGS if path.name.startswith("life-of-a-job")))


def follow(follower: TraceFollower, found: Iterable[Entry], *, pause: timedelta) -> tuple[list[TraceSpan], datetime]:
    """What it gives out of these entries, with a pause after each; and the time then."""
    given, now = list[TraceSpan](), BEGAN
    for entry in found:
        follower.feed(entry, now=now)
        now += pause
        given += follower.due(now)
    return given, now


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_what_is_read_at_once_gives_every_span_of_every_change_that_is_over(recording: Path) -> None:
    found = entries(recording)
    expected = [span for trace in traces(found) if is_over(trace) for span in spans(trace, Redactor())]
    follower = TraceFollower()
    early, now = follow(follower, found, pause=timedelta())
    assert not early, "what is recorded of a job may not be whole yet"
    given = list(follower.due(now + QUIET))
    assert sorted(given, key=lambda span: span.span_id) == sorted(expected, key=lambda span: span.span_id)
    assert not list(follower.due(now + 2 * QUIET))


def test_what_is_read_slowly_gives_no_span_twice_and_the_changes_one_after_the_other() -> None:
    given, _ = follow(TraceFollower(), life(), pause=QUIET)
    ids = [span.span_id for span in given]
    assert len(ids) == len({*ids})
    wholes = [span.name for span in given if not span.parent_id]
    assert wholes == ["start", "resize", "resize", "delete"]


def test_only_the_wanted_jobs_and_only_what_begins_from_then_on() -> None:
    found = life()
    assert not follow(TraceFollower(lambda job: job == "Job/team-a/other"), found, pause=QUIET)[0]
    began = [span.began for span in follow(TraceFollower(), found, pause=QUIET)[0] if not span.parent_id]
    late, _ = follow(TraceFollower(since=began[1]), found, pause=QUIET)
    assert [span.began for span in late if not span.parent_id] == began[1:]


def test_a_job_is_forgotten_once_its_changes_have_been_over_for_a_while() -> None:
    follower, found = TraceFollower(), life()
    _, now = follow(follower, found, pause=timedelta())
    list(follower.due(now + QUIET))
    assert len(follower) == 1
    list(follower.due(now + LONG))
    assert len(follower) == 0


def test_a_job_whose_change_goes_on_is_kept() -> None:
    found = life()
    until = next(number for number, entry in enumerate(found) if entry.type == "scale-request")
    follower = TraceFollower()
    _, now = follow(follower, found[: until + 1], pause=timedelta())
    list(follower.due(now + QUIET))
    list(follower.due(now + LONG))
    assert len(follower) == 1
    for entry in found[until + 1 :]:
        follower.feed(entry, now=now + LONG)
    given = [span.name for span in follower.due(now + LONG + QUIET) if not span.parent_id]
    assert given == ["resize", "resize", "delete"]
