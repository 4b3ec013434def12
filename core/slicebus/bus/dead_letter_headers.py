"""How a message that lies in the dead-letter queue says why, and who sent it.

A broker lets nobody publish under another user's id, so a copy has the id of whoever made it, and the sender's in a
header. Anyone may write such a header: it counts in a message from the trusted user alone, the manager's, whose id the
broker has verified (docs/decisions/0009).
"""

from datetime import UTC, datetime

import msgspec

from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason

REASON_HEADER = "slicebus-dead-reason"
DETAIL_HEADER = "slicebus-dead-detail"
QUEUE_HEADER = "slicebus-dead-queue"
TIME_HEADER = "slicebus-dead-time"
USER_HEADER = "slicebus-user-id"
"""Who sent the message at first; empty where the broker verified nobody."""
_DETAIL_LENGTH = 2000
_OF_DEAD_LETTERS = ("slicebus-dead-", "x-death", "x-first-death-", "x-last-death-")
"""Prefixes of the headers that a message has only since it is dead: ours, and the broker's."""


def dead_copy(
    message: WireMessage, *, queue: str, reason: DeadReason, detail: str, at: datetime, by: str
) -> WireMessage:
    """The message as `by` puts it into the dead-letter queue."""
    headers = without_death(message).headers | _why(queue, reason, detail, at)
    headers[USER_HEADER] = sender(message, trusted=by) or ""
    return msgspec.structs.replace(message, headers=headers, user_id=by)


def dead_by_broker(message: WireMessage, *, queue: str, detail: str, at: datetime) -> WireMessage:
    """The message as the broker puts it there: of its publisher still."""
    headers = without_death(message).headers | _why(queue, DeadReason.UNDELIVERABLE, detail, at)
    return msgspec.structs.replace(message, headers=headers)


def sender(message: WireMessage, *, trusted: str) -> str | None:
    """Who sent the message at first, as far as the broker has verified it; None for nobody."""
    if message.user_id == trusted:
        return message.headers.get(USER_HEADER, trusted) or None
    return message.user_id


def as_sent(message: WireMessage, *, trusted: str) -> WireMessage:
    """The message under its first sender's id."""
    return msgspec.structs.replace(message, user_id=sender(message, trusted=trusted))


def without_death(message: WireMessage) -> WireMessage:
    """The message as it was before it was dead."""
    headers = {name: value for name, value in message.headers.items() if not name.startswith(_OF_DEAD_LETTERS)}
    return msgspec.structs.replace(message, headers=headers)


def _why(queue: str, reason: DeadReason, detail: str, at: datetime) -> dict[str, str]:
    return {
        REASON_HEADER: reason.value,
        DETAIL_HEADER: detail[:_DETAIL_LENGTH],
        QUEUE_HEADER: queue,
        TIME_HEADER: at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }
