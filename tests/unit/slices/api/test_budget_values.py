"""How budgets are read from annotations."""

import json

import pytest

from slicebus.slices.api.budget_values import Allowance, Budget, BudgetMode, hours_text, problem_of

DAY_S = 86400


@pytest.mark.parametrize(
    ("resource", "text", "amount", "slot_s"),
    [
        ("nvidia.com/gpu", "5000h/30d", 5000 * 3600, DAY_S),
        ("cpu", "2h/24h", 2000 * 3600, 2880),
        ("cpu", "0.5h/30s", 500 * 3600, 1),
        ("memory", "2Gih/7d", 2 * 2**30 * 3600, 20160),
        ("cpu", "1h/31s", 1000 * 3600, 2),
    ],
)
def test_an_amount_in_a_window(resource: str, text: str, amount: int, slot_s: int) -> None:
    assert Allowance.parse(resource, text) == Allowance(text, amount, slot_s)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5000h/30d",
        "[]",
        "{}",
        "null",
        '{"cpu": 5}',
        *(
            json.dumps({"cpu": text})
            for text in ("", "5h", "5/30d", "h/30d", "0h/30d", "-5h/30d", "5h/0d", "5h/29s", "5h/367d", "5h/month")
        ),
        json.dumps({f"example.com/r{number}": "1h/1h" for number in range(17)}),
        "[" * 100_000,
    ],
)
def test_what_is_none_says_how_it_may_be(text: str) -> None:
    assert problem_of(text).startswith("it may be JSON such as")
    assert Budget.from_annotations({"slicebus.dev/budget": text}) is None


def test_one_part_that_cannot_be_read_leaves_none() -> None:
    text = json.dumps({"cpu": "5h/1d", "memory": "much"})
    assert problem_of(text)
    assert Budget.from_annotations({"slicebus.dev/budget": text}) is None


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (None, BudgetMode.SOFT),
        ("soft", BudgetMode.SOFT),
        ("hard", BudgetMode.HARD),
        ("drain", BudgetMode.DRAIN),
        ("Hard", BudgetMode.SOFT),
    ],
)
def test_a_mode_that_is_not_known_stops_nobody(mode: str | None, expected: BudgetMode) -> None:
    said = {"slicebus.dev/budget": '{"cpu": "5h/1d"}'} | ({"slicebus.dev/budget-mode": mode} if mode else {})
    budget = Budget.from_annotations(said)
    assert budget is not None
    assert budget.mode is expected


@pytest.mark.parametrize(
    ("resource", "spent", "expected"),
    [
        ("nvidia.com/gpu", 9000, "2.5h"),
        ("cpu", 1000 * 3600, "1h"),
        ("memory", 3 * 2**30 * 3600, "3Gih"),
        ("cpu", 0, "0h"),
        ("cpu", 1_234_567_500 * 3600, "1234567.5h"),
        ("memory", 4_999_999 * 2**30 * 3600, "4999999Gih"),
    ],
)
def test_amounts_for_people(resource: str, spent: int, expected: str) -> None:
    assert hours_text(resource, spent) == expected
