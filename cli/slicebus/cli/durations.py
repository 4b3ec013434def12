"""Parses durations, and shows times and ages."""

import re
from datetime import datetime, timedelta

from slicebus.ambient.clock import now
from slicebus.proto.errors import ConfigurationError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SPAN = re.compile(r"([0-9]{1,6})([smhd])")


def duration(text: str, *, option: str) -> timedelta:
    """The duration of `90s`, `10m`, `2h` or `3d`. Raises ConfigurationError with the option's name."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{option} {text}: use 90s, 10m, 2h or 3d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def age_text(age: timedelta | None) -> str:
    """`42s`, `12m`, `5h`, `3d`."""
    if age is None:
        return "?"
    seconds = int(age.total_seconds())
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def age_of(text: str | None) -> str:
    """How long ago a time was, RFC 3339; `never` for none, and `?` for what is no time."""
    if not text:
        return "never"
    try:
        return age_text(now() - datetime.fromisoformat(text))
    except (ValueError, TypeError):
        return "?"


def local_time(moment: datetime, *, timespec: str = "seconds") -> str:
    """A moment in the reader's zone, which is named: `2026-01-31 12:00:00+01:00`; in its own where the reader's has no
    such moment, at either end of the years. `timespec` as of isoformat."""
    return in_own_zone(moment).isoformat(sep=" ", timespec=timespec)


def in_own_zone(moment: datetime) -> datetime:
    """A moment in the reader's zone, unless that has no such moment: whoever sends a message chooses its time."""
    try:
        return moment.astimezone()
    except (OverflowError, ValueError):
        return moment
