"""The moments that people name by --at."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from slicebus.cli.past.moments import later_second, moment_of, span_text
from slicebus.proto.errors import ConfigurationError

NOW = datetime(2026, 10, 25, 9, 30, 15, tzinfo=UTC)
"""In Berlin 10:30:15, on the day on which clocks went back from 03:00 to 02:00."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10:00", "2026-10-25T09:00:00+00:00"),
        ("9:05", "2026-10-25T08:05:00+00:00"),
        ("10:30:15", "2026-10-25T09:30:15+00:00"),
        ("10:31", "2026-10-24T08:31:00+00:00"),
        ("01:30", "2026-10-24T23:30:00+00:00"),
        ("09:00Z", "2026-10-25T09:00:00+00:00"),
        ("10:00Z", "2026-10-24T10:00:00+00:00"),
        ("23:00-10:00", "2026-10-25T09:00:00+00:00"),
        ("-15m", "2026-10-25T09:15:15+00:00"),
        ("2h", "2026-10-25T07:30:15+00:00"),
        ("2026-10-24T03:00:00Z", "2026-10-24T03:00:00+00:00"),
        ("2026-10-24T03:00:00.25+02:00", "2026-10-24T01:00:00.250000+00:00"),
        ("2026-10-24 03:00:00+02:00", "2026-10-24T01:00:00+00:00"),
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00+00:00"),
    ],
)
def test_a_moment(text: str, expected: str) -> None:
    assert moment_of(text, NOW) == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("now", "expected"),
    [("00:45", "00:30"), ("01:15", "00:30"), ("01:45", "01:30")],
    ids=["the first time", "between", "the second time"],
)
def test_a_clock_time_that_comes_twice_is_the_last_one_that_has_been(now: str, expected: str) -> None:
    moment = moment_of("02:30", datetime.fromisoformat(f"2026-10-25T{now}:00+00:00"))
    assert moment == datetime.fromisoformat(f"2026-10-25T{expected}:00+00:00")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-10-24T03:00:00", "--at 2026-10-24T03:00:00: say its zone, as Z or +01:00"),
        ("2026-10-24", "--at 2026-10-24: say its zone"),
        ("0001-01-01T00:00:00Z", "--at 0001-01-01T00:00:00Z: use 03:00"),
        ("9999-12-31T23:59:59-01:00", "--at 9999-12-31T23:59:59-01:00: use 03:00"),
        ("25:00", "--at 25:00: use 03:00, -15m, or a date with its zone such as 2026-01-31T03:00:00Z"),
        ("03:60", "--at 03:60: use 03:00"),
        ("15 minutes ago", "--at 15 minutes ago: use 03:00"),
        ("-999999d", "--at -999999d: use 03:00"),
        ("", "--at : use 03:00"),
    ],
)
def test_what_is_no_moment(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        moment_of(text, NOW)
    assert str(refused.value).startswith(told)


def test_the_ends_of_a_span_are_in_it() -> None:
    first, last = NOW.replace(microsecond=1), NOW.replace(second=59, microsecond=999_999)
    assert span_text(first, last) == (
        "the journal has records from 2026-10-25 10:30:16+01:00 to 2026-10-25 10:30:59+01:00"
    )
    assert first <= moment_of("2026-10-25 10:30:16+01:00", NOW) <= moment_of("2026-10-25 10:30:59+01:00", NOW) <= last
    assert span_text(first, None).endswith(" to now")
    assert span_text(None, None) == "the journal has no records"
    assert later_second(NOW) == "2026-10-25 10:30:15+01:00"
