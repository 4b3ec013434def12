"""A slice whose admission could not be written comes after all others, and takes nothing from anybody."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Wait, cycle
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.workload.workload import Slice, SliceKey
from support.lines import compared, in_lines
from unit.slices.admission.test_preemption import OWN, admitted_names, evicted, holding, queue, waiting, world


def refused(*slices: Slice) -> Snapshot:
    return msgspec.structs.replace(world(*slices), refused=frozenset({SliceKey("team/high")}))


CASES = {
    "there is room for both": ([waiting("low", 2)], ["high", "low"]),
    "there is room for one of them": ([waiting("low", 8)], ["low"]),
    "nobody else waits": ([], ["high"]),
    "others have the quota": ([holding("low", 8)], []),
    "others have some of the quota": ([holding("low", 2)], ["high"]),
}


@pytest.mark.parametrize(("others", "admitted"), CASES.values(), ids=CASES.keys())
def test_it_gets_what_others_leave(others: list[Slice], admitted: list[str]) -> None:
    decided = cycle(refused(waiting("high", 8, 10), *others))
    assert sorted(admitted_names(decided)) == admitted
    assert not evicted(decided)
    assert [each.key for each in decided if isinstance(each, Wait)] == (
        [] if "high" in admitted else [SliceKey("team/high")]
    )


def test_it_preempts_in_its_turn() -> None:
    assert set(evicted(cycle(world(waiting("high", 8, 10), holding("low", 8))))) == {"low"}


def test_nobody_waits_behind_it_in_a_strict_queue() -> None:
    strict = queue(**OWN)
    strict = msgspec.structs.replace(strict, strict_fifo=True)
    slices = waiting("high", 20, 10), waiting("low", 2)
    assert admitted_names(cycle(world(*slices, queues=[strict]))) == set()
    given = msgspec.structs.replace(world(*slices, queues=[strict]), refused=frozenset({SliceKey("team/high")}))
    assert admitted_names(cycle(given)) == {"low"}


@pytest.mark.parametrize("name", ["w0", "w1", "w3", "w5"])
@pytest.mark.parametrize("cores", [4, 12, 20])
def test_one_of_a_line_is_decided_as_by_itself(name: str, cores: int) -> None:
    given = world(*(waiting(f"w{number}", 4, uid=str(number)) for number in range(6)), queues=[queue(quota=str(cores))])
    given = msgspec.structs.replace(given, refused=frozenset({SliceKey(f"team/{name}")}))
    assert compared(given, front=1) == ""
    assert name not in admitted_names(cycle(in_lines(given, front=1)))


def unevictable(*slices: Slice, names: tuple[str, ...], **of_world: Any) -> Snapshot:
    """These holders cannot be evicted."""
    keys = frozenset(SliceKey(f"team/{name}") for name in names)
    return msgspec.structs.replace(world(*slices, **of_world), unevictable=keys)


def test_another_one_is_evicted_in_place_of_one_that_cannot_be() -> None:
    slices = waiting("high", 4, 10), holding("first", 4), holding("second", 4)
    (usual,) = evicted(cycle(world(*slices)))
    (other,) = evicted(cycle(unevictable(*slices, names=(usual,))))
    assert {usual, other} == {"first", "second"}


def test_one_whose_victim_cannot_be_evicted_keeps_no_quota_from_others() -> None:
    slices = waiting("high", 8, 10), holding("low", 4), waiting("small", 3)
    assert admitted_names(cycle(world(*slices))) == set(), "what is free is kept for who preempts"
    decided = cycle(unevictable(*slices, names=("low",)))
    assert admitted_names(decided) == {"small"}
    assert not evicted(decided)


def test_nobody_waits_for_one_of_a_stopped_queue_that_cannot_be_evicted() -> None:
    stopped = msgspec.structs.replace(holding("low", 8), active=False)
    slices = waiting("high", 8, 10), stopped
    decided = cycle(unevictable(*slices, names=("low",)))
    assert set(evicted(decided)) == {"low"}, "it is tried again"
    (wait,) = [each for each in decided if isinstance(each, Wait)]
    assert "evicted already" not in wait.message
