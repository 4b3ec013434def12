"""What `slicebus simulate --since` says of a start is held to what comes."""

from collections.abc import Iterable
from statistics import median

import pytest

from simulation.start_times import Asked, play, submissions

BEFORE_P90, MOST_OFF = 0.88, 3.0


def expect_true(asked: Iterable[Asked], *, count: int) -> None:
    """Nine of ten start before the later time, which is at most three times what half of them waited."""
    known = [(each.waited_s, each.said.p90_s) for each in asked if each.said.p90_s is not None]
    assert len(known) >= count
    assert sum(waited_s <= p90_s for waited_s, p90_s in known) >= BEFORE_P90 * len(known)
    assert median(p90_s / waited_s for waited_s, p90_s in known) <= MOST_OFF


def test_nine_of_ten_jobs_start_before_the_time_that_was_said() -> None:
    """Takes half a minute of processor time: each job that waits has forty futures played."""
    expect_true(play(submissions(2, 110, busy=0.95)), count=12)


@pytest.mark.soak
def test_nine_of_ten_jobs_of_many_fleets_do() -> None:
    expect_true([asked for seed in range(2, 10) for asked in play(submissions(seed, 150, busy=0.95))], count=140)
