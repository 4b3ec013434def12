"""The account of a queue as the texts of conditions, and what is read of them."""

from random import Random

import pytest

from slicebus.slices.quota.budgets import Spending
from slicebus.slices.quota.spending_texts import MOST_COUNTED, MOST_TEXTS, spending_in, texts_of

MOST_OF_CONDITION = 32_768


def a_spending(pairs: int, *, bits: int, name: int = 20) -> Spending:
    random, lengths = Random(7), 16
    spent = {
        f"example.com/{'n' * name}-{resource}": {
            slot_s: {number: random.getrandbits(bits) | 1 << bits - 1 for number in range(20_600, 20_631)}
            for slot_s in range(180, 180 + lengths)
        }
        for resource in range(pairs // lengths)
    }
    return Spending(at=1_780_000_000, using=dict.fromkeys(spent, 2**40), spent=spent)


@pytest.mark.parametrize(
    ("spending", "texts"),
    [
        (Spending(at=5), 1),
        (Spending(at=5, using={"gpu": 1}, spent={"gpu": {10: {}}}), 1),
        (Spending(at=5, using={"gpu": 1}, spent={"gpu": {10: {7: 20, 9: 4}, 3: {2: 1}}}), 1),
        (a_spending(80, bits=37), 1),
        (a_spending(MOST_COUNTED, bits=37), 5),
        (a_spending(MOST_COUNTED, bits=63), 8),
    ],
    ids=["nothing", "no slot", "gaps", "eighty", "cores of a month", "bytes of a month"],
)
def test_the_texts_are_read_again(spending: Spending, texts: int) -> None:
    written = texts_of(spending)
    assert len(written) == texts
    assert max(map(len, written)) <= MOST_OF_CONDITION
    assert spending_in(written) == spending
    assert spending_in(reversed(written)) == spending


def test_as_many_as_are_counted_always_fit() -> None:
    """Of the largest clusters and the longest names that Kubernetes has."""
    spending = a_spending(MOST_COUNTED, bits=74, name=300)
    written = texts_of(spending)
    assert len(written) <= MOST_TEXTS
    assert max(map(len, written)) <= MOST_OF_CONDITION
    assert spending_in(written) == spending


def test_what_an_earlier_version_wrote_is_read() -> None:
    text = '{"at":112,"using":{"gpu":2},"spent":{"gpu":{"10":{"9":10,"10":20}}}}'
    assert spending_in([text]) == Spending(at=112, using={"gpu": 2}, spent={"gpu": {10: {9: 10, 10: 20}}})


def test_a_text_that_is_left_over_does_not_count() -> None:
    new, old = Spending(9, {"gpu": 1}, {"gpu": {10: {1: 1}}}), Spending(8, {"cpu": 1}, {"cpu": {10: {1: 1}}})
    assert spending_in([*texts_of(new), *texts_of(old)]) == new


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"at": -1}',
        '{"at": 1, "spent": {"gpu": {"x": {}}}}',
        '{"at": 1, "spent": {"gpu": {"10": "-5:1"}}}',
        '{"at": 1, "spent": {"gpu": {"10": "5:1,-2"}}}',
        '{"at": 1, "spent": {"gpu": {"10": "5"}}}',
        "[" * 100_000,
    ],
)
def test_a_text_that_is_none_counts_from_now_on(text: str) -> None:
    assert spending_in([text]) is None
    assert spending_in([]) is None
