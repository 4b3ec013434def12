"""Writes what a queue has spent into texts that the messages of conditions can hold, and reads them again.

A text is JSON. The slots of one resource and length are one string: the first slot's number, then what was spent in it
and in each that follows, hexadecimal, nothing where nothing was: `20605:6ddd00,,1f4`. Earlier versions wrote one text
with an object of each, which is read too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.quota.budgets import Amount, Spending

MOST_COUNTED: Final = 400
"""So many pairs of a resource and a length of slots fit into the texts of one queue."""
MOST_TEXTS: Final = 10
"""Of one queue. The schemas of Kueue let a status have sixteen conditions."""
TEXT_LENGTH: Final = 32_000
"""The most characters of a text, of the 32,768 that a condition may have."""
_SLOTS = re.compile(r"[0-9]{1,15}:[0-9a-f]*(?:,[0-9a-f]*)*", re.ASCII)
_AROUND = 16
"""The characters around the slots of a pair, with their length."""
_USING = 60
"""The same of a resource, beside its name twice."""


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text. All of a queue are written together, with the same time."""

    at: Amount
    using: Mapping[str, Amount] = {}
    spent: Mapping[str, Mapping[int, str | Mapping[int, Amount]]] = {}


def texts_of(spending: Spending) -> list[str]:
    """The texts, at least one."""
    return [msgspec.json.encode(part).decode() for part in _parts(spending)][:MOST_TEXTS]


def spending_in(texts: Iterable[str]) -> Spending | None:
    """What the texts say; None where there are none that can be read. One that is older than another is left over."""
    decoder = msgspec.json.Decoder(_Written)
    parts = [part for text in texts if (part := read_json(text, decoder)) is not None]
    at = max((part.at for part in parts), default=0)
    using: dict[str, int] = {}
    spent: dict[str, dict[int, Mapping[int, int]]] = {}
    for part in parts:
        if part.at == at:
            using |= part.using
            for resource, lengths in part.spent.items():
                for slot_s, slots in lengths.items():
                    if (read := _read(slots)) is None:
                        return None
                    spent.setdefault(resource, {})[slot_s] = read
    return Spending(at=at, using=using, spent=spent) if parts else None


def _parts(spending: Spending) -> Iterator[_Written]:
    spent: dict[str, dict[int, str]] = {}
    length = 0
    for resource, lengths in spending.spent.items():
        for slot_s, slots in lengths.items():
            written = _written(slots)
            is_new = _USING + 2 * len(msgspec.json.encode(resource))
            if spent and length + len(written) + _AROUND + is_new > TEXT_LENGTH:
                yield _part(spending, spent)
                spent, length = {}, 0
            length += len(written) + _AROUND + (0 if resource in spent else is_new)
            spent.setdefault(resource, {})[slot_s] = written
    yield _part(spending, spent)


def _part(spending: Spending, spent: Mapping[str, Mapping[int, str]]) -> _Written:
    using = {resource: spending.using[resource] for resource in spent}
    return _Written(at=spending.at, using=using, spent=spent)


def _written(slots: Mapping[int, int]) -> str:
    if not slots:
        return ""
    numbers = range(min(slots), max(slots) + 1)
    return f"{numbers.start}:" + ",".join(f"{slots[number]:x}" if slots.get(number) else "" for number in numbers)


def _read(slots: str | Mapping[int, int]) -> Mapping[int, int] | None:
    """None for what nobody has written."""
    if not isinstance(slots, str):
        return slots
    if not slots:
        return {}
    if not _SLOTS.fullmatch(slots):
        return None
    first, _, amounts = slots.partition(":")
    return {int(first) + number: int(amount, 16) for number, amount in enumerate(amounts.split(",")) if amount}
