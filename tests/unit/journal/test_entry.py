"""Entries: everything recorded is one, readable or not; and which of them are asked for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.bus.contract import Record
from slicebus.journal.entry import Entry, matching
from slicebus.proto.messages import Direction, Pending, Resync
from unit.journal.records import BEGAN, JOB, entry, garbage, record

PENDING = Pending(
    job=JOB,
    workload="w2",
    worker_uid="u",
    worker_generation=2,
    wanted={"main": 5},
    reason="Pending",
    message="no quota",
    since="2026-01-31T12:00:00Z",
)


def test_an_entry_has_its_cluster_job_and_time() -> None:
    read = entry(PENDING, offset=3, at_s=1.5, chain="c1")
    assert (read.offset, read.cluster, read.type, read.subject) == (3, "east", "pending", "Job/team/train")
    assert (read.correlation_id, read.direction) == ("c1", Direction.DOWN)
    assert read.published == read.recorded == BEGAN + timedelta(seconds=1.5)
    assert read.received is not None
    assert read.received.message == PENDING


def test_an_unreadable_message_is_an_entry_with_a_problem() -> None:
    read = Entry.from_record(garbage())
    assert (read.cluster, read.type, read.subject, read.correlation_id) == ("east", "status", "", "")
    assert (read.received, read.direction, read.published) == (None, None, None)
    assert read.problem.startswith("malformed: ")


@given(
    body=st.binary(),
    headers=st.dictionaries(st.text(), st.text()),
    key=st.text(),
    time=st.one_of(st.none(), st.text()),
)
def test_reading_never_fails(body: bytes, headers: dict[str, str], key: str, time: str | None) -> None:
    stamped = headers | ({} if time is None else {"cloudEvents_time": time})
    read = Entry.from_record(garbage(body, headers=stamped, routing_key=key))
    assert read.published is None or read.published.tzinfo is not None
    assert read.received or read.problem
    assert f"{key}.".startswith(f"{read.cluster}.{read.type}")


TIMES: dict[str, tuple[str, datetime]] = {
    "UTC": ("2026-01-31T12:00:00.5Z", BEGAN + timedelta(seconds=0.5)),
    "another zone": ("2026-01-31T13:00:00+01:00", BEGAN),
    "no zone is UTC": ("2026-01-31T12:00:00", BEGAN),
    "no time: when it was recorded": ("yesterday", BEGAN),
    "empty": ("", BEGAN),
}


@pytest.mark.parametrize(("text", "expected"), TIMES.values(), ids=TIMES.keys())
def test_the_time_of_publishing(text: str, expected: datetime) -> None:
    stamped = record(Resync())
    headers = stamped.message.headers | {"cloudEvents_time": text}
    read = Entry.from_record(record(Resync(), headers=headers))
    assert read.published == expected
    assert read.published.tzinfo is not None


FILTERS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing asked": ({}, True),
    "cluster": ({"cluster": "east"}, True),
    "another cluster": ({"cluster": "west"}, False),
    "the beginning of a cluster": ({"cluster": "eas"}, False),
    "job by name": ({"job": "train"}, True),
    "job by namespace and name": ({"job": "team/train"}, True),
    "job by kind, namespace and name": ({"job": "Job/team/train"}, True),
    "another kind": ({"job": "RayJob/team/train"}, False),
    "the end of a name": ({"job": "rain"}, False),
    "type": ({"type": "pending"}, True),
    "another type": ({"type": "status"}, False),
    "chain": ({"correlation": "c1"}, True),
    "another chain": ({"correlation": "c2"}, False),
    "until then": ({"until": BEGAN}, True),
    "until before": ({"until": BEGAN - timedelta(seconds=1)}, False),
    "all of it": ({"cluster": "east", "job": "train", "type": "pending", "correlation": "c1"}, True),
    "all but one": ({"cluster": "east", "job": "train", "type": "status", "correlation": "c1"}, False),
}


@pytest.mark.parametrize(("asked", "expected"), FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_selects_entries(asked: dict[str, Any], expected: bool) -> None:
    assert matching(**asked)(entry(PENDING, chain="c1")) is expected


def test_until_never_excludes_an_entry_without_a_time() -> None:
    message = record(PENDING).message
    headers = {name: value for name, value in message.headers.items() if name != "cloudEvents_time"}
    unstamped = Record(offset=0, message=msgspec.structs.replace(message, headers=headers), timestamp=None)
    assert matching(until=datetime(2000, 1, 1, tzinfo=UTC))(Entry.from_record(unstamped))
