"""Pods that were taken back hold their quota until they are gone. Then it is the beneficiary's, and later the job's."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait, cycle
from slicebus.slices.admission.growth_limit import GROWTH_LIMITED, GrowthLimit
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.reclaimed import take_back
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.admission.test_preemption import (
    OWN,
    RECLAIM,
    admitted_names,
    cohort,
    holding,
    name_of,
    queue,
    told,
    waiting,
    world,
)
from unit.slices.admission.test_shrinks import EVICTED, elastic, giving, pods_first, taken
from unit.slices.builders import a_queue, admitted, replacement, with_counts

NOW = "2026-01-01T12:00:00Z"
SINCE, BEFORE = "2026-01-01T11:55:00Z", "2026-01-01T11:54:59Z"


def written(slice: Slice, decisions: Iterable[Decision], *, at: str = NOW) -> Slice:
    """A slice after its decision was written."""
    own = [each for each in decisions if each.key == slice.key]
    slice = told(slice, [each for each in own if not isinstance(each, Shrink)])
    for each in own:
        if isinstance(each, Shrink):
            note = take_back(
                slice.reclaimed,
                slice.reclaimed.before if slice.reclaimed is not None else slice.held_counts,
                each.to,
                beneficiary=each.beneficiary,
                at=at,
                reason=each.preemption,
                message=each.message,
            )
            slice = msgspec.structs.replace(slice, reclaimed=note)
    return slice


def gone(slice: Slice) -> Slice:
    """A slice whose worker has none of the pods left that were taken back."""
    assert slice.shrinks_to is not None
    assert slice.reclaimed is not None
    less = with_counts(slice, **slice.shrinks_to)
    return msgspec.structs.replace(less, reclaimed=msgspec.structs.replace(slice.reclaimed, done=True))


def former_size(holder: Slice, name: str = "again", **changes: Any) -> Slice:
    """The slice that waits for what was taken back from a job."""
    assert holder.reclaimed is not None
    fields: dict[str, Any] = {
        "queue": f"to-{holder.admission.cluster_queue if holder.admission else 'cq'}",
        "priority": holder.priority,
        "partial": True,
        "created": NOW,
        "queued_since": holder.created,
        "reclaimed": holder.reclaimed,
        "elasticity": holder.elasticity,
    }
    return replacement(holder, name, holder.reclaimed.before["main"], **(fields | changes))


def run(*slices: Slice, at: str = NOW, **more: Any) -> tuple[list[Decision], list[Slice]]:
    decided = cycle(world(*slices, **more))
    return decided, [written(slice, decided, at=at) for slice in slices]


class TestUntilTheyAreGone:
    def test_no_second_victim_and_the_same_words(self) -> None:
        first, slices = run(elastic("a", 5, 1, since=2), elastic("b", 5, 1, since=1), waiting("w", 3, 1))
        assert taken(first) == {"a": 2}
        assert slices[0].shrinks_to == {"main": 2}
        second, after = run(*slices)
        assert second == [each for each in first if isinstance(each, Wait)]
        assert after == slices

    def test_they_hold_their_quota(self) -> None:
        _, (a, w) = run(elastic("a", 10, 1), waiting("w", 3, 1))
        assert not admitted_names(cycle(world(a, w)))
        assert admitted_names(cycle(world(gone(a), w))) == {"w"}

    def test_nobody_else_gets_their_quota(self) -> None:
        _, (a, w) = run(elastic("a", 10, 1), waiting("w", 3, 1))
        older, small = waiting("older", 3, 1, created="2025-01-01T00:00:00Z"), waiting("small", 1, 0)
        for each in (a, gone(a)):
            assert not admitted_names(cycle(world(each, w, older, small))) & {"older", "small"}

    def test_what_the_first_does_not_need_another_gets(self) -> None:
        held = elastic("a", 8, 0, replica_sizes={"main": 4})
        decided, _ = run(held, holding("high", 2, 9), waiting("w", 3, 1), waiting("v", 1, 1, created="2027"))
        assert taken(decided) == {"a": 4}
        assert len([each for each in decided if isinstance(each, Wait)]) == 2

    def test_another_one_takes_more_of_the_same_job(self) -> None:
        _, (a, w) = run(elastic("a", 10, 2), waiting("w", 3, 1))
        decided, (a, w, v) = run(a, w, waiting("v", 2, 1, created="2027"))
        assert taken(decided) == {"a": 5}
        assert a.reclaimed is not None
        assert (a.reclaimed.before, a.reclaimed.to) == ({"main": 10}, {"main": 5})
        assert a.reclaimed.names == ("team/w", "team/v")
        waits, _ = run(a, w, v)
        assert taken(waits) == {}
        assert all("pods of 1 workload(s)" in each.message for each in waits if isinstance(each, Wait))
        assert admitted_names(cycle(world(gone(a), w, v))) == {"w", "v"}

    def test_another_one_evicts_it(self) -> None:
        _, (a, w) = run(elastic("a", 10, 2), waiting("w", 3, 1))
        decided, (a, w, v) = run(a, w, waiting("v", 7, 1, created="2027"))
        assert taken(decided) == {"a": EVICTED}
        assert (a.evicting, a.shrinks_to) == (True, None)
        assert taken(cycle(world(a, w, v))) == {}

    def test_two_in_one_cycle(self) -> None:
        decided, (a, _, _) = run(elastic("a", 10, 2), waiting("w", 3, 1), waiting("v", 2, 1, created="2027"))
        shrinks = [each for each in decided if isinstance(each, Shrink)]
        assert [(each.beneficiary.workload, each.to["main"]) for each in shrinks] == [("team/w", 7), ("team/v", 5)]
        assert a.shrinks_to == {"main": 5}

    def test_one_shrinks_it_and_the_next_evicts_it(self) -> None:
        decided, (a, _, _) = run(elastic("a", 10, 2), waiting("w", 3, 1), waiting("v", 7, 1, created="2027"))
        assert [type(each) for each in decided if name_of(each.key) == "a"] == [Shrink, Evict]
        assert a.evicting

    def test_its_own_growth_waits(self) -> None:
        _, (a, w) = run(elastic("a", 8, 2), waiting("w", 4, 1))
        growth = replacement(a, "a2", 9, queue="to-cq", created="2025")
        decided = cycle(world(a, w, growth, queues=[queue(quota="20", **OWN)]))
        assert admitted_names(decided) == {"w"}
        [wait] = [each for each in decided if isinstance(each, Wait)]
        assert "loses pods to others" in wait.message

    def test_a_cycle_that_admits_others_keeps_them_out_of_the_tree(self) -> None:
        """The search asks what was held before the cycle: without the pods that are going."""
        policy = {"queues": [queue("cq", "6", cohort="org", **RECLAIM), queue("guest", "4", cohort="org")]}
        held = elastic("g", 6, 1, queue="guest"), holding("own", 4)
        _, (g, own, w) = run(*held, waiting("w", 2, created="2025"), **policy)
        assert g.shrinks_to == {"main": 4}
        others = waiting("tiny", 0, queue="guest"), waiting("more", 1, 0, created="2027")
        assert taken(cycle(world(g, own, w, *others, **policy))) == {}

    def test_a_slice_whose_pods_fit_on_no_cluster_then_takes_none(self) -> None:
        capacity = {FlavorName("default"): {"cpu": 10_000}}
        far = Cluster(name="far", accepted=True, cordoned=False, connected=True, capacity=capacity)
        near = Cluster(name="worker", accepted=True, cordoned=True, connected=True, capacity=capacity)
        slices = elastic("a", 5, 1), elastic("b", 5, 1, -9, cluster="far"), waiting("w", 3, 1)
        small = msgspec.structs.replace(far, capacity={FlavorName("default"): {"cpu": 5000}})
        there = msgspec.structs.replace(slices[1], cluster="far")
        assert taken(cycle(world(slices[0], there, slices[2], clusters=[near, small]))) == {"b": 2}
        elsewhere = msgspec.structs.replace(slices[0], priority=-10), msgspec.structs.replace(there, priority=0)
        assert taken(cycle(world(*elsewhere, slices[2], clusters=[near, small]))) == {}

    def test_a_job_that_is_evicted_meanwhile_counts_once(self) -> None:
        """For the search for the next one's victims: their queue still borrows."""
        policy = {"queues": [queue("cq", "5", cohort="org", **RECLAIM), queue("guest", "3", cohort="org")]}
        _, (going, _) = run(elastic("g", 4, 3, queue="guest", since=2), waiting("x", 5, 5), **policy)
        assert going.shrinks_to == {"main": 3}
        stays = holding("h", 4, queue="guest", since=1)
        decided, _ = run(going, stays, waiting("w", 3), waiting("v", 2, created="2027"), **policy)
        assert taken(decided) == {"g": EVICTED, "h": EVICTED}

    @pytest.mark.parametrize(
        ("active", "cores", "has_place"),
        [(True, 3, True), (True, 4, False), (False, 10, True), (False, 11, False)],
        ids=["as many as go", "more than go", "all of a stopped one", "more than it has"],
    )
    def test_the_room_that_they_leave_on_their_cluster(self, active: bool, cores: int, has_place: bool) -> None:
        capacity = {FlavorName("default"): {"cpu": 10_000}}
        full = Cluster(name="worker", accepted=True, cordoned=False, connected=True, capacity=capacity)
        _, (a, _) = run(elastic("a", 10, 1), waiting("w", 3, 1))
        a = msgspec.structs.replace(a, active=active)
        decided = cycle(world(a, waiting("v", cores), queues=[queue(quota="30")], clusters=[full]))
        [wait] = [each for each in decided if isinstance(each, Wait)]
        assert wait.reason == NO_PLACE
        assert wait.message.endswith("who are evicted already, and the pods that others lose") is (has_place and active)
        assert wait.would_admit.startswith("the end of evicted workloads") is has_place

    def test_they_are_their_beneficiarys_also_before_that_is_told(self) -> None:
        decided, (a, _) = run(elastic("a", 10, 1), w := waiting("w", 3, 1))
        assert taken(decided) == {"a": 7}
        again = cycle(world(a, w, waiting("older", 3, 1, created="2025")))
        [shrink] = [each for each in again if isinstance(each, Shrink)]
        assert (shrink.beneficiary.workload, shrink.to) == ("team/older", {"main": 4})

    def test_a_beneficiary_that_is_gone_leaves_the_quota_to_others(self) -> None:
        _, (a, _) = run(elastic("a", 10, 1), waiting("w", 3, 1))
        assert admitted_names(cycle(world(gone(a), waiting("small", 2)))) == {"small"}


class TestFormerSize:
    def shrunk(self, **changes: Any) -> tuple[Slice, Slice]:
        """A job that has lost three of ten pods, and the one that runs with them."""
        _, (a, w) = run(elastic("a", 10, 1, **changes), waiting("w", 3, 1))
        return gone(a), admitted(w)

    def test_it_grows_back_as_quota_comes(self) -> None:
        a, w = self.shrunk()
        again = former_size(a)
        assert not admitted_names(cycle(world(a, w, again)))
        half = msgspec.structs.replace(w, pod_sets=with_counts(w, main=2).pod_sets)
        [admit] = [each for each in cycle(world(a, half, again)) if isinstance(each, Admit)]
        assert admit.admission.counts == {"main": 8}
        [admit] = [each for each in cycle(world(a, again)) if isinstance(each, Admit)]
        assert admit.admission.counts == {"main": 10}

    @pytest.mark.parametrize(
        ("created", "priority", "first"),
        [
            ("2025-12-31T00:00:00Z", 0, "other"),
            ("2026-01-01T06:00:00Z", 0, "again"),
            ("2026-01-01T06:00:00Z", 1, "other"),
        ],
        ids=["an older claim", "a newer claim", "a higher priority"],
    )
    def test_it_comes_before_newer_claims_of_its_priority(self, created: str, priority: int, first: str) -> None:
        a, _ = self.shrunk()
        decided = cycle(world(a, former_size(a), waiting("other", 3, priority, created=created), queues=[queue()]))
        assert admitted_names(decided) == {first}

    @pytest.mark.parametrize("policy", ["LowerPriority", "LowerOrNewerEqualPriority"])
    def test_it_takes_from_lower_priorities_only(self, policy: str) -> None:
        a, w = self.shrunk()
        equal = msgspec.structs.replace(w, priority=0, created="2027", elasticity=elastic("x", 3, 1).elasticity)
        queues = [queue(withinClusterQueue=policy)]
        assert taken(cycle(world(a, equal, former_size(a), queues=queues))) == {}
        lower = msgspec.structs.replace(equal, priority=-1)
        assert taken(cycle(world(a, lower, former_size(a), queues=queues))) == {"w": EVICTED}
        ordinary = former_size(a, queued_since="")
        expected = {} if policy == "LowerPriority" else {"w": EVICTED}
        assert taken(cycle(world(a, equal, ordinary, queues=queues))) == expected

    def test_it_reclaims_from_no_job_of_its_priority(self) -> None:
        policy = [queue("cq", "6", cohort="org", **RECLAIM), queue("guest", "4", cohort="org")]
        a, _ = self.shrunk()
        a = with_counts(a, main=3)
        guest = holding("g", 7, queue="guest")
        assert taken(cycle(world(a, guest, former_size(a), queues=policy))) == {}
        assert taken(
            cycle(
                world(
                    a, guest, former_size(a, queued_since="", pod_sets=with_counts(a, main=5).pod_sets), queues=policy
                )
            )
        ) == {"g": EVICTED}

    def test_a_later_slice_may_take_what_it_must_not(self) -> None:
        a, w = self.shrunk()
        equal = msgspec.structs.replace(w, priority=0, created="2027")
        other = waiting("other", 3, created="2026-06-01T00:00:00Z")
        queues = [queue(withinClusterQueue="LowerOrNewerEqualPriority")]
        assert taken(cycle(world(a, equal, former_size(a), other, queues=queues))) == {"w": EVICTED}

    def test_with_its_former_size_it_is_as_old_as_its_job(self) -> None:
        """One that waits since it was shrunk does not take the same pods at once."""
        old = holding("old", 10, created="2026-03-01T00:00:00Z", queued_since="2026-01-01T00:00:00Z")
        queues = [queue(withinClusterQueue="LowerOrNewerEqualPriority")]
        other = waiting("other", 3, created="2026-02-01T00:00:00Z")
        assert taken(cycle(world(old, other, queues=queues))) == {}
        grown = msgspec.structs.replace(old, queued_since="")
        assert taken(cycle(world(grown, other, queues=queues))) == {"old": EVICTED}

    def test_one_that_was_evicted_since_preempts_as_any_other(self) -> None:
        back = waiting("back", 3, created="2027", queued_since="2025", evicted=True)
        queues = [queue(withinClusterQueue="LowerOrNewerEqualPriority")]
        assert taken(cycle(world(holding("a", 10), back, queues=queues))) == {"a": EVICTED}


