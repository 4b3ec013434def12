"""What a preemptor does not need after all stays with its victims."""

from collections.abc import Sequence

import pytest

from slicebus.slices.admission.reductions import Candidate, Victim
from slicebus.slices.admission.spared import enough_of
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.cohorts import Node
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import holding
from unit.slices.admission.test_shrinks import EVICTED, Taken, elastic

NODE = Node("cq", {}, weight=1.0)


def victim(slice: Slice, to: int | None) -> Victim:
    usage = dict(slice.usage)
    candidate = Candidate(slice=slice, node=NODE, usage=usage)
    left = {"main": to} if to is not None else None
    freed = candidate.freed(left) if left is not None else usage
    return Victim(candidate=candidate, reason=PreemptionReason.IN_CLUSTER_QUEUE, freed=freed, to=left)


def cores(victims: Sequence[Victim]) -> int:
    return sum(amount for victim in victims for amount in victim.freed.values()) // 1000


SHRINKS, WHOLE = elastic("a", 10, 2), holding("b", 4)
PAIRS = elastic("a", 10, 2, replica_sizes={"main": 2})
LEFT: dict[str, tuple[list[tuple[Slice, int | None]], int, Taken]] = {
    "all of it": ([(SHRINKS, 4), (WHOLE, None)], 10, {"a": 4, "b": EVICTED}),
    "the last one stays": ([(SHRINKS, 4), (WHOLE, None)], 6, {"a": 4}),
    "and the first keeps what it can": ([(SHRINKS, 4), (WHOLE, None)], 3, {"a": 7}),
    "the first one stays": ([(SHRINKS, 4), (WHOLE, None)], 4, {"a": 6}),
    "one that is needed keeps what it can": ([(WHOLE, None), (SHRINKS, 4)], 7, {"b": EVICTED, "a": 7}),
    "who is evicted shrinks where that will do": ([(WHOLE, None), (SHRINKS, None)], 9, {"b": EVICTED, "a": 5}),
    "and is evicted where it will not": ([(WHOLE, None), (SHRINKS, None)], 13, {"b": EVICTED, "a": EVICTED}),
    "whole replicas": ([(PAIRS, 2)], 3, {"a": 6}),
    "one victim is never left": ([(WHOLE, None)], 0, {"b": EVICTED}),
}


@pytest.mark.parametrize(("taken", "needs", "expected"), LEFT.values(), ids=LEFT.keys())
def test_no_more_is_taken_than_is_needed(taken: list[tuple[Slice, int | None]], needs: int, expected: Taken) -> None:
    kept = enough_of([victim(*each) for each in taken], lambda victims: cores(victims) >= needs)
    assert {each.candidate.slice.name: each.to["main"] if each.to is not None else None for each in kept} == expected
    assert cores(kept) >= needs
