"""What counts as agreement when the faults have ended, on runs that were thinned to what they need."""

from simulation.outcome import play
from simulation.schedule import Item, Scale, Schedule, StopQueue, Submit

SLOW_PODS = 208
"""A seed with which the pods of both clusters take some 23 seconds to end."""


def problem_of(*items: Item) -> str:
    return play(Schedule(seed=SLOW_PODS, standbys=(), inventory_s=1e6, items=items)).problem


def test_a_rayjob_that_has_ended_and_whose_pods_are_still_going_is_waited_for() -> None:
    """It starts anew when the pods of its first run have ended, and ends between two checks."""
    job = Submit(at_s=0.0, kind="RayJob", name="a", ends=True, autoscales=False)
    drained = StopQueue(at_s=2.0, kind="LocalQueue", queue="batch", policy="HoldAndDrain", for_s=0.5)
    assert problem_of(job, drained) == ""


def test_a_size_that_the_manager_has_overruled_is_asked_for_again() -> None:
    """The worker wants more than there is, then one by the manager, and as many again before its pods have gone."""
    job = Submit(at_s=1.0, kind="Job", name="a", size=4)
    grown = Scale(at_s=5.0, api="east", pick=0, counts=(40,))
    overruled = Scale(at_s=10.0, api="manager", pick=0, counts=(1,))
    grown_again = Scale(at_s=15.0, api="east", pick=0, counts=(40,))
    assert problem_of(job, grown, overruled, grown_again) == ""
