"""What silence means in the middle of a stream, and at its end."""

from datetime import UTC, datetime, timedelta

import pytest

from slicebus.bus.contract import StreamOffset
from slicebus.bus.rabbitmq.stream import Silence, Tail, meaning

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
TAIL = Tail(offset=100, time=NOON)
ENDS = {
    "behind the last chunk's first record": ("first", 100, TAIL, 1.0),
    "a reading of what is yet to come": ("next", None, TAIL, 1.0),
    "an offset behind the last chunk's first": (101, None, TAIL, 1.0),
    "a time after the last chunk's": (NOON + timedelta(seconds=1), None, TAIL, 1.0),
    "a time that may be after it, by another clock": (NOON - timedelta(seconds=9), None, TAIL, 5.0),
    "a time, and none is recorded": (NOON, None, Tail(100, None), 5.0),
    "nothing is there at all": ("first", None, None, 3.0),
}
GOES_ON = {
    "in the middle": ("first", 99, TAIL, 29.0),
    "before the first record": ("first", None, TAIL, 29.0),
    "an offset before the last chunk": (100, None, TAIL, 29.0),
    "a time before the last chunk's": (NOON - timedelta(seconds=10), None, TAIL, 29.0),
    "a time that may be after it": (NOON, None, TAIL, 4.0),
    "the last chunk is not known yet": ("first", 99, None, 29.0),
    "it may be empty": ("first", None, None, 2.0),
}

Case = tuple[StreamOffset, int | None, Tail | None, float]


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_it_has_ended(case: Case) -> None:
    assert meaning(*case) is Silence.END


@pytest.mark.parametrize("case", GOES_ON.values(), ids=GOES_ON.keys())
def test_it_goes_on(case: Case) -> None:
    assert meaning(*case) is Silence.GOES_ON


@pytest.mark.parametrize("case", [("first", 99, TAIL), ("first", None, TAIL), ("first", 99, None)])
def test_what_does_not_come_for_long_is_lost_and_not_the_end(
    case: tuple[StreamOffset, int | None, Tail | None],
) -> None:
    assert meaning(*case, 30.0) is Silence.LOST
