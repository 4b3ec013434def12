"""Epochs: the numbers that fence the messages of an earlier holder of a Lease (docs/decisions/0012)."""

from datetime import UTC, datetime

EPOCHS_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""An epoch is at least the seconds from here to its acquisition. A Lease's `leaseTransitions` has 32 bits: they fit
until 2094."""


def epoch_at(moment: datetime) -> int:
    """The least epoch of a Lease that is acquired at this moment. An epoch above it by more than clocks differ is
    invalid."""
    return int((moment - EPOCHS_SINCE).total_seconds())
