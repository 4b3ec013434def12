"""Quota that nobody waits for goes to running jobs with a greatest size: how much, to whom, and when not."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Decision, Grow, cycle
from slicebus.slices.admission.snapshot import IdleGrowth
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.reclaimed import Reclaimed, grow
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.admission.test_opportunistic import grown
from unit.slices.admission.test_preemption import cohort, holding, name_of, queue, waiting, world
from unit.slices.admission.test_shrinks import ended, taken
from unit.slices.admission.test_while_pods_go import run
from unit.slices.builders import a_pod_set, replacement

SINCE = "2026-01-01T02:00:00Z"


def willing(name: str, pods: int, most: int, priority: int = 0, **changes: Any) -> Slice:
    """A job with quota that takes more."""
    return taking(holding(name, pods, priority, **changes), main=most)


def taking(slice: Slice, **most: int) -> Slice:
    return msgspec.structs.replace(slice, elasticity=Elasticity(most=most))


def decide(*slices: Slice, since: str = SINCE, headroom: float = 0.0, **more: Any) -> list[Decision]:
    made = world(*slices, **({"queues": [queue()]} | more))
    return cycle(msgspec.structs.replace(made, idle_growth=IdleGrowth(since, headroom)))


def sizes(decisions: Iterable[Decision]) -> dict[str, int]:
    return {name_of(each.key): each.to["main"] for each in decisions if isinstance(each, Grow)}


def noted(slice: Slice, decision: Grow, *, at: str = "2026-01-01T03:00:00Z") -> tuple[Slice, Slice]:
    """The job with its note, and the slice by which it asks for more."""
    note = grow(slice.reclaimed, slice.held_counts, decision.to, asked=decision.asked, at=at, message="")
    holder = msgspec.structs.replace(slice, reclaimed=note)
    asks = replacement(
        holder,
        f"{slice.name}2",
        decision.to["main"],
        queue="to-cq",
        elasticity=slice.elasticity,
        reclaimed=msgspec.structs.replace(note, done=True),
    )
    return holder, asks


class TestHowMuch:
    @pytest.mark.parametrize(
        ("most", "quota", "headroom", "expected"),
        [
            (8, "10", 0.0, {"a": 8}),
            (64, "10", 0.0, {"a": 10}),
            (64, "10", 0.25, {"a": 7}),
            (64, "10", 1.0, {}),
            (64, "4", 0.0, {}),
            (4, "10", 0.0, {}),
            (2, "10", 0.0, {}),
        ],
    )
    def test_up_to_its_greatest_size_and_what_is_left(
        self, most: int, quota: str, headroom: float, expected: dict[str, int]
    ) -> None:
        assert sizes(decide(willing("a", 4, most), queues=[queue(quota=quota)], headroom=headroom)) == expected

    @pytest.mark.parametrize(("useful", "expected"), [(9, {"a": 8}), (5, {"a": 5}), (4, {}), (3, {})])
    def test_no_more_than_it_has_work_for(self, useful: int, expected: dict[str, int]) -> None:
        held, other = willing("a", 4, 8), willing("b", 1, 1)
        made = world(held, other, queues=[queue()])
        growth = IdleGrowth(SINCE, 0.0, useful={held.key: {"main": useful}, other.key: {"main": 9}})
        assert sizes(cycle(msgspec.structs.replace(made, idle_growth=growth))) == expected

    def test_whole_replicas(self) -> None:
        held = willing("a", 4, 9, replica_sizes={"main": 2})
        assert sizes(decide(held)) == {"a": 8}
        assert sizes(decide(held, queues=[queue(quota="7")])) == {"a": 6}

    def test_what_a_cluster_has(self) -> None:
        room = {FlavorName("default"): {"cpu": 8_000}}
        cluster = Cluster(name="worker", accepted=True, cordoned=False, connected=True, capacity=room)
        more: dict[str, Any] = {"queues": [queue(quota="100")], "clusters": [cluster]}
        assert sizes(decide(willing("a", 4, 64), **more)) == {"a": 8}
        assert sizes(decide(willing("a", 4, 64), **more, headroom=0.02)) == {"a": 7}
        two = [willing("a", 2, 64), willing("b", 2, 64, since=1)]
        assert sizes(decide(*two, **more)) == {"a": 6}

    def test_what_it_may_borrow(self) -> None:
        queues = [queue("cq", ("4", 3, None), cohort="org"), queue("other", "9", cohort="org")]
        more: dict[str, Any] = {"queues": queues, "cohorts": [cohort("org")]}
        assert sizes(decide(willing("a", 4, 64), **more)) == {"a": 7}
        assert sizes(decide(willing("a", 4, 64), holding("o", 8, queue="other"), **more)) == {"a": 5}

    def test_nothing_that_is_kept_for_somebody(self) -> None:
        slices = [willing("a", 2, 64, 9), holding("low", 6), waiting("w", 5, 1)]
        policy = queue(quota="10", withinClusterQueue="LowerPriority")
        found = decide(*slices, queues=[policy])
        assert taken(found) == {"low": None}
        assert sizes(found) == {"a": 4}, "of ten, eight are used, and three come free of which one is needed"

    def test_what_somebody_waits_for_in_vain(self) -> None:
        assert sizes(decide(willing("a", 4, 64), waiting("w", 9))) == {"a": 10}

    def test_not_what_this_cycle_gives_away(self) -> None:
        assert sizes(decide(willing("a", 4, 64), waiting("w", 3))) == {"a": 7}

    def test_the_pod_sets_that_it_names(self) -> None:
        held = holding("a", 0, pod_sets=(a_pod_set("one", 1), a_pod_set("main", 2)))
        [found] = decide(taking(held, main=5))
        assert isinstance(found, Grow)
        assert (found.to, found.asked) == ({"one": 1, "main": 5}, {"one": 1, "main": 2})

    def test_more_of_a_job_that_has_such_pods(self) -> None:
        held = msgspec.structs.replace(grown(holding("a", 6), main=4), elasticity=Elasticity(most={"main": 8}))
        [found] = decide(held)
        assert isinstance(found, Grow)
        assert (found.to, found.asked) == ({"main": 8}, {"main": 4})


class TestToWhom:
    def test_the_queue_that_borrows_least(self) -> None:
        queues = [queue("cq", "2", cohort="org"), queue("other", "2", cohort="org"), queue("rest", "6", cohort="org")]
        slices = [willing("a", 4, 64, 9), willing("o", 2, 64, queue="other")]
        assert sizes(decide(*slices, queues=queues, cohorts=[cohort("org")])) == {"a": 5, "o": 5}

    def test_the_highest_priority_and_the_oldest(self) -> None:
        quota = [queue(quota="7")]
        assert sizes(decide(willing("a", 2, 9, 1), willing("b", 2, 5, 2), queues=quota)) == {"b": 5}
        old = willing("b", 2, 5, created="2025-01-01T00:00:00Z")
        assert sizes(decide(willing("a", 2, 9), old, queues=quota)) == {"b": 5}

    def test_nobody_in_a_queue_that_says_no(self) -> None:
        no = msgspec.structs.replace(queue(), opportunistic=False)
        assert sizes(decide(willing("a", 4, 8), queues=[no])) == {}

    @pytest.mark.parametrize(("value", "is_on"), [(None, True), ("true", True), ("false", False), ("no", True)])
    def test_what_a_queue_says(self, value: str | None, is_on: bool) -> None:
        annotations = {} if value is None else {"slicebus.dev/opportunistic": value}
        made = ClusterQueue.from_manifest({"metadata": {"name": "cq", "annotations": annotations}})
        assert made.opportunistic is is_on

    @pytest.mark.parametrize(
        "changes",
        [{"elastic": False}, {"active": False}, {"reclaimable": {"main": 1}}, {"evicted": True}, {"cluster": "gone"}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_nobody_who_cannot_use_it(self, changes: dict[str, Any]) -> None:
        assert sizes(decide(msgspec.structs.replace(willing("a", 4, 8), **changes))) == {}

    def test_nobody_whose_job_has_ended(self) -> None:
        assert sizes(decide(ended(willing("a", 4, 8)))) == {}

    @pytest.mark.parametrize("what", ["cordoned", "draining", "given_up"])
    def test_nobody_on_a_cluster_that_takes_nobody(self, what: str) -> None:
        fields: dict[str, Any] = {"accepted": True, "cordoned": False, "connected": True}
        assert sizes(decide(willing("a", 4, 8), clusters=[Cluster(name="worker", **(fields | {what: True}))])) == {}

    def test_nobody_who_waits_for_more_or_loses_pods(self) -> None:
        held = willing("a", 4, 8)
        assert sizes(decide(held, replacement(held, "a2", 20, queue="to-cq"))) == {}
        _, (b, w) = run(grown(willing("b", 10, 64), main=4), waiting("w", 3), queues=[queue()])
        assert sizes(decide(b, w, queues=[queue(quota="100")], since="2027")) == {}


class TestWhen:
    def test_not_without_being_asked_to(self) -> None:
        assert cycle(world(willing("a", 4, 8), queues=[queue()])) == []

    def test_once_in_its_time(self) -> None:
        held = willing("a", 4, 8, since=9)
        assert sizes(decide(held, since="2026-01-01T00:08:59Z")) == {}
        assert sizes(decide(held, since="2026-01-01T00:09:00Z")) == {"a": 8}

    def test_not_right_after_it_was_given_more(self) -> None:
        """Its note may be forgotten by then: its user has resized it."""
        held = msgspec.structs.replace(willing("a", 4, 8), grown_at=SINCE)
        assert sizes(decide(held, since="2026-01-01T01:59:59Z")) == {}
        assert sizes(decide(held)) == {"a": 8}

    def test_not_right_after_it_lost_pods(self) -> None:
        note = Reclaimed(
            id="n", before={"main": 4}, to={"main": 4}, at=SINCE, beneficiaries=(), reason="", message="", done=True
        )
        held = msgspec.structs.replace(willing("a", 4, 8), reclaimed=note)
        assert sizes(decide(held, since="2026-01-01T01:59:59Z")) == {}
        assert sizes(decide(held)) == {"a": 8}


class TestTheSliceThatAsks:
    def test_it_is_admitted_within_the_quota(self) -> None:
        held = willing("a", 4, 8)
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        holder, asks = noted(held, decision)
        assert (holder.shrinks_to, holder.asked_counts, asks.grows_unasked) == (None, None, True)
        [admit] = cycle(world(holder, asks, queues=[queue()]))
        assert isinstance(admit, Admit)
        assert admit.admission.counts == {"main": 8}
        given = msgspec.structs.replace(asks, admission=admit.admission, admitted=True, cluster="worker")
        assert (given.asked_counts, given.grows_unasked) == ({"main": 4}, False)

    @pytest.mark.parametrize("off", ["by its queue", "by its job", "by its job in part"])
    def test_it_gets_nothing_that_its_queue_or_its_job_has_taken_back_meanwhile(self, off: str) -> None:
        """It would be given back as soon as its pods run."""
        held = willing("a", 4, 8)
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        made = msgspec.structs.replace(queue(), opportunistic=off != "by its queue")
        most = {"by its job": {}, "by its job in part": {"main": 6}}.get(off, {"main": 8})
        found = cycle(world(*(taking(each, **most) for each in noted(held, decision)), queues=[made]))
        assert found == [Grow(key=held.key, to={"main": 4}, asked={"main": 4})]

    def test_it_comes_last(self) -> None:
        held = willing("a", 4, 8, 9)
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        holder, asks = noted(held, decision)
        later = waiting("w", 3, -5, created="2030-01-01T00:00:00Z")
        found = cycle(world(holder, asks, later, queues=[queue()]))
        assert [each.key for each in found if isinstance(each, Admit)] == [later.key]
        assert [each for each in found if isinstance(each, Grow)] == [
            Grow(key=holder.key, to={"main": 4}, asked={"main": 4})
        ], "there is no room for it any more"

    def test_it_preempts_nobody(self) -> None:
        held = willing("a", 4, 8, 9)
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        holder, asks = noted(held, decision)
        policy = queue(withinClusterQueue="LowerPriority")
        found = cycle(world(holder, asks, holding("low", 3), queues=[policy]))
        assert taken(found) == {}
        assert sizes(found) == {"a": 4}

    def test_nor_takes_what_somebody_else_was_given_beyond_its_wish(self) -> None:
        held = willing("a", 4, 8, 9)
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        holder, asks = noted(held, decision)
        found = cycle(world(holder, asks, grown(holding("b", 3), main=1), queues=[queue()]))
        assert (taken(found), sizes(found)) == ({}, {"a": 4})

    def test_a_job_that_was_given_such_pods_before_keeps_them(self) -> None:
        held = msgspec.structs.replace(grown(holding("a", 6), main=4), elasticity=Elasticity(most={"main": 8}))
        [decision] = decide(held)
        assert isinstance(decision, Grow)
        holder, asks = noted(held, decision)
        assert holder.asked_counts == {"main": 4}
        found = cycle(world(holder, asks, holding("b", 3), queues=[queue()]))
        assert found == [Grow(key=holder.key, to={"main": 6}, asked={"main": 4})]
        [admit] = cycle(world(holder, asks, queues=[queue()]))
        assert isinstance(admit, Admit)
