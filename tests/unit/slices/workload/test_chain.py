"""The chain's rules, one row each, and the properties that hold for every chain."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.api.kueue import FinishedReason
from slicebus.slices.workload.chain import (
    ChainCommand,
    CreateSlice,
    FinishSlice,
    Reclaim,
    RefuseScaling,
    Scaling,
    SetCounts,
    given_back,
    plan,
    scaling,
)
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Admission, PodSetAssignment, Slice, SliceKey


def a_slice(name: str, counts: dict[str, int], **changes: Any) -> Slice:
    """A pending slice of job `j`, created in the second that its name ends with."""
    return msgspec.structs.replace(
        Slice(
            namespace="team",
            name=name,
            uid=f"uid-{name}",
            created=f"2026-01-01T00:00:0{name[-1]}Z",
            job_uid="j",
            queue="q",
            priority=0,
            active=True,
            pod_sets=tuple(PodSet(name=n, count=c, requests={"cpu": 1000}, template={}) for n, c in counts.items()),
            replaces=None,
            chain="s1",
            admission=None,
            admitted=False,
            evicted=False,
            finished=False,
            deleting=False,
            cluster=None,
            conditions={},
        ),
        **changes,
    )


def admitted(name: str, counts: dict[str, int], **changes: Any) -> Slice:
    given = Admission(
        cluster_queue="cq",
        pod_sets=tuple(PodSetAssignment(name=n, flavors={}, usage={}, count=c) for n, c in counts.items()),
    )
    return a_slice(name, counts, **({"admitted": True, "admission": given} | changes))


def granted_part(name: str, counts: dict[str, int], given: dict[str, int]) -> Slice:
    """A slice that asks for `counts` and was admitted with `given`."""
    return msgspec.structs.replace(a_slice(name, counts), admitted=True, admission=admitted(name, given).admission)


def replacing(old: str) -> dict[str, Any]:
    return {"replaces": SliceKey(f"team/{old}")}


S1, S2, S3 = "s1", "s2", "s3"


def short(command: ChainCommand) -> tuple[Any, ...]:
    match command:
        case CreateSlice(counts=counts, replaces=replaces, chain=chain):
            return "create", counts, replaces, chain
        case SetCounts(slice=slice, counts=counts):
            return "set", slice.name, counts
        case Reclaim(slice=slice, counts=counts):
            return "reclaim", slice.name, counts
        case FinishSlice(slice=slice, reason=reason):
            return "finish", slice.name, reason
        case RefuseScaling(slice=slice):
            return "refuse", slice.name


REPLACED, OUT_OF_SYNC = FinishedReason.SLICE_REPLACED, FinishedReason.OUT_OF_SYNC

CASES: dict[str, tuple[list[Slice], dict[str, int], list[tuple[Any, ...]]]] = {
    "the first": ([], {"main": 1}, [("create", {"main": 1}, None, None)]),
    "a finished one is no slice": (
        [admitted(S1, {"main": 1}, finished=True, admitted=False)],
        {"main": 1},
        [("create", {"main": 1}, None, None)],
    ),
    "at rest": ([admitted(S1, {"main": 1})], {"main": 1}, []),
    "scale-up of an admitted one": (
        [admitted(S1, {"main": 1})],
        {"main": 5},
        [("create", {"main": 5}, "team/s1", "s1")],
    ),
    "scale-down in place": ([admitted(S1, {"main": 5})], {"main": 3}, [("set", "s1", {"main": 3})]),
    "a pending first one changes in place": ([a_slice(S1, {"main": 1})], {"main": 5}, [("set", "s1", {"main": 5})]),
    "up and down at once is a scale-up": (
        [admitted(S1, {"a": 3, "b": 3})],
        {"a": 1, "b": 4},
        [("create", {"a": 1, "b": 4}, "team/s1", "s1")],
    ),
    "other pod sets": ([admitted(S1, {"a": 1})], {"a": 1, "b": 1}, [("refuse", "s1")]),
    "granted in part, the rest is still wanted": (
        [granted_part(S1, {"main": 8}, {"main": 5})],
        {"main": 8},
        [("create", {"main": 8}, "team/s1", "s1")],
    ),
    "granted in part, while the rest waits": (
        [granted_part(S1, {"main": 8}, {"main": 5}), a_slice(S2, {"main": 8}, **replacing(S1))],
        {"main": 8},
        [],
    ),
    "granted in part, and no more than that is wanted": (
        [granted_part(S1, {"main": 8}, {"main": 5}), a_slice(S2, {"main": 8}, **replacing(S1))],
        {"main": 5},
        [("finish", "s2", OUT_OF_SYNC), ("set", "s1", {"main": 5})],
    ),
    "granted in part, and less than that is wanted": (
        [granted_part(S1, {"main": 8}, {"main": 5})],
        {"main": 2},
        [("set", "s1", {"main": 2})],
    ),
    "granted in part, and less than asked but more than granted is wanted": (
        [granted_part(S1, {"main": 8}, {"main": 5})],
        {"main": 6},
        [("create", {"main": 6}, "team/s1", "s1")],
    ),
    "while the replacement waits": (
        [admitted(S1, {"main": 1}), a_slice(S2, {"main": 5}, **replacing(S1))],
        {"main": 5},
        [],
    ),
    "a second scale-up changes the pending one": (
        [admitted(S1, {"main": 1}), a_slice(S2, {"main": 5}, **replacing(S1))],
        {"main": 8},
        [("set", "s2", {"main": 8})],
    ),
    "the wish is withdrawn": (
        [admitted(S1, {"main": 1}), a_slice(S2, {"main": 5}, **replacing(S1))],
        {"main": 1},
        [("finish", "s2", OUT_OF_SYNC)],
    ),
    "the wish turns into a scale-down": (
        [admitted(S1, {"main": 4}), a_slice(S2, {"main": 5}, **replacing(S1))],
        {"main": 2},
        [("finish", "s2", OUT_OF_SYNC), ("set", "s1", {"main": 2})],
    ),
    "the replacement is admitted": (
        [admitted(S1, {"main": 1}), admitted(S2, {"main": 5}, **replacing(S1))],
        {"main": 5},
        [("finish", "s1", REPLACED)],
    ),
    "the replacement is admitted and the wish has moved on": (
        [admitted(S1, {"main": 1}), admitted(S2, {"main": 5}, **replacing(S1))],
        {"main": 7},
        [("finish", "s1", REPLACED), ("create", {"main": 7}, "team/s2", "s1")],
    ),
    "two replacements after a crash": (
        [
            admitted(S1, {"main": 1}),
            a_slice(S2, {"main": 5}, **replacing(S1)),
            a_slice(S3, {"main": 6}, **replacing(S1)),
        ],
        {"main": 6},
        [("finish", "s2", OUT_OF_SYNC)],
    ),
    "a pending one that replaces nothing of the chain": (
        [admitted(S1, {"main": 1}), a_slice(S2, {"main": 5})],
        {"main": 5},
        [("finish", "s2", OUT_OF_SYNC), ("create", {"main": 5}, "team/s1", "s1")],
    ),
    "made within one second, whatever their UIDs": (
        [
            admitted(S1, {"main": 1}, created="2026-01-01T00:00:00Z", uid="z"),
            admitted(S2, {"main": 5}, created="2026-01-01T00:00:00Z", uid="a", **replacing(S1)),
        ],
        {"main": 5},
        [("finish", "s1", REPLACED)],
    ),
    "two pending, none admitted": (
        [a_slice(S1, {"main": 1}), a_slice(S2, {"main": 5}, **replacing(S1))],
        {"main": 5},
        [("finish", "s2", OUT_OF_SYNC), ("set", "s1", {"main": 5})],
    ),
}


@pytest.mark.parametrize(("slices", "wanted", "expected"), CASES.values(), ids=CASES.keys())
def test_plan(slices: list[Slice], wanted: dict[str, int], expected: list[tuple[Any, ...]]) -> None:
    assert [short(command) for command in plan(list(reversed(slices)), wanted)] == expected


HELD = admitted(S1, {"main": 5})
RECLAIMED = admitted(S1, {"main": 5}, reclaimable={"main": 3})


@pytest.mark.parametrize(
    ("held", "wanted", "finished", "expected"),
    [
        (HELD, 2, 3, [("reclaim", "s1", {"main": 3})]),
        (RECLAIMED, 2, 3, []),
        (RECLAIMED, 1, 4, [("reclaim", "s1", {"main": 4})]),
        (RECLAIMED, 1, 0, [("set", "s1", {"main": 4})]),
        (HELD, 1, 3, [("reclaim", "s1", {"main": 3})]),
        (RECLAIMED, 4, 0, [("create", {"main": 4}, "team/s1", "s1")]),
        (HELD, 2, 9, [("reclaim", "s1", {"main": 3})]),
        (granted_part(S1, {"main": 5}, {"main": 3}), 2, 1, [("reclaim", "s1", {"main": 1})]),
        (a_slice(S1, {"main": 5}), 2, 3, [("set", "s1", {"main": 2})]),
    ],
    ids=[
        "ended",
        "known",
        "more ended",
        "and a scale-down",
        "a scale-down beside it",
        "grows again",
        "no more than was given up",
        "granted in part",
        "not admitted",
    ],
)
def test_what_has_ended_for_good_is_reclaimable(
    held: Slice, wanted: int, finished: int, expected: list[tuple[Any, ...]]
) -> None:
    assert [short(command) for command in plan([held], {"main": wanted}, finished={"main": finished})] == expected


def test_what_is_reclaimable_is_not_given_back_twice() -> None:
    held = admitted(S1, {"a": 5, "b": 1}, reclaimable={"a": 3})
    [command] = given_back(held, {"a": 1, "b": 2})
    assert short(command) == ("set", "s1", {"a": 4, "b": 1})


@pytest.mark.parametrize(
    ("held", "wanted", "expected"),
    [
        (admitted(S1, {"a": 3, "b": 3}), {"a": 1, "b": 4}, [("set", "s1", {"a": 1, "b": 3})]),
        (admitted(S1, {"a": 3, "b": 3}), {"a": 3, "b": 4}, []),
        (admitted(S1, {"a": 3, "b": 3}), {"a": 1, "b": 3}, []),
        (admitted(S1, {"a": 3}), {"a": 1, "b": 3}, []),
        (
            granted_part(S1, {"a": 8, "b": 3}, {"a": 5, "b": 3}),
            {"a": 8, "b": 1},
            [("set", "s1", {"a": 5, "b": 1})],
        ),
        (admitted(S1, {"a": 3, "b": 3}, evicted=True, admitted=False), {"a": 1, "b": 4}, []),
    ],
    ids=["up and down", "up", "down is for the plan", "other pod sets", "granted in part", "evicted"],
)
def test_what_a_resize_gives_up_is_free_while_the_rest_of_it_waits(
    held: Slice, wanted: dict[str, int], expected: list[tuple[Any, ...]]
) -> None:
    found = given_back(held, wanted)
    assert [short(command) for command in found] == expected
    left = [msgspec.structs.replace(p, count=found[0].counts[p.name]) for p in held.pod_sets] if found else []
    assert not left or given_back(msgspec.structs.replace(held, pod_sets=tuple(left)), wanted) == []


def test_the_old_slice_names_its_replacement() -> None:
    chain = [admitted(S1, {"main": 1}), admitted(S2, {"main": 5}, **replacing(S1))]
    [finish] = plan(chain, {"main": 5})
    assert isinstance(finish, FinishSlice)
    assert finish.message == (
        "Replaced to accommodate a workload (UID: uid-s2, JobUID: j) due to workload slice aggregation"
    )


def test_a_structural_change_is_named() -> None:
    [refusal] = plan([admitted(S1, {"a": 1, "b": 1})], {"a": 1, "c": 1})
    assert isinstance(refusal, RefuseScaling)
    assert refusal.message.endswith("it adds c and removes b")


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        ({"a": 1}, {"a": 1}, Scaling.NONE),
        ({"a": 2, "b": 2}, {"a": 1, "b": 2}, Scaling.DOWN),
        ({"a": 2, "b": 2}, {"a": 1, "b": 3}, Scaling.UP),
        ({"a": 2}, {"b": 2}, Scaling.STRUCTURAL),
    ],
    ids=["none", "down", "mixed is up", "structural"],
)
def test_scaling(current: dict[str, int], wanted: dict[str, int], expected: Scaling) -> None:
    assert scaling(current, wanted) is expected


class World:
    """Carries out commands on slices in memory, as the manager does on the API server."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self.made = 0

    def settle(self, wanted: dict[str, int], finished: dict[str, int]) -> None:
        for _ in range(5):
            commands = plan(self.slices, wanted, finished=finished)
            if not commands:
                return
            for command in commands:
                self.carry_out(command)
        assert not plan(self.slices, wanted, finished=finished), "the chain does not settle"

    def carry_out(self, command: ChainCommand) -> None:
        match command:
            case CreateSlice(counts=counts, replaces=replaces):
                self.made += 1
                self.slices.append(a_slice(f"s{self.made % 10}", counts, created=f"{self.made:05}", replaces=replaces))
            case SetCounts(slice=slice, counts=counts):
                pod_sets = tuple(msgspec.structs.replace(p, count=counts[p.name]) for p in slice.pod_sets)
                self.replace(slice, pod_sets=pod_sets)
            case Reclaim(slice=slice, counts=counts):
                assert all(count >= slice.reclaimable.get(name, 0) for name, count in counts.items())
                self.replace(slice, reclaimable=counts)
            case FinishSlice(slice=slice):
                self.replace(slice, finished=True, admitted=False)

    def replace(self, slice: Slice, **changes: Any) -> None:
        self.slices = [msgspec.structs.replace(s, **changes) if s is slice else s for s in self.slices]

    def admit_one(self) -> None:
        for slice in self.slices:
            if not slice.admitted and not slice.finished:
                self.replace(slice, admitted=True, admission=admitted("x1", slice.counts).admission)
                return


STEPS = st.one_of(st.just("admit"), st.tuples(st.integers(0, 4), st.integers(0, 3)))


@given(steps=st.lists(STEPS, max_size=30))
def test_any_scenario_ends_at_the_wanted_size_with_two_unfinished_slices_at_most(
    steps: list[str | tuple[int, int]],
) -> None:
    world, wanted, finished = World(), {"main": 1}, {"main": 0}
    for step in steps:
        if isinstance(step, str):
            world.admit_one()
        else:
            wanted, finished = {"main": step[0]}, {"main": step[1]}
        unfinished_before = [slice for slice in world.slices if slice.admitted and not slice.finished]
        world.settle(wanted, finished)
        unfinished = [slice for slice in world.slices if not slice.finished]
        assert len(unfinished) <= 2
        assert sum(slice.admitted for slice in unfinished) <= 1
        assert unfinished[-1].unfinished_counts == wanted
        assert not unfinished_before or any(slice.admitted for slice in unfinished), "an admitted chain lost its quota"