class TestRings:
    def note(self, slice: Slice, by: str, at: str = NOW) -> Slice:
        """A job that has lost pods to another one and has them again."""
        loser = elastic(slice.name, 4, 1)
        _, (lost, _) = run(loser, waiting(by, 8, 5), at=at)
        assert lost.reclaimed is not None
        return msgspec.structs.replace(slice, reclaimed=msgspec.structs.replace(lost.reclaimed, done=True))

    @pytest.mark.parametrize(
        ("high_at", "low_at", "since", "is_ring"),
        [(NOW, NOW, SINCE, True), (BEFORE, NOW, SINCE, False), (NOW, BEFORE, SINCE, False), (NOW, NOW, None, False)],
        ids=["lately", "too long ago", "the other too long ago", "nobody looks"],
    )
    def test_pods_go_forth_and_back_once(self, high_at: str, low_at: str, since: str | None, is_ring: bool) -> None:
        high, low = self.note(waiting("high", 8, 5), "low", high_at), self.note(elastic("low", 5, 1), "high", low_at)
        decided = cycle(msgspec.structs.replace(world(high, low), preemption_cycles_since=since))
        assert taken(decided) == ({} if is_ring else {"low": 2})
        [wait] = [each for each in decided if isinstance(each, Wait)]
        assert ("have preempted each other" in wait.message) is is_ring

    def test_by_way_of_others(self) -> None:
        slices = [
            self.note(waiting("high", 8, 5), "third"),
            self.note(holding("third", 1, 9), "low"),
            self.note(elastic("low", 5, 1), "high"),
        ]
        decided = cycle(msgspec.structs.replace(world(*slices), preemption_cycles_since=SINCE))
        assert taken(decided) == {}
        assert any("by way of 1 more" in each.message for each in decided if isinstance(each, Wait))

    def test_all_who_took_pods_count(self) -> None:
        low = self.note(self.note(elastic("low", 5, 1), "high"), "other")
        both = take_back(
            low.reclaimed, {"main": 5}, {"main": 4}, beneficiary=self.first("high"), at=NOW, reason="", message=""
        )
        low = msgspec.structs.replace(low, reclaimed=msgspec.structs.replace(both, done=True))
        high = self.note(waiting("high", 8, 5), "low")
        decided = cycle(msgspec.structs.replace(world(high, low), preemption_cycles_since=SINCE))
        assert taken(decided) == {}

    @staticmethod
    def first(name: str) -> Any:
        [shrink, _] = cycle(world(elastic("x", 10, 1), waiting(name, 3, 5)))
        assert isinstance(shrink, Shrink)
        return shrink.beneficiary

    @pytest.mark.parametrize(("at", "is_behind"), [(NOW, True), (BEFORE, False)], ids=["lately", "long ago"])
    def test_who_lost_pods_comes_after_whom_it_lost_them_to(self, at: str, is_behind: bool) -> None:
        """`high` waits until `big` has gone. Beside both there is room for what `low` lost."""
        low = self.note(elastic("low", 1, 1), "high", at)
        growth = former_size(low, pod_sets=with_counts(low, main=2).pod_sets)
        high = waiting("high", 7, 10)
        slices = [high, holding("big", 6, -1), low, growth]
        decided = cycle(msgspec.structs.replace(world(*slices), preemption_cycles_since=SINCE))
        assert ("again" in admitted_names(decided)) is not is_behind


