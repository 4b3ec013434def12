"""When a job that waits would start, by the run times of others."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from slicebus.journal.run_times import RunTime
from slicebus.manager.decide.forecast.start_time import rounds, start_time
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import OWN, holding, queue, waiting, world

MOMENT = datetime(2026, 1, 1, 0, 0, 40, tzinfo=UTC)
"""40 seconds after the jobs with quota got it."""
LIKE = [RunTime("cq", 4, 100.0)] * 10


def a_median(found: Sequence[float]) -> float:
    return sorted(found)[len(found) // 2]


def starts(slice: Slice, *others: Slice, known: Sequence[RunTime] = LIKE, **how: Any) -> list[float]:
    """When it starts, in three rounds."""
    made = world(slice, *others, **({"queues": [queue(quota="5")]} | how))
    return [*islice(rounds(made, slice, known, moment=MOMENT, choose=a_median), 3)]


def test_when_the_job_before_it_has_ended() -> None:
    assert starts(waiting("w", 5), holding("a", 4)) == [60.0] * 3


def test_at_once_where_there_is_room() -> None:
    assert starts(waiting("w", 1), holding("a", 4)) == [0.0] * 3


def test_after_those_who_come_before_it() -> None:
    assert starts(waiting("w", 5), holding("a", 4), waiting("first", 5, 9)) == [160.0] * 3


def test_a_job_that_has_outlived_all_others_may_run_as_long_again() -> None:
    assert starts(waiting("w", 5), holding("a", 4), known=[RunTime("cq", 4, 30.0)] * 10) == [30.0] * 3


def test_by_jobs_of_about_its_size() -> None:
    known = [*LIKE, *[RunTime("cq", 40, 9000.0)] * 10]
    assert starts(waiting("w", 5), holding("a", 4), known=known) == [60.0] * 3


def test_at_once_where_it_preempts() -> None:
    assert starts(waiting("w", 5, 9), holding("a", 4), queues=[queue(quota="5", **OWN)]) == [0.0] * 3


def test_nothing_is_said_by_too_few() -> None:
    assert starts(waiting("w", 5), holding("a", 4), known=LIKE[:9]) == []
    assert starts(waiting("w", 5), holding("a", 4), known=[RunTime("other", 4, 1.0)] * 50) == []


def test_it_never_starts_where_no_quota_is_enough() -> None:
    found = starts(waiting("w", 50), holding("a", 4))
    assert found == [float("inf")] * 3
    told = start_time(found, 10)
    assert told is not None
    assert (told.p50_s, told.p90_s, told.rounds) == (None, None, 3)


def test_the_middle_and_the_late_ones() -> None:
    told = start_time([float(n) for n in range(1, 101)], 42)
    assert told is not None
    assert (round(told.p50_s or 0), round(told.p90_s or 0), told.run_times, told.rounds) == (50, 90, 42, 100)
    assert start_time([3.0], 42) is None
