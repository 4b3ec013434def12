"""Reads the moments that people name, and shows spans of the journal. Pure."""

import re
from datetime import UTC, datetime, time, timedelta

from slicebus.cli.durations import duration, local_time
from slicebus.proto.errors import ConfigurationError

OPTION = "--at"
_CLOCK = re.compile(r"(?P<hour>[0-9]{1,2})(?P<rest>:[0-9]{2}(:[0-9]{2})?)(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?")
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""No journal is older, and what lies beside these can be counted with in every zone."""
_FORMS = "use 03:00, -15m, or a date with its zone such as 2026-01-31T03:00:00Z"


def moment_of(text: str, now: datetime, *, option: str = OPTION) -> datetime:
    """The moment that `03:00`, `03:00Z`, `-15m` or an RFC 3339 date names at this time. Raises ConfigurationError,
    which names the option.

    A clock time is the last one that has been; without a zone it is that of this machine. A date has to say its zone.
    """
    clock = _CLOCK.fullmatch(text)
    try:
        if clock is not None:
            hour, rest, zone = clock["hour"].zfill(2), clock["rest"], clock["zone"] or ""
            return _last(time.fromisoformat(f"{hour}{rest}{zone}"), now)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return _ago(text, now, option)
    if moment.tzinfo is None:
        raise ConfigurationError(f"{option} {text}: say its zone, as Z or +01:00")
    if not _FIRST <= moment <= _LAST:
        raise ConfigurationError(f"{option} {text}: {_FORMS}")
    return moment


def span_text(first: datetime | None, last: datetime | None) -> str:
    """`from … to …`, whose ends, typed in again, are in the span. None as its end is the present, and as its beginning
    no record at all."""
    if first is None:
        return "the journal has no records"
    return f"the journal has records from {later_second(first)} to {local_time(last) if last else 'now'}"


def later_second(moment: datetime) -> str:
    """A moment as text, to the next whole second."""
    return local_time(moment + timedelta(seconds=1) if moment.microsecond else moment)


def local_ms(moment_ms: int, *, later: bool = False) -> str:
    """Unix time in milliseconds as text, to the second; `later`: to the next whole one."""
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return later_second(moment) if later else local_time(moment)


def _last(clock: time, now: datetime) -> datetime:
    today = now.astimezone(clock.tzinfo).date()
    # The hour before clocks go back comes twice: its second time is later.
    times = (
        datetime.combine(day, clock.replace(fold=fold)) for day in (today, today - timedelta(days=1)) for fold in (1, 0)
    )
    moments = (time if time.tzinfo else time.astimezone() for time in times)
    return next(moment for moment in moments if moment <= now)


def _ago(text: str, now: datetime, option: str) -> datetime:
    try:
        return now - duration(text.removeprefix("-"), option=option)
    except (ConfigurationError, OverflowError) as error:
        raise ConfigurationError(f"{option} {text}: {_FORMS}") from error
