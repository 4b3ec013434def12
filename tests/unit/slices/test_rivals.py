"""Nobody is preempted for a slice that another one, which waits, would preempt at once."""

from slicebus.slices.admission import Wait, cycle
from slicebus.slices.quota import ClusterQueue
from unit.slices.test_preemption import BORROW, OWN, RECLAIM, evicted, holding, queue, waiting, world

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
