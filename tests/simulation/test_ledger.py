"""The ledger's pod-seconds equal those that were counted at the manager's API server, through crashes of every role."""

from collections.abc import Mapping

import pytest
import structlog

from simulation import run as one_run
from simulation.fleet import MANAGER, Fleet
from simulation.granted_pods import GrantedPods
from simulation.ledger_hours import LedgerHours
from simulation.ledger_sums import LedgerSums
from simulation.loop import run
from simulation.schedule import Crash
from simulation.seeds import schedule_of

SEEDS = (6, 12, 19, 34, 36, 49)
MOST_SHARE = 0.001


@pytest.fixture(autouse=True)
def _quiet() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def off_by(told: Mapping[str, float], true: Mapping[str, float]) -> float:
    """By how many pod-seconds, over all jobs."""
    return sum(abs(true.get(job, 0.0) - told.get(job, 0.0)) for job in {*true, *told})


def test_the_ledger_comes_to_what_the_api_server_had() -> None:
    right = wrong = unknown_s = 0.0
    crashes = 0
    for seed in SEEDS:
        fleet, sums = Fleet(schedule_of(seed), skew_s=0.0), LedgerSums()
        granted = GrantedPods(fleet)
        run(fleet.run(one_run.play))
        sums.feed(fleet.memory.journal)
        true = granted.until(sums.known_s)
        right += sum(true.values())
        wrong += off_by(sums.by_job(), true)
        unknown_s += sums.unknown_s
        crashes += sum(isinstance(item, Crash) and item.role == MANAGER for item in fleet.schedule.items)
    assert crashes > 0, "no manager has crashed"
    assert right > 10_000
    assert unknown_s <= MOST_SHARE * right
    assert wrong <= MOST_SHARE * right


@pytest.mark.soak
def test_it_does_so_in_a_day_of_jobs_and_kills() -> None:
    """Takes two minutes of processor time. A week takes a quarter of an hour."""
    played = LedgerHours(1, hours=24)
    true = played.play()
    right = sum(true.values())
    assert played.kills > 10, "a manager has been killed"
    assert len(true) > 30
    assert right > 500_000
    assert played.sums.unknown_s <= MOST_SHARE * right
    assert off_by(played.sums.by_job(), true) <= MOST_SHARE * right
