"""Reads durations as Go writes them, such as 90s, 5m or 1h30m."""

import re

_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)", re.ASCII)
"""A part of what Go's `time.ParseDuration` reads, without the units below a millisecond."""
_DURATION = re.compile(rf"0|(?:{_SPAN.pattern}){{1,4}}", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """The seconds of a duration; None for any other text, and for a negative one."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _SPAN.findall(text))
