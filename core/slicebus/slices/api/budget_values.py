"""Reads budgets from annotations: how many quota-hours may be spent in a rolling window, as `5000h/30d`.

An amount is one of `quantities` times seconds.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

import msgspec

from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.durations import seconds
from slicebus.slices.api.quantities import amount

SLOTS: Final = 30
"""The slots of a window, beside the one that has begun."""
_MOST_RESOURCES = 16
_ALLOWANCE = re.compile(r"(?P<quantity>[0-9.]{1,18}(?:[kMGTPE]i?)?)h/(?P<window>[0-9a-z.]{1,20})", re.ASCII)
_DAYS = re.compile(r"([1-9][0-9]{0,2})d", re.ASCII)
_HOUR_S, _DAY_S = 3600, 86400
_LEAST_S, _MOST_S = SLOTS, 366 * _DAY_S
_HOW = 'it may be JSON such as {"cpu": "5000h/30d"}, with a window from 30s to 366d'


class BudgetMode(StrEnum):
    """What becomes of a budget that is spent."""

    SOFT = "soft"
    """It is told."""
    HARD = "hard"
    """Nothing is admitted that would spend more."""
    DRAIN = "drain"
    """What spends is evicted too, with its notice."""


class Allowance(msgspec.Struct, frozen=True):
    """What may be spent of one resource in a window."""

    text: str
    """As somebody wrote it, `5000h/30d`."""
    amount: int
    """The amount times seconds."""
    slot_s: int

    @classmethod
    def parse(cls, resource: str, text: str) -> Self:
        """Read `5000h/30d`. Raises ValueError for any other text."""
        match = _ALLOWANCE.fullmatch(text.strip())
        window_s = _window_s(match["window"]) if match is not None else None
        spendable = amount(resource, match["quantity"]) * _HOUR_S if match is not None else 0
        if window_s is None or not _LEAST_S <= window_s <= _MOST_S or spendable <= 0:
            raise ValueError(_HOW)
        return cls(text=text.strip(), amount=spendable, slot_s=-(-int(window_s) // SLOTS))


class Budget(msgspec.Struct, frozen=True):
    """What a queue or a cohort may spend, by resource."""

    allowances: Mapping[str, Allowance]
    mode: BudgetMode = BudgetMode.SOFT

    @property
    def drains(self) -> bool:
        """Whether it takes quota back when it is spent."""
        return self.mode is BudgetMode.DRAIN

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, str]) -> Self | None:
        """The budget of an object; None without one, and for one that cannot be read. An unknown mode is `soft`."""
        try:
            allowances = _allowances(annotations[api_names.BUDGET_ANNOTATION])
        except (KeyError, ValueError):
            return None
        mode = annotations.get(api_names.BUDGET_MODE_ANNOTATION, "")
        return cls(allowances, BudgetMode(mode) if mode in [*BudgetMode] else BudgetMode.SOFT)


def problem_of(text: str) -> str:
    """What is wrong with the text of a budget; empty for none."""
    try:
        _allowances(text)
    except ValueError as error:
        return str(error)
    return ""


def hours_text(resource: str, spent: int) -> str:
    """An amount times seconds for people: `12.5h`, of memory `640Gih`."""
    hours = spent / _HOUR_S
    if resource == "cpu":
        return f"{_tenths(hours / 1000)}h"
    if resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-"):
        return f"{_tenths(hours / 2**30)}Gih"
    return f"{_tenths(hours)}h"


def _tenths(hours: float) -> str:
    """`12.5` and `1234567.5`: every digit of it, as people compare it with what they wrote."""
    return f"{hours:.1f}".removesuffix(".0")


def _allowances(text: str) -> dict[str, Allowance]:
    texts = read_json(text, msgspec.json.Decoder(dict[str, str]))
    if not texts or len(texts) > _MOST_RESOURCES:
        raise ValueError(_HOW)
    return {resource: Allowance.parse(resource, each) for resource, each in sorted(texts.items())}


def _window_s(text: str) -> float | None:
    if (days := _DAYS.fullmatch(text)) is not None:
        return float(int(days[1]) * _DAY_S)
    return seconds(text)
