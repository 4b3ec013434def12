"""Runs are played in processes of their own, and told in their order."""

import os
from itertools import count, islice

import pytest

from simulation.processes import DiedError, outcomes

# On Python 3.12 and later pytest-xdist's threads are told of; those of the simulation's own process have none.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def _late_first(run: int) -> tuple[int, int]:
    sum(range(10_000_000 if run == 0 else 0))
    return run, os.getpid()


def test_outcomes_come_in_the_order_of_the_runs_each_from_its_own_process() -> None:
    told = list(outcomes(_late_first, range(6), 3))
    assert [run for run, _ in told] == [*range(6)]
    assert len({process for _, process in told} | {os.getpid()}) == 7


def test_runs_without_end_are_played_as_far_as_they_are_asked_for() -> None:
    assert [run for run, _ in islice(outcomes(_late_first, count(), 2), 5)] == [*range(5)]


def _ends(_: int) -> None:
    os._exit(3)


def test_a_process_that_ends_without_an_outcome_is_an_error() -> None:
    with pytest.raises(DiedError, match=r"run 1 has ended its process, by status 3"):
        list(outcomes(_ends, range(1), 1))
