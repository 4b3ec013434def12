"""Quantities as Kubernetes reads them, held against a model in fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slicebus.slices.api.quantities import add, amount, amounts, format_amount, larger, parse_quantity, times

LARGEST = 2**63 - 1
NANO = Fraction(1, 10**9)
SCALES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e3": Fraction(1000),
    "E+3": Fraction(1000),
    "e-3": Fraction(1, 1000),
}
RESOURCES = ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "pods"]

numbers = st.from_regex(r"[+-]?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True)
suffixes = st.sampled_from(sorted(SCALES))


def away_from_zero(value: Fraction, step: Fraction = Fraction(1)) -> Fraction:
    return step * (math.ceil(value / step) if value > 0 else math.floor(value / step))


def model(number: str, suffix: str) -> Fraction:
    """Kubernetes' bounds on a quantity: whole nanos, rounded away from zero, and int64."""
    exact = Fraction(number.replace("+.", "+0.").replace("-.", "-0.")) * SCALES[suffix]
    return max(-Fraction(LARGEST), min(away_from_zero(exact, NANO), Fraction(LARGEST)))


@given(number=numbers, suffix=suffixes)
@example(number="1.1234567891", suffix="Ei")
@example(number="9", suffix="Ei")
@example(number=".0000000001", suffix="n")
def test_a_quantity_has_the_value_that_exact_fractions_give(number: str, suffix: str) -> None:
    assert Fraction(parse_quantity(number + suffix)) == model(number, suffix)


@given(number=numbers, suffix=suffixes, resource=st.sampled_from(RESOURCES))
def test_an_amount_is_the_value_in_whole_units_rounded_away_from_zero(number: str, suffix: str, resource: str) -> None:
    scale = 1000 if resource == "cpu" else 1
    assert amount(resource, number + suffix) == away_from_zero(model(number, suffix) * scale)


@given(left=st.tuples(numbers, suffixes), right=st.tuples(numbers, suffixes), resource=st.sampled_from(RESOURCES))
def test_amounts_are_ordered_as_their_quantities_are(
    left: tuple[str, str], right: tuple[str, str], resource: str
) -> None:
    if model(*left) <= model(*right):
        assert parse_quantity("".join(left)) <= parse_quantity("".join(right))
        assert amount(resource, "".join(left)) <= amount(resource, "".join(right))
    else:
        assert parse_quantity("".join(left)) > parse_quantity("".join(right))
        assert amount(resource, "".join(left)) >= amount(resource, "".join(right))


@given(value=st.integers(0, LARGEST), resource=st.sampled_from(RESOURCES))
@example(value=0, resource="memory")
@example(value=2**60, resource="memory")
def test_an_amount_survives_being_written_and_read(value: int, resource: str) -> None:
    assert amount(resource, format_amount(resource, value)) == value


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "1", 1000),
        ("cpu", "100m", 100),
        ("cpu", "0.5", 500),
        ("cpu", 0.5, 500),
        ("cpu", 2, 2000),
        ("cpu", "1n", 1),
        ("cpu", "1E", 10**21),
        ("memory", "1Ki", 1024),
        ("memory", "1k", 1000),
        ("memory", "1.5Gi", 3 * 2**29),
        ("memory", "128974848000m", 128974848),
        ("memory", "12e6", 12_000_000),
        ("memory", "1m", 1),
        ("nvidia.com/gpu", "8", 8),
        ("pods", "+5.", 5),
        ("memory", "1e999999999999", LARGEST),
        ("memory", "-1e999999999999", -LARGEST),
        ("memory", "1e-999999999999", 1),
        ("memory", "-0.5", -1),
    ],
)
def test_amount(resource: str, text: str | int | float, expected: int) -> None:
    assert amount(resource, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1\n",
        "1 Gi",
        "1gi",
        "1K",
        "1e",
        "1e1.5",
        "1mi",
        "Gi",
        ".",
        "--1",
        "1,5",
        "0x10",
        "1_000",
        "٣",
        "nan",
        None,
    ],
)
def test_an_invalid_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("resource", "value", "expected"),
    [
        ("cpu", 1100, "1100m"),
        ("cpu", 4000, "4"),
        ("cpu", 0, "0"),
        ("memory", 2**31, "2Gi"),
        ("memory", 1536 * 2**20, "1536Mi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("ephemeral-storage", 2**40, "1Ti"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
    ],
)
def test_format_amount(resource: str, value: int, expected: str) -> None:
    assert format_amount(resource, value) == expected


def test_a_resource_list_is_read_whole() -> None:
    assert amounts({"cpu": "1500m", "memory": "1Gi", "pods": 3}) == {"cpu": 1500, "memory": 2**30, "pods": 3}


resource_lists = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 10**6))


@given(left=resource_lists, right=resource_lists)
def test_sums_and_maxima_go_by_resource(left: dict[str, int], right: dict[str, int]) -> None:
    for resource in RESOURCES:
        here, there = left.get(resource, 0), right.get(resource, 0)
        assert add(left, right).get(resource, 0) == here + there
        assert larger(left, right).get(resource, 0) == max(here, there)


@given(unit=resource_lists, count=st.integers(0, 20))
def test_times_is_that_many_sums(unit: dict[str, int], count: int) -> None:
    total: dict[str, int] = dict.fromkeys(unit, 0)
    for _ in range(count):
        total = add(total, unit)
    assert times(unit, count) == total
