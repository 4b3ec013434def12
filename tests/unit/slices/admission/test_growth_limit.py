"""Growth on one worker cluster preempts few workloads in a time, whoever asks for it."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Decision, Wait, cycle
from slicebus.slices.admission.growth_limit import GROWTH_LIMITED, GrowthLimit
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import evicted, holding, told, waiting, world
from unit.slices.builders import WORKER, replacement

SINCE = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T12:00:30Z"
BEFORE = "2026-01-01T11:59:59Z"
LIMIT = GrowthLimit(2, 600.0, SINCE)


def on(cluster: str, slice: Slice) -> Slice:
    return msgspec.structs.replace(slice, cluster=cluster)


def growing(cores: int, *, cluster: str = "worker", name: str = "thief") -> tuple[Slice, Slice]:
    """A job with one core of quota that wants more."""
    first = on(cluster, holding(name, 1, 10))
    return first, replacement(first, f"{name}-2", cores, queue="to-cq", priority=10)


def decide(*slices: Slice, limit: GrowthLimit | None = LIMIT) -> list[Decision]:
    """A cycle with two worker clusters."""
    clusters = [msgspec.structs.replace(WORKER, name=name) for name in ("worker", "west")]
    return cycle(msgspec.structs.replace(world(*slices, clusters=clusters), growth_limit=limit))


def small(count: int) -> list[Slice]:
    return [holding(f"small-{number}", 1, since=number) for number in range(count)]


def preempted(slice: Slice, by: Slice, at: str, *, previously: bool = False) -> Slice:
    message = (
        f"Preempted to accommodate a workload (UID: {by.uid}, JobUID: {by.job_uid}) due to prioritization in the"
        " ClusterQueue; preemptor path: /cq; preemptee path: /cq"
    )
    text = f"Previously: {message}" if previously else message
    condition = {"status": "False" if previously else "True", "lastTransitionTime": at, "message": text}
    return msgspec.structs.replace(slice, conditions=slice.conditions | {"Preempted": condition})


@pytest.mark.parametrize(
    ("limit", "cores", "victims"),
    [(LIMIT, 3, 2), (LIMIT, 4, 0), (None, 4, 3), (GrowthLimit(3, 600.0, SINCE), 4, 3)],
    ids=["few", "many", "without a limit", "as many as the limit"],
)
def test_a_growth(limit: GrowthLimit | None, cores: int, victims: int) -> None:
    first, more = growing(cores)
    decided = decide(first, more, *small(9), limit=limit)
    assert len(evicted(decided)) == victims
    [wait] = [each for each in decided if isinstance(each, Wait)]
    if not victims:
        assert wait.reason == GROWTH_LIMITED
        assert wait.message == (
            "Growth on worker cluster worker may preempt 2 workloads in 600 s: it has preempted 0, and this one would "
            "preempt 3"
        )


def test_a_first_slice_has_no_limit() -> None:
    decided = decide(waiting("new", 4, 10), *small(10))
    assert len(evicted(decided)) == 4


def test_growths_of_one_cluster_share_it_in_one_cycle() -> None:
    slices = [
        *growing(2),
        *growing(2, name="another"),
        *growing(3, name="third"),
        *growing(3, name="far", cluster="west"),
    ]
    decided = decide(*slices, *small(6))
    assert len(evicted(decided)) == 4
    limited = [each.key for each in decided if isinstance(each, Wait) and each.reason == GROWTH_LIMITED]
    assert len(limited) == 1


HISTORIES: dict[str, tuple[Any, int]] = {
    "another growth of the cluster": (lambda slice, by: preempted(slice, by, LATER), 0),
    "of one that has quota again": (lambda slice, by: preempted(slice, by, LATER, previously=True), 0),
    "long ago": (lambda slice, by: preempted(slice, by, BEFORE), 1),
    "nobody was": (lambda slice, by: slice, 1),
}


@pytest.mark.parametrize(("before", "victims"), HISTORIES.values(), ids=HISTORIES.keys())
def test_those_before_count_for_a_time(before: Any, victims: int) -> None:
    first, more = growing(2)
    by = msgspec.structs.replace(first, uid="uid-of-an-earlier-slice")
    others = small(9)
    others = [before(others[0], by), before(others[1], by), *others[2:]]
    assert len(evicted(decide(first, more, *others))) == victims


def test_those_of_the_jobs_start_do_not_count() -> None:
    first, more = growing(2)
    others = small(9)
    others = [preempted(slice, first, LATER) for slice in others[:2]] + others[2:]
    assert len(evicted(decide(first, more, *others))) == 1


def test_those_of_another_cluster_do_not_count() -> None:
    first, more = growing(2)
    elsewhere = on("west", holding("elsewhere", 1, 10))
    by = msgspec.structs.replace(elsewhere, uid="uid-of-an-earlier-slice")
    others = small(8)
    others = [preempted(slice, by, LATER) for slice in others[:2]] + others[2:]
    assert len(evicted(decide(first, more, elsewhere, *others))) == 1


def test_one_that_has_its_victims_is_not_limited_by_them() -> None:
    first, more = growing(3)
    slices = [first, more, *small(9)]
    decided = decide(*slices)
    after = [told(slice, decided) for slice in slices]
    again = decide(*after, limit=msgspec.structs.replace(LIMIT, since="2026-01-01T00:00:00Z"))
    assert evicted(again) == {}
    assert [each.reason for each in again if isinstance(each, Wait)] != [GROWTH_LIMITED]
