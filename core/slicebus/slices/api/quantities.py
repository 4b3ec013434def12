"""Counts resources as integers: cpu in thousandths of a core, everything else in units, rounded away from zero.

This is Kueue's representation, so sums and comparisons agree with Kueue's. Kubernetes quantities:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from collections.abc import Mapping
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache
from typing import TypeVar

Amounts = Mapping[str, int]
"""By resource name."""
_Key = TypeVar("_Key")

_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_SUFFIX = {
    "": Decimal(1),
    **{
        suffix: Decimal(10) ** exponent
        for suffix, exponent in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
    },
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


_LARGEST = Decimal(2**63 - 1)
_FINEST = Decimal("1e-9")
_CONTEXT = Context(prec=64, rounding=ROUND_UP, traps=[])
"""Wide enough for every quantity in bounds. A larger one becomes infinite, a smaller one almost 0; neither raises."""


def parse_quantity(text: str | int | float) -> Decimal:
    """Parse a Kubernetes quantity. Raises ValueError for anything that is not one.

    Bounded as Kubernetes bounds it: capped at 2^63-1, and away from zero to a whole number of nanos.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = match.groups()
    value = _CONTEXT.multiply(_CONTEXT.create_decimal(number + (exponent or "")), _SUFFIX[suffix or ""])
    return max(-_LARGEST, min(value, _LARGEST)).quantize(_FINEST, context=_CONTEXT)


@lru_cache(maxsize=4096)
def amount(resource: str, text: str | int | float) -> int:
    """A quantity as this module's integer for that resource. Raises ValueError."""
    scale = 1000 if resource == "cpu" else 1
    return int((parse_quantity(text) * scale).to_integral_value(rounding=ROUND_UP))


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Every quantity of a resource list as an integer. Raises ValueError."""
    return {resource: amount(resource, text) for resource, text in quantities.items()}


def format_amount(resource: str, value: int) -> str:
    """The shortest Kubernetes quantity for an amount, binary for memory-like resources: `1100m`, `4`, `2Gi`."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        for power, suffix in reversed(list(enumerate("KMGTPE", start=1))):
            if value and value % 1024**power == 0:
                return f"{value // 1024**power}{suffix}i"
    return str(value)


def in_units(resource: str, value: int) -> float:
    """An amount in cores, bytes or pieces, as metrics show it."""
    return value / 1000 if resource == "cpu" else float(value)


def add(left: Mapping[_Key, int], right: Mapping[_Key, int]) -> dict[_Key, int]:
    """The sum by resource."""
    if not (left and right):
        return {**left, **right}
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


def larger(left: Mapping[_Key, int], right: Mapping[_Key, int]) -> dict[_Key, int]:
    """The larger of two amounts by resource."""
    return {key: max(left.get(key, 0), right.get(key, 0)) for key in {**left, **right}}


def times(unit: Amounts, count: int) -> dict[str, int]:
    """Every amount `count` times."""
    return {resource: value * count for resource, value in unit.items()}
