"""Parses durations."""

import re
from datetime import timedelta

from slicebus.proto.errors import ConfigurationError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SPAN = re.compile(r"([0-9]{1,6})([smhd])")


def duration(text: str, *, option: str) -> timedelta:
    """The duration of `90s`, `10m`, `2h` or `3d`. Raises ConfigurationError with the option's name."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"{option} {text}: use 90s, 10m, 2h or 3d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
