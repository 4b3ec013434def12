"""Schedules: the same for a seed, and thinned to what a failure needs."""

from hashlib import sha256
from statistics import median

import msgspec
import pytest

from simulation.later import OLD
from simulation.schedule import Crash, Item, Moment, Quota, Reshard, Schedule
from simulation.seeds import has_everything, schedule_of
from simulation.shrink import shrunk
from simulation.test_seeds import FIXED, ONCE_FAILED


def quotas(*sizes: int) -> Schedule:
    items = tuple(Quota(at_s=float(number), cpu=cpu) for number, cpu in enumerate(sizes))
    return Schedule(seed=1, standbys=("manager",), inventory_s=60.0, items=items)


def sizes(schedule: Schedule) -> set[int]:
    return {item.cpu for item in schedule.items if isinstance(item, Quota)}


def test_a_seed_has_one_schedule() -> None:
    assert schedule_of(7) == schedule_of(7)
    assert schedule_of(7) != schedule_of(8)


def test_a_day_is_told_in_its_order() -> None:
    moments = [item.at_s for item in schedule_of(7).items if isinstance(item, Moment)]
    assert moments == sorted(moments)
    assert str(Crash(role="manager", effect=3)) == "all along  crash role=manager effect=3"


@pytest.mark.parametrize(
    "said", ["KubeRay labels replicas", "KubeRay does not label replicas", "jobs of a fixed size are run"]
)
def test_some_runs_differ_in_what_they_are_played_with(said: str) -> None:
    heads = [str(schedule_of(seed)).partition("\n")[0] for seed in range(20)]
    assert 0 < sum(said in head.split("; ") for head in heads) < len(heads)


def test_a_seed_has_a_few_kinds_or_all() -> None:
    few, all_kinds = (
        [schedule_of(seed) for seed in range(100) if has_everything(seed) is wanted] for wanted in (False, True)
    )
    few_kinds, many_kinds = (
        [len({type(item) for item in schedule.items}) for schedule in schedules] for schedules in (few, all_kinds)
    )
    assert len(few) == 90
    assert median(few_kinds) < median(many_kinds) / 2
    assert median(len(schedule.items) for schedule in few) < median(len(schedule.items) for schedule in all_kinds) / 2


def test_every_kind_of_item_is_in_the_fixed_seeds() -> None:
    found = {type(item) for seed in FIXED for item in schedule_of(seed).items}
    # Shards are what a run is played with, whatever its seed has.
    assert found == {*Item.__subclasses__(), *Moment.__subclasses__()} - {Moment, Reshard}


def test_seeds_that_once_failed_have_the_schedules_with_which_they_did() -> None:
    schedules = msgspec.json.encode([schedule_of(seed) for seed in ONCE_FAILED if seed in OLD])
    assert sha256(schedules).hexdigest()[:16] == "f56290befc6e57f7"


def test_only_what_a_failure_needs_is_left() -> None:
    left = shrunk(quotas(*range(40)), lambda thinner: {3, 17, 31} <= sizes(thinner), most=200)
    assert sizes(left) == {3, 17, 31}
    assert left.standbys == ()


def test_what_cannot_be_spared_stays() -> None:
    schedule = quotas(1, 2, 3)
    assert shrunk(schedule, lambda thinner: thinner == schedule, most=200) == schedule


def test_shrinking_ends_after_so_many_tries() -> None:
    tried = []
    shrunk(quotas(*range(40)), lambda thinner: bool(tried.append(thinner)) or True, most=5)
    assert len(tried) == 5