class TestGrowthLimit:
    def decide(self, *slices: Slice, most: int) -> list[Decision]:
        limit = GrowthLimit(most, 600.0, SINCE)
        return cycle(msgspec.structs.replace(world(*slices), growth_limit=limit))

    @pytest.mark.parametrize(("most", "is_limited"), [(1, True), (2, False)])
    def test_shrinks_count_as_preemptions(self, most: int, is_limited: bool) -> None:
        first = holding("thief", 1, 10)
        more = replacement(first, "thief-2", 6, queue="to-cq", priority=10)
        others = elastic("a", 3, 1, since=1), elastic("b", 3, 1, since=2), holding("high", 3, 11)
        growth = msgspec.structs.replace(more, pod_sets=with_counts(more, main=4).pod_sets)
        decided = self.decide(first, growth, *others, most=most)
        assert taken(decided) == ({} if is_limited else {"b": 1, "a": 2})
        [wait] = [each for each in decided if isinstance(each, Wait)]
        assert (wait.reason == GROWTH_LIMITED) is is_limited

    @pytest.mark.parametrize(("at", "victims"), [(NOW, {}), (BEFORE, {"b": 2})], ids=["lately", "long ago"])
    def test_those_before_count_for_a_time(self, at: str, victims: dict[str, int]) -> None:
        first = holding("thief", 2, 10)
        _, (a, _, _) = run(elastic("a", 4, 1), first, replacement(first, "t1", 7, queue="to-cq", priority=10), at=at)
        first = msgspec.structs.replace(first, uid="uid-of-a-later-slice")
        more = replacement(first, "t2", 3, queue="to-cq", priority=10)
        lost = msgspec.structs.replace(gone(a), elasticity=giving(a, main=3).elasticity)
        rest = 10 - 2 - lost.held_counts["main"] - 3
        decided = self.decide(first, more, lost, elastic("b", 3, 1), holding("high", rest, 11), most=1)
        assert taken(decided) == victims


