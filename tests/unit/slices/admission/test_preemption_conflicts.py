"""Nobody is preempted for a slice that another one, which waits, would preempt at once."""

from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Decision, Evict, Wait, cycle
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import (
    BORROW,
    OWN,
    RECLAIM,
    admitted_names,
    cohort,
    evicted,
    holding,
    queue,
    waiting,
    world,
)
from unit.slices.admission.test_shrinks import giving, taken
from unit.slices.builders import a_pod_set, a_queue, a_slice, admitted

OWNERS = queue("owners", "2", cohort="all", **OWN, **(BORROW | RECLAIM))
GUESTS = queue("guests", "2", cohort="all", **BORROW)
SPARE = queue("spare", "1", cohort="all")

LOW = holding("low", 2, -10, queue="owners")
"""Within its queue's own quota: nobody of another queue may preempt it."""
MIDDLE = waiting("middle", 4, 0, queue="owners")
"""With the quota of `low` it would borrow."""
HIGH = waiting("high", 5, 10, queue="guests")
"""It may preempt whoever borrows and has a lower priority; `low` would then take its own quota back from it."""


def test_a_slice_preempts_in_its_queue_to_borrow() -> None:
    assert set(evicted(cycle(world(LOW, MIDDLE, queues=[OWNERS, GUESTS, SPARE])))) == {"low"}


def test_not_where_a_waiting_slice_would_preempt_it_at_once() -> None:
    decided = cycle(world(LOW, MIDDLE, HIGH, queues=[OWNERS, GUESTS, SPARE]))
    assert evicted(decided) == {}
    assert [type(each) for each in decided] == [Wait, Wait]


def test_a_slice_that_waits_and_may_not_preempt_is_no_rival() -> None:
    timid: ClusterQueue = queue("guests", "2", cohort="all")
    assert set(evicted(cycle(world(LOW, MIDDLE, HIGH, queues=[OWNERS, timid, SPARE])))) == {"low"}


def test_what_a_slice_has_within_its_queues_quota_nobody_takes() -> None:
    modest = waiting("middle", 2, 0, queue="owners")
    held = holding("others", 3, 10, queue="guests")
    assert set(evicted(cycle(world(LOW, held, modest, HIGH, queues=[OWNERS, GUESTS, SPARE])))) == {"low"}


def test_no_pods_are_taken_for_one_that_a_waiting_slice_would_preempt() -> None:
    elastic = giving(LOW, main=1)
    assert taken(cycle(world(elastic, MIDDLE, queues=[OWNERS, GUESTS, SPARE]))) == {"low": 1}
    assert taken(cycle(world(elastic, MIDDLE, HIGH, queues=[OWNERS, GUESTS, SPARE]))) == {}


def test_then_it_takes_a_later_flavor_with_room() -> None:
    owners = a_queue(
        "owners",
        {"default": {"cpu": "2"}, "spot": {"cpu": "4"}},
        cohortName="all",
        preemption=OWN | BORROW | RECLAIM,
        flavorFungibility={"whenCanPreempt": "MayStopSearch"},
    )
    first, *_ = cycle(world(LOW, MIDDLE, queues=[owners, GUESTS, SPARE]))
    assert isinstance(first, Evict), "without a rival it preempts in the first flavor"
    decided = cycle(world(LOW, MIDDLE, HIGH, queues=[owners, GUESTS, SPARE]))
    assert evicted(decided) == {}
    assert admitted_names(decided) == {"middle"}


class TestAVictimThatComesBack:
    """`team` needs a part of the quota that it lent, and chooses more of it when the guest is gone.

    With the guest there, one of its pods has room in the second flavor, and the others are within what the cohort
    `team` owns of the first. Without the guest all of them get the first flavor, and borrow beyond the cohort.
    """

    COHORTS = (cohort("all"), cohort("team", parent="all"))
    HELD = (
        admitted(a_slice("first", 2, job_uid="first"), flavor="first", queue="team"),
        admitted(a_slice("second", 4, job_uid="second"), flavor="second", queue="team"),
    )
    TEAM = a_slice(
        "team", job_uid="team", queue="to-team", priority=-10, pod_sets=(a_pod_set("head"), a_pod_set("rest", 2))
    )
    GUEST = a_slice("guest", 3, job_uid="guest", queue="to-guests")

    def decided(self, *slices: Slice, guests: dict[str, Any]) -> list[Decision]:
        team = a_queue(
            "team",
            {"first": {"cpu": "2"}, "second": {"cpu": "4"}},
            cohortName="team",
            preemption=RECLAIM,
            flavorFungibility={"whenCanBorrow": "TryNextFlavor"},
        )
        lender = a_queue("lender", {"first": {"cpu": "2"}, "second": {"cpu": "1"}}, cohortName="team")
        other = a_queue("guests", {"first": {"cpu": "1"}}, cohortName="all", preemption=guests)
        return cycle(world(*self.HELD, *slices, queues=[team, lender, other], cohorts=self.COHORTS))

    @pytest.mark.parametrize(
        ("guests", "victims"),
        [
            pytest.param(BORROW, set(), id="it would preempt for what it borrows"),
            pytest.param(RECLAIM, {"guest"}, id="it would not"),
        ],
    )
    def test_nobody_is_preempted_for_a_slice_that_its_victim_would_preempt(
        self, guests: dict[str, Any], victims: set[str]
    ) -> None:
        guest = admitted(self.GUEST, flavor="first", queue="guests")
        assert set(evicted(self.decided(guest, self.TEAM, guests=guests))) == victims

    @pytest.mark.parametrize(
        ("guests", "step", "least", "victims"),
        [
            pytest.param(BORROW, 3, 0, {}, id="it would preempt for what it borrows"),
            pytest.param(RECLAIM, 3, 0, {"guest": 0}, id="it would not"),
            pytest.param(BORROW, 1, 0, {}, id="with fewer pods it would choose other flavors, and not fit"),
            pytest.param(RECLAIM, 1, 0, {"guest": 0}, id="so it takes all that the other can give"),
            pytest.param(RECLAIM, 1, 1, {"guest": None}, id="or the job"),
        ],
    )
    def test_no_pods_are_taken_for_a_slice_that_their_job_would_preempt(
        self, guests: dict[str, Any], step: int, least: int, victims: dict[str, int | None]
    ) -> None:
        elastic = msgspec.structs.replace(giving(self.GUEST, main=least), replica_sizes={"main": step})
        guest = admitted(elastic, flavor="first", queue="guests")
        assert taken(self.decided(guest, self.TEAM, guests=guests)) == victims
