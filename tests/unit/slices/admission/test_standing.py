"""What a cycle admits makes no victims: a queue loses only what its earlier quota holders borrow."""

import msgspec
import pytest

from slicebus.slices.admission.cycle import cycle
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED
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

QUEUES = (queue("batch", "6", cohort="org", **OWN), queue("guest", "1", cohort="org", **RECLAIM | BORROW))
COHORTS = (cohort("org", cores=1),)
OLD = holding("old", 5, queue="batch")
"""Within its queue's quota. With one of two cores more the queue borrows."""
FIRST = waiting("first", 2, queue="batch")
RIVAL = waiting("rival", 4, 9, queue="guest")
"""Has room where `old` is gone, and none where only the two cores are."""
GOING = msgspec.structs.replace(holding("going", 2, -1, queue="batch"), evicted=True, admitted=False)


def before_others(slice: Slice) -> Slice:
    """A slice whose turn comes first, because somebody was preempted for it."""
    reserved = {"status": "False", "reason": WAITING_FOR_PREEMPTED, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return msgspec.structs.replace(slice, conditions={"QuotaReserved": reserved})


@pytest.mark.parametrize("sharing", [FairSharing.OFF, FairSharing.BOTH], ids=["classical", "fair"])
@pytest.mark.parametrize("going", [(), (GOING,)], ids=["admitted", "reserved"])
def test_a_holder_within_quota_is_no_victim_for_what_this_cycle_lends_its_queue(
    going: tuple[Slice, ...], sharing: FairSharing
) -> None:
    """It would take its quota back, and the two jobs would take turns for ever."""
    slices = (OLD, *going, before_others(FIRST), RIVAL)
    decided = cycle(msgspec.structs.replace(world(*slices, queues=QUEUES, cohorts=COHORTS), fair_sharing=sharing))
    assert admitted_names(decided) == (set() if going else {"first"})
    assert evicted(decided) == {}


def test_a_borrower_may_be_a_victim_in_a_cycle_that_admits_others() -> None:
    slices = (holding("borrower", 7, queue="batch"), before_others(waiting("first", 1, queue="guest")), RIVAL)
    assert set(evicted(cycle(world(*slices, queues=QUEUES, cohorts=COHORTS)))) == {"borrower"}


def test_the_difference_of_a_resize_makes_no_victims_either() -> None:
    stays, small = holding("stays", 4, queue="batch"), holding("small", 1, queue="batch")
    grown = waiting("grown", 3, queue="batch", job_uid="job-small", replaces=small.key, chain="small")
    decided = cycle(world(stays, small, before_others(grown), RIVAL, queues=QUEUES, cohorts=COHORTS))
    assert (admitted_names(decided), evicted(decided)) == ({"grown"}, {})
