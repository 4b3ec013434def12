"""What is spent of a budget, and when it comes back."""

import pytest

from slicebus.slices.api.budget_values import Allowance, BudgetMode
from slicebus.slices.quota.budgets import Arrival, Balance, Spending, counted

LENGTHS = {"gpu": [10]}


def after(before: Spending | None, now: int, *arrivals: Arrival, using: int = 0) -> Spending:
    return counted(before, LENGTHS, {"gpu": using}, arrivals, now=now)


def test_what_is_used_is_spent_by_slot() -> None:
    begun = after(None, 95, using=2)
    assert begun == Spending(at=95, using={"gpu": 2}, spent={"gpu": {10: {}}})
    assert after(begun, 112).of("gpu", 10) == {9: 10, 10: 20, 11: 4}


def test_it_does_not_matter_when_it_is_counted() -> None:
    begun = after(None, 95, using=2)
    assert after(after(after(begun, 101, using=2), 109, using=2), 130, using=2) == after(begun, 130, using=2)


def test_what_has_come_since_counts_from_its_beginning() -> None:
    begun = after(None, 100, using=1)
    came = after(begun, 110, Arrival(since=106, using={"gpu": 5}), using=6)
    assert came.of("gpu", 10) == {10: 10 + 20}
    assert after(came, 111, using=6).of("gpu", 10) == {10: 30, 11: 6}


def test_what_has_gone_since_counts_until_it_is_noticed() -> None:
    gone = after(after(None, 100, using=4), 105, using=0)
    assert (gone.of("gpu", 10), gone.using) == ({10: 20}, {"gpu": 0})


def test_a_slot_leaves_the_window_when_it_is_past_by_the_whole_of_it() -> None:
    spent = after(after(None, 100, using=1), 110)
    assert after(spent, 409).of("gpu", 10) == {10: 10}
    assert after(spent, 410).of("gpu", 10) == {}


def test_a_clock_that_goes_back_takes_nothing_back() -> None:
    spent = after(after(None, 100, using=1), 110, using=1)
    assert after(spent, 105, using=1).of("gpu", 10) == {10: 10}


def test_what_was_not_counted_counts_from_now_on() -> None:
    spent = counted(after(None, 100, using=1), {"gpu": [10], "cpu": [10]}, {"gpu": 1, "cpu": 9}, (), now=110)
    assert (spent.of("gpu", 10), spent.of("cpu", 10)) == ({10: 10}, {})
    assert counted(spent, {"cpu": [10]}, {"cpu": 9}, (), now=111) == Spending(111, {"cpu": 9}, {"cpu": {10: {11: 9}}})


def test_another_window_counts_from_now_on() -> None:
    """Beside the one that is counted, or in its place."""
    spent = counted(after(None, 100, using=1), {"gpu": [10, 20]}, {"gpu": 1}, (), now=110)
    assert (spent.of("gpu", 10), spent.of("gpu", 20)) == ({10: 10}, {})
    assert counted(spent, {"gpu": [20]}, {"gpu": 1}, (), now=111) == Spending(111, {"gpu": 1}, {"gpu": {20: {5: 1}}})


def test_years_without_a_count_take_no_time() -> None:
    spent = after(after(None, 0, using=1), 10**9, using=1)
    assert sum(spent.of("gpu", 10).values()) == 300


def balance(slots: dict[int, int], *, now: int = 400, using: int = 0) -> Balance:
    allowance = Allowance(text="100", amount=100, slot_s=10)
    return Balance(
        of="ClusterQueue cq",
        resource="gpu",
        allowance=allowance,
        mode=BudgetMode.HARD,
        using=using,
        slots=slots,
        now=now,
    )


@pytest.mark.parametrize(
    ("slots", "spent", "back_at"),
    [
        ({}, 0, None),
        ({39: 99}, 99, None),
        ({39: 100}, 100, 700),
        ({20: 30, 39: 100}, 130, 700),
        ({20: 30, 30: 50, 39: 80}, 160, 610),
        ({9: 500, 39: 1}, 1, None),
    ],
    ids=["nothing", "almost", "spent", "most is recent", "in two slots", "the former is past"],
)
def test_when_something_comes_back(slots: dict[int, int], spent: int, back_at: int | None) -> None:
    found = balance(slots)
    assert (found.spent, found.is_spent, found.back_at) == (spent, spent >= 100, back_at)


@pytest.mark.parametrize(
    ("spent", "using", "changes_at"),
    [
        (0, 0, None),
        (50, 0, None),
        (50, 3, 410),
        (79, 100, 401),
        (85, 5, 403),
        (85, 1, 410),
        (85, 0, 410),
        (120, 5, 410),
    ],
    ids=["unused", "kept", "nearly", "at once", "spent", "the slot ends", "a slot may leave", "it may come back"],
)
def test_when_it_is_looked_at_again(spent: int, using: int, changes_at: int | None) -> None:
    assert balance({39: spent}, using=using).changes_at == changes_at
