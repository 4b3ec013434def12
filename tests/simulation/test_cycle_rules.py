"""A cycle that takes a pod too many is noticed, and one in which a newer job gets what another one has lost."""

from typing import Any

import msgspec
import pytest

from simulation import cycle_rules
from simulation.cycle_rules import watching
from simulation.elastic import check_ring
from simulation.mutations import mutated
from simulation.violations import Violation
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.cycle import Admit, Decision, Shrink, Wait
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed, take_back, withdraw
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import holding, waiting, world
from unit.slices.admission.test_shrinks import elastic
from unit.slices.admission.test_while_pods_go import former_size, gone, written

CROWDED = world(elastic("a", 5, 2, since=2), elastic("b", 5, 2, since=1), waiting("w", 3, 5))


def watched(snapshot: Snapshot) -> list[Decision]:
    """What a cycle decides, whose check hears the same."""
    heard: list[Any] = []
    with watching(lambda *told: heard.append(told)):
        decided = admission.cycle(snapshot)
    assert heard == [(snapshot, decided)]
    return decided


def taking(decided: list[Decision], **left: int) -> list[Decision]:
    """The same decisions, and these jobs lose other pods."""
    shrink = next(each for each in decided if isinstance(each, Shrink))
    others = [each for each in decided if not isinstance(each, Shrink)]
    taken = [msgspec.structs.replace(shrink, key=f"team/{name}", to={"main": to}) for name, to in left.items()]
    return [*taken, *others]


def test_what_a_cycle_decides_breaks_no_rule() -> None:
    decided = watched(CROWDED)
    cycle_rules.check(CROWDED, decided)


@pytest.mark.parametrize("left", [{"a": 2, "b": 4}, {"b": 2, "a": 3}], ids=str)
def test_a_pod_too_many_is_noticed(left: dict[str, int]) -> None:
    decided = watched(CROWDED)
    with pytest.raises(Violation, match="spared: w takes"):
        cycle_rules.check(CROWDED, taking(decided, **left))


def test_another_order_is_not() -> None:
    """That is held by tests of the search: this rule knows no order."""
    decided = watched(CROWDED)
    cycle_rules.check(CROWDED, taking(decided, b=2))


def restoring() -> tuple[Slice, Slice, Slice]:
    """A job that has lost two pods, the slice that waits for them, and a newer job that wants as many."""
    low, high = elastic("low", 10, 2, 0), waiting("high", 2, 5)
    low = gone(written(low, admission.cycle(world(low, high))))
    return low, former_size(low, priority=0), waiting("newer", 2, 0, created="2026-01-01T11:00:00Z")


def test_what_was_lost_comes_back_before_newer_claims() -> None:
    low, former, newer = restoring()
    snapshot = world(low, former, newer)
    decided = watched(snapshot)
    cycle_rules.check(snapshot, decided)
    [admit] = [each for each in decided if isinstance(each, Admit)]
    assert admit.key == former.key
    [other] = [each for each in admission.cycle(world(low, newer)) if isinstance(each, Admit)]
    reverse: list[Decision] = [other, Wait(key=former.key, reason="Pending", message="waits")]
    with pytest.raises(Violation, match="comes back: newer gets what again has lost"):
        cycle_rules.check(snapshot, reverse)


def test_a_rank_that_is_lacking_is_noticed_without_newer_claims() -> None:
    low, former, _ = restoring()
    snapshot = world(low, former)
    decided = watched(snapshot)
    assert any(isinstance(each, Admit) for each in decided)
    cycle_rules.check(snapshot, decided)
    with mutated("rank"), pytest.raises(Violation, match=r"comes back: newer claims for \{'main': 2\} would get"):
        cycle_rules.check(snapshot, decided)


def test_a_ring_of_shrinks_that_is_not_looked_for_is_noticed_without_one() -> None:
    snapshot = msgspec.structs.replace(CROWDED, preemption_cycles_since="2026-01-01T00:00:00Z")
    decided = watched(snapshot)
    cycle_rules.check(snapshot, decided)
    with mutated("rings"), pytest.raises(Violation, match="forth and back: w would take pods of "):
        cycle_rules.check(snapshot, decided)


def test_a_newer_claim_may_take_what_is_of_no_use_to_the_other() -> None:
    """The worker's other pods take the rest: nothing comes back."""
    low, former, newer = restoring()
    former = msgspec.structs.replace(former, replica_sizes={"main": 4})
    snapshot = world(low, former, newer)
    cycle_rules.check(snapshot, watched(snapshot))


def lost_to(job: str, at: str, *, note: Reclaimed | None = None) -> Reclaimed:
    beneficiary = Beneficiary(workload=f"team/{job}", uid=f"uid-{job}", job_uid=f"job-{job}")
    return take_back(
        note, {"main": 5}, {"main": 4}, beneficiary=beneficiary, at=f"2026-01-01T{at}Z", reason="", message=at
    )


def test_a_word_that_is_withdrawn_takes_nothing() -> None:
    """For whom it was to take them has taken none either."""
    held = {"main": 5}
    beneficiary = Beneficiary(workload="team/b", uid="uid-b", job_uid="job-b")
    at = "2026-01-01T12:00:00Z"
    note = take_back(
        None, held, {"main": 4}, held=held, beneficiary=beneficiary, at=at, reason="", message="", is_alone=True
    )
    old = msgspec.structs.replace(holding("a", 5), reclaimed=note)
    new = msgspec.structs.replace(old, reclaimed=withdraw(note, held))
    check_ring(new, old, [new])


@pytest.mark.parametrize(
    ("first", "between", "breaks"),
    [("12:00:00", "12:01:00", True), ("11:40:00", "12:01:00", False), ("12:00:00", "", False)],
    ids=["soon", "long ago", "not back"],
)
def test_pods_that_go_forth_and_back_are_noticed(first: str, between: str, breaks: bool) -> None:
    old = msgspec.structs.replace(holding("a", 5), reclaimed=lost_to("b", first))
    new = msgspec.structs.replace(old, reclaimed=lost_to("b", "12:02:00", note=old.reclaimed))
    other = msgspec.structs.replace(holding("b", 5), reclaimed=lost_to("a", between) if between else None)
    if not breaks:
        check_ring(new, old, [new, other])
        return
    with pytest.raises(Violation, match="forth and back: a loses pods to team/b"):
        check_ring(new, old, [new, other])
