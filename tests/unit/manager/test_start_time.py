"""When a job that waits would start, by the run times of others."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, count, islice
from typing import Any, TypeVar

import pytest

from slicebus.journal.run_times import RunHistory, RunTime
from slicebus.kube.times import time_text
from slicebus.manager.decide.forecast.start_time import rounds, start_time
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import OWN, holding, queue, waiting, world

Manifest = dict[str, Any]
MOMENT = datetime(2026, 1, 1, 0, 0, 40, tzinfo=UTC)
"""40 seconds after the jobs with quota got it."""
T = TypeVar("T")
LIKE = [RunTime("cq", 4, 100.0)] * 10


class InTurn:
    """Chooses the first, then the second of a sequence, and so on."""

    def __init__(self) -> None:
        self._turns = defaultdict[int, Iterator[int]](count)
        self._kept: list[object] = []

    def __call__(self, several: Sequence[T], /) -> T:
        self._kept.append(several)  # So that no other one gets its id.
        return several[next(self._turns[id(several)]) % len(several)]


def starts(
    slice: Slice,
    *others: Slice,
    known: Sequence[RunTime] = LIKE,
    newcomers: Sequence[Manifest] = (),
    **how: Any,
) -> list[float]:
    """When it starts, in three rounds."""
    made = world(slice, *others, **({"queues": [queue(quota="5")]} | how))
    history = RunHistory(known, newcomers)
    return [*islice(rounds(made, slice, history, moment=MOMENT, choose=InTurn()), 3)]


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


def newcomers(cores: int, *gaps_s: float, queue: str = "to-cq", **spec: Any) -> list[Manifest]:
    """Eleven jobs of one pod; the last gap is that of all others too."""
    container = {"name": "main", "resources": {"requests": {"cpu": str(cores)}}}
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]
    metadata = {"namespace": "team", "name": "new", "uid": "new"}
    times = accumulate([*gaps_s, *[gaps_s[-1]] * (10 - len(gaps_s))], initial=0.0)
    created = [time_text(MOMENT - timedelta(days=1) + timedelta(seconds=at_s)) for at_s in times]
    return [
        {
            "metadata": {**metadata, "creationTimestamp": text},
            "spec": {"queueName": queue, "podSets": pod_sets} | spec,
        }
        for text in created
    ]


@pytest.mark.parametrize(
    ("come", "start_s"),
    [(newcomers(1, 50.0, 5000.0), 150.0), (newcomers(5, 50.0, 5000.0, priority=9), 160.0)],
    ids=["into what is free", "of a higher priority"],
)
def test_another_comes_before_it(come: list[Manifest], start_s: float) -> None:
    """It runs for 100 s."""
    assert starts(waiting("w", 5), holding("a", 4), newcomers=come)[0] == start_s


@pytest.mark.parametrize(
    "come",
    [
        newcomers(5, 50.0),
        newcomers(1, 5000.0),
        newcomers(1, 1.0, queue="to-other"),
        newcomers(1, 50.0)[:9],
        newcomers(1, 1.0, podSets="none"),
        newcomers(1, 1.0, podSets=[{}]),
    ],
    ids=["behind it", "later", "in no queue", "too few", "that nobody can read", "without pods"],
)
def test_others_change_nothing(come: list[Manifest]) -> None:
    assert starts(waiting("w", 5), holding("a", 4), newcomers=come) == [60.0] * 3


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
