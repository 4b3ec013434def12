"""Writes Kubernetes' two time formats, always UTC."""

from datetime import UTC, datetime

from slicebus.ambient.clock import now


def now_text() -> str:
    """The current second as metav1.Time."""
    return time_text(now())


def time_text(moment: datetime) -> str:
    """A moment as metav1.Time, to the second."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def unix_time_text(moment_s: float) -> str:
    """A moment in Unix time as metav1.Time."""
    return time_text(datetime.fromtimestamp(moment_s, UTC))


def micro_time_text(moment: datetime) -> str:
    """A moment as metav1.MicroTime."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
