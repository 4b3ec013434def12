"""Bounds what one sender may take of a recording.

The manager's recording has each message that it takes from an agent, and each status that it writes onto a job because
of one. Without a bound one agent would push everything else out of the stream (docs/decisions/0066).
"""

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.bus.sizes import size_of
from slicebus.journal.redaction import MARK
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import ATTRIBUTES

_log = structlog.get_logger()
PARTS = 8
"""One sender may fill this part of the stream in an hour."""
_HOUR_S = 3600.0
_LONGEST_NAME = 256


class RecordingShares:
    """Gives each sender `most_bytes`, which come back within an hour, evenly."""

    def __init__(self, most_bytes: int, *, registry: CollectorRegistry) -> None:
        self._most_bytes = float(most_bytes)
        self._left: dict[str, tuple[float, float]] = {}
        """The bytes that a sender has left, and when that was."""
        self._told: set[str] = set()
        self._cut = Counter(
            "slicebus_recording_cut",
            "Messages and statuses of jobs recorded without their content: their sender has used up its share.",
            ["sender"],
            registry=registry,
        )

    def take(self, wire: WireMessage, *, at_s: float) -> bool:
        """Whether a message is recorded with its content, which is then taken from its sender's share. It counts
        twice: what is decided about it may repeat it."""
        return self.take_bytes(wire.user_id or "", 2 * size_of(wire), at_s=at_s)

    def take_bytes(self, sender: str, size: int, *, at_s: float) -> bool:
        """Whether so many bytes are recorded that came of a sender's messages, which are then taken from its share."""
        left, since_s = self._left.get(sender, (self._most_bytes, at_s))
        left = min(self._most_bytes, left + max(0.0, at_s - since_s) * self._most_bytes / _HOUR_S)
        has_room = size <= left
        if not has_room:
            if sender not in self._told:
                self._told.add(sender)
                _log.warning("recording.cut", sender=sender)
            self._cut.labels(sender).inc()
        self._left[sender] = (left - size if has_room else left, at_s)
        return has_room


def without_content(wire: WireMessage) -> WireMessage:
    """A message with only what names it: a replay passes over it, and a trace shows that it came."""
    headers = {name: text for name, text in wire.headers.items() if name in ATTRIBUTES and len(text) <= _LONGEST_NAME}
    return msgspec.structs.replace(wire, headers=headers, body=MARK.encode())
