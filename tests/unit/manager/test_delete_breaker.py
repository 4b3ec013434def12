"""The delete breaker: a few deletes go, too many are held, and a release frees exactly the held ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.manager.decide.cluster.delete_breaker import DeleteBreaker, DeleteLimits
from slicebus.proto.messages import JobRef

LIMITS = DeleteLimits(share=0.2, count=3, window_s=60.0)


def job(number: int) -> JobRef:
    return JobRef("batch/v1", "Job", "team", f"job-{number}", f"uid-{number}")


def wanting(count: int, *, held: bool = False) -> DeleteBreaker:
    breaker = DeleteBreaker(LIMITS, held=held)
    for number in range(count):
        breaker.add(job(number))
    return breaker


def going(breaker: DeleteBreaker, numbers: range, *, jobs: int = 10, now: float = 0.0) -> int:
    return sum(breaker.may_go(job(number), jobs=jobs, now=now) for number in numbers)


@pytest.mark.parametrize(("jobs", "most"), [(0, 3), (10, 3), (15, 3), (19, 3), (20, 4), (100, 20), (10_000, 2000)])
def test_the_limit_is_the_larger_of_share_and_count(jobs: int, most: int) -> None:
    assert LIMITS.most(jobs) == most


def test_as_many_as_the_limit_go() -> None:
    breaker = wanting(3)
    assert going(breaker, range(3)) == 3
    assert not breaker.held


def test_of_one_more_none_goes() -> None:
    breaker = wanting(4)
    assert going(breaker, range(4)) == 0
    assert breaker.held
    assert len(breaker.waiting) == 4


def test_one_after_the_other_is_stopped_at_the_limit() -> None:
    breaker = DeleteBreaker(LIMITS)
    assert going(breaker, range(10)) == 3
    assert len(breaker.waiting) == 7


def test_one_that_was_not_served_is_held_with_whatever_waits() -> None:
    breaker = wanting(1)
    breaker.hold_unserved(job(5))
    assert going(breaker, range(1)) == 0
    hold = breaker.hold("now")
    assert (len(hold.jobs), hold.unserved) == (2, {"Job"})
    breaker.release(hold)
    assert (breaker.held, breaker.hold("now").unserved) == (False, set())
    breaker.hold_unserved(job(5))
    assert not breaker.held, "it is released"


def test_what_went_before_the_window_does_not_count() -> None:
    breaker = DeleteBreaker(LIMITS)
    assert going(breaker, range(3), now=0.0) == 3
    assert going(breaker, range(3, 6), now=60.0) == 3


def test_the_share_is_of_what_the_cluster_had_before_the_first_of_the_window_went() -> None:
    breaker = DeleteBreaker(LIMITS)
    assert [breaker.may_go(job(number), jobs=100 - number, now=0.0) for number in range(21)] == [True] * 20 + [False]


def test_the_share_is_not_of_what_the_cluster_had_before_the_window() -> None:
    breaker = DeleteBreaker(LIMITS)
    assert going(breaker, range(20), jobs=100, now=0.0) == 20
    assert going(breaker, range(20, 40), jobs=80, now=60.0) == 16


def test_asking_again_for_one_that_may_go_is_not_another_delete() -> None:
    breaker = DeleteBreaker(LIMITS)
    assert sum(breaker.may_go(job(0), jobs=0, now=float(second)) for second in range(50)) == 50
    assert not breaker.held


def test_a_release_lets_go_what_was_held_and_nothing_that_came_since() -> None:
    breaker = wanting(5)
    going(breaker, range(5))
    hold = breaker.hold("noon")
    breaker.add(job(5))
    assert breaker.hold("noon").id != hold.id
    assert sorted(breaker.release(hold)) == [job(number) for number in range(5)]
    assert going(breaker, range(5)) == 5
    assert not breaker.may_go(job(5), jobs=10, now=0.0)
    assert breaker.held
    assert breaker.release(hold) == []


def test_a_release_does_not_count_against_what_comes_after_it() -> None:
    breaker = wanting(50)
    going(breaker, range(50))
    breaker.release(breaker.hold("noon"))
    assert not breaker.held
    assert going(breaker, range(50)) == 50
    assert going(breaker, range(50, 53)) == 3


def test_the_same_jobs_held_again_are_another_hold() -> None:
    assert wanting(5).hold("noon").id != wanting(5).hold("later").id
    assert wanting(5).hold("noon") == wanting(5).hold("noon")


def test_a_hold_without_waiting_jobs_ends() -> None:
    breaker = wanting(4)
    going(breaker, range(4))
    for number in range(4):
        breaker.lift()
        assert breaker.held
        breaker.remove(job(number))
    breaker.lift()
    assert not breaker.held


def test_what_was_held_is_held_after_a_restart_however_few_are_left() -> None:
    assert going(wanting(1, held=True), range(1)) == 0


@given(
    st.lists(st.tuples(st.sampled_from(["want", "ask", "forget", "release"]), st.integers(0, 12)), max_size=80),
    st.integers(0, 40),
)
def test_no_more_than_the_limit_go_unreleased_within_a_window(steps: list[tuple[str, int]], jobs: int) -> None:
    breaker, gone, released = DeleteBreaker(LIMITS), set[JobRef](), set[JobRef]()
    for step, number in steps:
        match step:
            case "want":
                breaker.add(job(number))
            case "forget":
                breaker.remove(job(number))
                released.discard(job(number))
            case "release" if breaker.held:
                released.update(breaker.release(breaker.hold("now")))
            case "ask" if breaker.may_go(job(number), jobs=jobs, now=0.0) and job(number) not in released:
                gone.add(job(number))
        assert len(gone) <= LIMITS.most(jobs)
