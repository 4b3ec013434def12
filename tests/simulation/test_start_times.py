"""What `slicebus simulate --since` says of a start is held to what comes."""

from collections.abc import Iterable
from statistics import median

import pytest

from simulation.start_times import Asked, play, submissions

BEFORE_P90 = 0.9


def expect_true(asked: Iterable[Asked], *, count: int, most_off: float, share: float = BEFORE_P90) -> None:
    """So many start before the later time, which is at most so many times what half of them waited."""
    known = [(each.waited_s, each.said.p90_s) for each in asked if each.said.p90_s is not None]
    assert len(known) >= count
    assert sum(waited_s <= p90_s for waited_s, p90_s in known) >= share * len(known)
    assert median(p90_s / waited_s for waited_s, p90_s in known) <= most_off


def test_most_jobs_of_one_fleet_start_before_the_time_that_was_said() -> None:
    """Takes half a minute of processor time: each job that waits has forty futures played. Of the 25 jobs of a single
    fleet a few are more than a tenth, and more of them wait for a short time only, of which a minute more is a
    multiple."""
    expect_true(play(submissions(10, 110, busy=0.95)), count=20, most_off=3.5, share=0.75)


@pytest.mark.soak
def test_nine_of_ten_jobs_of_many_fleets_do() -> None:
    expect_true(
        [asked for seed in range(2, 11) for asked in play(submissions(seed, 110, busy=0.95))], count=140, most_off=3.0
    )