class TestFairSharing:
    """Two queues without quota share the ten cores of their cohort."""

    QUEUES = (
        queue("cq", "0", cohort="org", reclaimWithinCohort="Any", withinClusterQueue="LowerPriority"),
        queue("guest", "0", cohort="org"),
        queue("third", "0", cohort="org"),
    )

    def decide(self, *slices: Slice, sharing: FairSharing, first: bool = False) -> dict[str, int | None]:
        queues: list[ClusterQueue] = [pods_first(each) if first else each for each in self.QUEUES]
        made: Snapshot = world(*slices, queues=queues, cohorts=[cohort("org", cores=10)])
        return taken(cycle(msgspec.structs.replace(made, fair_sharing=sharing)))

    def test_pods_go_until_the_shares_are_equal(self) -> None:
        held = elastic("g", 10, 0, queue="guest")
        final, initial = FairSharing.FINAL_SHARE, FairSharing.INITIAL_SHARE
        assert self.decide(held, waiting("w", 5), sharing=final) == {"g": 5}
        assert self.decide(held, waiting("w", 6), sharing=final) == {}
        assert self.decide(held, waiting("w", 6), sharing=initial) == {"g": 4}
        assert self.decide(held, waiting("w", 6), sharing=FairSharing.BOTH) == {"g": 4}
        assert self.decide(held, waiting("w", 10), sharing=FairSharing.BOTH) == {}

    def test_of_the_largest_share_first(self) -> None:
        held = elastic("g", 7, 0, queue="guest"), elastic("h", 3, 0, queue="third")
        assert self.decide(*held, waiting("w", 2), sharing=FairSharing.BOTH) == {"g": 5}
        assert self.decide(*held, waiting("w", 4), sharing=FairSharing.FINAL_SHARE) == {}

    def test_pods_go_before_jobs_of_a_priority(self) -> None:
        held = (
            holding("g", 4, queue="guest", since=2),
            elastic("h", 3, 0, queue="guest"),
            elastic("i", 3, 0, queue="third"),
        )
        assert self.decide(*held, waiting("w", 2), sharing=FairSharing.BOTH) == {"h": 1}

    def test_a_lower_priority_is_evicted_before_a_higher_one_gives(self) -> None:
        held = holding("g", 2, -2, queue="guest"), elastic("h", 8, 0, -1, queue="guest")
        assert self.decide(*held, waiting("w", 2), sharing=FairSharing.BOTH) == {"g": EVICTED}
        assert self.decide(*held, waiting("w", 2), sharing=FairSharing.BOTH, first=True) == {"h": 6}

    def test_the_lowest_priority_gives_first(self) -> None:
        held = elastic("low", 4, 0, -2, queue="guest", since=1), elastic("high", 4, 0, -1, queue="guest", since=2)
        assert self.decide(*held, waiting("w", 4), sharing=FairSharing.BOTH, first=True) == {"low": 2}

    def test_its_own_quota_of_each_queue_that_borrows_it(self) -> None:
        queues = [queue(name, cores, cohort="org", **RECLAIM) for name, cores in (("cq", "6"), ("a", "2"), ("b", "2"))]
        held = elastic("a", 5, 0, queue="a", since=2), elastic("b", 5, 0, queue="b", since=1)
        made = msgspec.structs.replace(world(*held, waiting("w", 6), queues=queues), fair_sharing=FairSharing.BOTH)
        assert taken(cycle(made)) == {"a": 2, "b": 2}

    def test_the_second_strategy_takes_pods_first_too(self) -> None:
        """By whole replicas of two the first strategy stops above an equal share."""
        held = (
            holding("rigid", 4, queue="guest", since=2),
            elastic("pairs", 6, 0, queue="guest", since=1, replica_sizes={"main": 2}),
        )
        assert self.decide(*held, waiting("w", 5), sharing=FairSharing.BOTH) == {"pairs": 0}

    def test_a_job_that_gave_is_evicted_where_that_is_fair(self) -> None:
        held = elastic("g", 4, 3, queue="guest"), holding("own", 6, 9)
        small = elastic("g", 4, 3, queue="guest")
        assert self.decide(small, held[1], waiting("w", 1), sharing=FairSharing.BOTH) == {}
        spread = elastic("g", 8, 7, queue="guest"), holding("h", 2, 9, queue="third")
        assert self.decide(*spread, waiting("w", 2), sharing=FairSharing.INITIAL_SHARE) == {"g": EVICTED}

    def test_pods_of_its_own_queue(self) -> None:
        held = elastic("own", 6, 1, -1), elastic("g", 4, 1, queue="guest")
        assert self.decide(*held, waiting("w", 3), sharing=FairSharing.BOTH) == {"own": 3}


def test_the_reason_of_who_waits_for_pods_is_that_of_a_preemptor() -> None:
    """So its claim stays when they are gone."""
    two = a_queue("cq", {"a": {"cpu": "5"}, "b": {"cpu": "5"}}, preemption=OWN)
    held = (
        admitted(giving(waiting("x", 5), main=1), flavor="a"),
        admitted(giving(waiting("y", 5, 9), main=1), flavor="b"),
    )
    decided, (x, _, w) = run(*held, waiting("w", 3, 1), queues=[two])
    assert taken(decided) == {"x": 2}
    assert w.conditions["QuotaReserved"]["reason"] == WAITING_FOR_PREEMPTED
    small = waiting("small", 1, 1, created="2020")
    assert admitted_names(cycle(world(gone(x), held[1], w, small, queues=[two]))) == {"w"}
