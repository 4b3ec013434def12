"""The moment that a page shows, and the moments that there are to choose from."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

AT = "at"
"""The parameter of an address that names a moment of the past."""
_STEPS = 240
"""Of the slider, from one end to the other."""


class Slider(msgspec.Struct, frozen=True, kw_only=True):
    """A slider over the moments that are kept, in seconds of Unix time. Its last one is the present."""

    first: int
    last: int
    step: int
    value: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Which moment a page shows, and how to get to others."""

    at: str = ""
    """The moment as addresses name it; empty for the present."""
    date: str = ""
    """The same for people, in UTC."""
    ago: str = ""
    """How long ago that was; empty for the future."""
    typed: str = ""
    """What the address says, where it names no moment."""
    present: str = ""
    """The address of the same page in the present."""
    kept: Mapping[str, str] = {}
    """The other parameters of the address."""
    slider: Slider | None = None
    """None where nothing is kept."""
    is_recorded: bool = True
    """Whether there is a journal to ask."""


def address_of(moment: datetime) -> str:
    """A moment as addresses name it: `2026-01-31T12:00:00Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def date_of(moment: datetime) -> str:
    """A moment for people: `2026-01-31 12:00:00 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def slider_of(first: datetime | None, now: datetime, at: datetime | None) -> Slider | None:
    """The slider from the first record that is kept, or from a moment before that, to the present; None where nothing
    is kept."""
    if first is None or first >= now:
        return None
    shown = at if at is not None else now
    begin = math.ceil(min(first, shown).timestamp())
    seconds = math.ceil(now.timestamp()) - begin
    step = max(1, math.ceil(seconds / _STEPS))
    last = begin + math.ceil(seconds / step) * step
    return Slider(first=begin, last=last, step=step, value=int(shown.timestamp()) if at is not None else last)
