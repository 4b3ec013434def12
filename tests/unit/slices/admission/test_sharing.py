"""Fair sharing: the share of a queue, the order by share, and the victims of a larger share."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Decision, Wait, cycle
from slicebus.slices.admission.sharing import LARGEST_SHARE, FairSharing, share
from slicebus.slices.api.kueue import PreemptionReason
from slicebus.slices.quota.cohorts import Forest, grow
from slicebus.slices.quota.quota import ClusterQueue, Cohort
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.admission.test_preemption import (
    OWN,
    RECLAIM,
    admitted_names,
    cohort,
    evicted,
    gone,
    holding,
    name_of,
    queue,
    told,
    waiting,
    world,
)
from unit.slices.builders import a_queue, a_slice, admitted

FAIR = PreemptionReason.IN_COHORT_FAIR_SHARING
RECLAIMED = PreemptionReason.IN_COHORT_RECLAMATION
IN_QUEUE = PreemptionReason.IN_CLUSTER_QUEUE
CPU = FlavorName("default"), "cpu"


def weighing(weight: str, queue: ClusterQueue) -> ClusterQueue:
    return msgspec.structs.replace(queue, weight=float(weight))


def decide(*slices: Slice, fair_sharing: FairSharing = FairSharing.BOTH, **more: Any) -> list[Decision]:
    return cycle(msgspec.structs.replace(world(*slices, **more), fair_sharing=fair_sharing))


class TestShare:
    def forest(self, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort] = (), **used: int) -> Forest:
        forest = grow(queues, cohorts)
        for name, cores in used.items():
            forest.queues[name].use(CPU, cores * 1000)
        return forest

    def test_nothing_within_the_own_quota(self) -> None:
        forest = self.forest([queue("a", "5", cohort="org"), queue("b", "5", cohort="org")], a=5)
        assert share(forest.queues["a"]).rounded == 0

    def test_what_is_borrowed_of_what_all_have(self) -> None:
        forest = self.forest([queue("a", "2", cohort="org"), queue("b", "6", cohort="org")], a=5)
        assert share(forest.queues["a"]).rounded == 375

    def test_rounded_up(self) -> None:
        forest = self.forest([queue("a", "2", cohort="org"), queue("b", "1", cohort="org")], a=3)
        assert share(forest.queues["a"]).rounded == 334

    @pytest.mark.parametrize(
        ("weight", "rounded"), [("1", 500), ("2", 250), ("0.5", 1000), ("0", LARGEST_SHARE)], ids=str
    )
    def test_divided_by_the_weight(self, weight: str, rounded: int) -> None:
        queues = [weighing(weight, queue("a", "0", cohort="org")), queue("b", "10", cohort="org")]
        forest = self.forest(queues, a=5)
        assert share(forest.queues["a"]).rounded == rounded

    def test_without_a_weight_and_without_borrowing_the_share_is_zero(self) -> None:
        queues = [weighing("0", queue("a", "5", cohort="org")), queue("b", "5", cohort="org")]
        assert share(self.forest(queues, a=5).queues["a"]).rounded == 0

    def test_the_resource_that_counts_most(self) -> None:
        quotas = [{"default": {"cpu": "0", "memory": "0"}}, {"default": {"cpu": "10", "memory": "10"}}]
        forest = grow([a_queue(n, q, cohortName="org") for n, q in zip("ab", quotas, strict=True)], [])
        forest.queues["a"].use_all({CPU: 2000, (FlavorName("default"), "memory"): 5})
        assert share(forest.queues["a"]).rounded == 500

    def test_all_flavors_of_a_resource_together(self) -> None:
        quotas = [{"x": {"cpu": "0"}, "y": {"cpu": "0"}}, {"x": {"cpu": "2"}, "y": {"cpu": "8"}}]
        forest = grow([a_queue(n, q, cohortName="org") for n, q in zip("ab", quotas, strict=True)], [])
        forest.queues["a"].use_all({(FlavorName("x"), "cpu"): 1000, (FlavorName("y"), "cpu"): 1000})
        assert share(forest.queues["a"]).rounded == 200

    def test_of_a_cohort(self) -> None:
        queues = [queue("a", "0", cohort="t"), queue("b", "10", cohort="org")]
        forest = self.forest(queues, [cohort("t", "org", 2), cohort("org")], a=8)
        assert share(forest.cohorts["t"]).rounded == 500
        assert share(forest.cohorts["org"]).rounded == 0


class TestTurns:
    """Ten cores that nobody owns, and three queues that share them."""

    queues = (*(queue(name, "0", cohort="org") for name in "abc"), queue("spare", "10", cohort="org"))

    def order(self, *slices: Slice, queues: Iterable[ClusterQueue] = queues, **more: Any) -> list[str]:
        return [name_of(d.key) for d in decide(*slices, queues=queues, **more) if name_of(d.key) in admitted_names([d])]

    def test_the_smallest_share_is_first(self) -> None:
        slices = [waiting(f"{name}{i}", 2, 9 if name == "a" else 0, queue=name) for name in "ab" for i in range(5)]
        assert set(self.order(*slices)) >= {"a0", "a1", "b0", "b1"}
        assert abs(sum(name[0] == "a" for name in self.order(*slices)) * 2 - 5) == 1

    def test_by_weight(self) -> None:
        queues = [weighing("4", self.queues[0]), *self.queues[1:]]
        slices = [waiting(f"{name}{i}", 1, queue=name) for name in "ab" for i in range(10)]
        assert sum(name[0] == "a" for name in self.order(*slices, queues=queues)) == 8

    def test_a_queue_that_does_not_borrow_is_first(self) -> None:
        queues = [queue("owner", "1", cohort="org"), *self.queues]
        slices = [waiting("b0", 10, 9, queue="b"), waiting("o0", 1, queue="owner")]
        assert self.order(*slices, queues=queues)[0] == "o0"

    def test_priority_then_age_among_equals(self) -> None:
        slices = [waiting("a0", 6, queue="a"), waiting("b0", 6, 1, queue="b")]
        assert self.order(*slices) == ["b0"]

    def test_a_cohort_by_the_share_of_all_its_queues(self) -> None:
        queues = [queue("a", "0", cohort="t"), queue("b", "0", cohort="t"), queue("c", "0", cohort="org")]
        queues.append(queue("spare", "10", cohort="org"))
        running = holding("a0", 4, queue="a")
        slices = [waiting("b0", 3, 9, queue="b"), waiting("c0", 6, 0, queue="c")]
        assert self.order(running, *slices, queues=queues, cohorts=[cohort("t", "org"), cohort("org")]) == ["c0"]

    def test_alone(self) -> None:
        assert self.order(waiting("w", 1), queues=[queue()]) == ["w"]


class TestPreemption:
    """Nine cores in three queues of three; `b` uses more than it has."""

    def queues(self, **preemption: Any) -> list[ClusterQueue]:
        return [queue(name, "3", cohort="org", **(preemption if name == "a" else {})) for name in "abc"]

    def lent(self, *sizes: int, queue: str = "b", priority: int = 0) -> list[Slice]:
        return [holding(f"{queue}{i}", size, priority, queue=queue, since=i) for i, size in enumerate(sizes)]

    def test_the_own_quota_comes_back_whatever_the_shares(self) -> None:
        decided = decide(*self.lent(3, 3, 3, priority=9), waiting("w", 3, queue="a"), queues=self.queues(**RECLAIM))
        assert evicted(decided) == {"b2": RECLAIMED}

    def test_the_larger_share_loses_until_both_are_even(self) -> None:
        used = [*self.lent(1, 1, 1, 1, 1, 1), holding("a1", 3, queue="a")]
        decided = decide(*used, waiting("w", 1, queue="a"), queues=self.queues(**RECLAIM))
        assert evicted(decided) == {"b5": FAIR}
        used = [*self.lent(1, 1, 1, 1, 1), holding("a1", 4, queue="a")]
        assert not evicted(decide(*used, waiting("w", 1, queue="a"), queues=self.queues(**RECLAIM)))

    @pytest.mark.parametrize(
        ("fair_sharing", "is_victim"),
        [(FairSharing.FINAL_SHARE, False), (FairSharing.INITIAL_SHARE, True), (FairSharing.BOTH, True)],
        ids=["final", "initial", "both"],
    )
    def test_the_strategies_differ_where_the_victim_is_large(self, fair_sharing: FairSharing, is_victim: bool) -> None:
        # `b` would have nothing left; with the preemptor `a` has a smaller share than `b` has now.
        used = [holding("b1", 6, queue="b"), holding("a1", 3, queue="a")]
        decided = decide(*used, waiting("w", 2, queue="a"), queues=self.queues(**RECLAIM), fair_sharing=fair_sharing)
        assert evicted(decided) == ({"b1": FAIR} if is_victim else {})

    def test_the_largest_share_first(self) -> None:
        used = [*self.lent(2, 2), *self.lent(5, queue="c")]
        decided = decide(*used, waiting("w", 1, queue="a"), queues=self.queues(**RECLAIM))
        assert set(evicted(decided)) == {"c0"}

    def test_a_weight_makes_a_share_smaller(self) -> None:
        queues = self.queues(**RECLAIM)
        queues[2] = weighing("10", queues[2])
        used = [*self.lent(2, 2), *self.lent(5, queue="c")]
        assert set(evicted(decide(*used, waiting("w", 1, queue="a"), queues=queues))) == {"b1"}

    def test_only_from_lower_priority(self) -> None:
        used = [*self.lent(1, 1, 1, 1, 1, 1, priority=5), holding("a1", 3, queue="a")]
        queues = self.queues(reclaimWithinCohort="LowerPriority")
        assert not evicted(decide(*used, waiting("w", 1, 5, queue="a"), queues=queues))
        assert set(evicted(decide(*used, waiting("w", 1, 6, queue="a"), queues=queues))) == {"b5"}

    def test_the_own_queue_by_priority(self) -> None:
        used = [holding("a1", 3, -1, queue="a"), *self.lent(3), *self.lent(3, queue="c")]
        assert evicted(decide(*used, waiting("w", 2, queue="a"), queues=self.queues(**OWN))) == {"a1": IN_QUEUE}

    def test_without_a_cohort(self) -> None:
        used = [holding("low", 6, -1), holding("high", 4, 9)]
        assert evicted(decide(*used, waiting("w", 2), queues=[queue(**OWN)])) == {"low": IN_QUEUE}

    def test_no_victim_that_turns_out_not_to_be_needed(self) -> None:
        used = [*self.lent(4, 1), *self.lent(4, queue="c")]
        decided = decide(*used, waiting("w", 3, queue="a"), queues=self.queues(**RECLAIM))
        assert len(evicted(decided)) == 1

    def test_a_part_of_the_tree_is_compared_as_a_whole(self) -> None:
        queues = [queue("a", "0", cohort="t", **RECLAIM), queue("a2", "0", cohort="t"), queue("b", "0", cohort="org")]
        queues.append(queue("spare", "9", cohort="org"))
        used = [holding("a20", 5, queue="a2"), *self.lent(1, 1, 1, 1)]
        cohorts = [cohort("t", "org"), cohort("org")]
        # The team has more than `b`: only within the team somebody gives way.
        assert set(evicted(decide(*used, waiting("w", 1, queue="a"), queues=queues, cohorts=cohorts))) == {"a20"}

    def test_the_victim_does_not_take_it_back(self) -> None:
        used = [*self.lent(2, 2, 2), holding("a1", 3, queue="a")]
        w = waiting("w", 1, queue="a")
        queues = [queue(name, "3", cohort="org", **RECLAIM) for name in "abc"]
        decided = decide(*used, w, queues=queues)
        [name] = evicted(decided)
        used, w = [told(slice, decided) for slice in used], told(w, decided)
        back = deque(gone(slice) if slice.name == name else slice for slice in used)
        decided = decide(*back, w, queues=queues)
        assert admitted_names(decided) == {"w"}
        after = [told(slice, decided) for slice in (*back, w)]
        decided = decide(*after, queues=queues)
        assert not evicted(decided)
        assert all(isinstance(each, Wait) for each in decided)

    @pytest.mark.parametrize("fair_sharing", [FairSharing.INITIAL_SHARE, FairSharing.BOTH], ids=["initial", "both"])
    def test_nobody_of_the_own_queue_is_spared_by_whom_a_share_was_smaller(self, fair_sharing: FairSharing) -> None:
        # With both of its jobs `a` would have a larger share than `b`, which would take its quota back.
        own = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
        queues = [queue("a", "3", cohort="org", **RECLAIM, **own), queue("b", "0", cohort="org", **RECLAIM)]
        used = [holding("low", 2, -1, queue="a"), holding("lent", 4, queue="b")]
        more: dict[str, Any] = {"queues": [*queues, queue("spare", "6", cohort="org")], "fair_sharing": fair_sharing}
        decided = decide(*used, waiting("w", 6, queue="a"), **more)
        assert evicted(decided) == {"low": IN_QUEUE, "lent": FAIR}
        back = [gone(told(slice, decided)) for slice in used]
        w = told(waiting("w", 6, queue="a"), decided)
        decided = decide(*back, w, **more)
        assert admitted_names(decided) == {"w", "low"}
        assert not evicted(decide(*(told(slice, decided) for slice in (*back, w)), **more))


@pytest.mark.parametrize(("cores", "victims"), [(2, {"a1": FAIR}), (3, {})], ids=["more than its own", "its own"])
def test_what_a_queue_has_within_its_quota_of_a_flavor_is_not_taken_for_what_it_borrows_of_another(
    cores: int, victims: dict[str, str]
) -> None:
    queues = [
        a_queue("a", {"x": {"cpu": "1"}, "y": {"cpu": "4"}}, cohortName="org"),
        a_queue("b", {"y": {"cpu": "1"}}, cohortName="org", preemption=RECLAIM),
        a_queue("c", {"x": {"cpu": "9"}}, cohortName="org"),
    ]
    held = [
        admitted(a_slice(name, size, job_uid=f"job-{name}"), queue="a", flavor=flavor)
        for name, size, flavor in (("borrowed", 6, "x"), ("a1", 2, "y"), ("a2", 3, "y"))
    ]
    assert evicted(decide(*held, waiting("w", cores, queue="b"), queues=queues)) == victims
