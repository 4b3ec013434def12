"""Epochs for messages that a test publishes as an agent."""

from slicebus.ambient.clock import now
from slicebus.proto.epochs import epoch_at


def later_epoch() -> int:
    """Above that of every agent which is there now, and not so far ahead that the manager refuses it."""
    return epoch_at(now()) + 200
