"""Writes and reads the headers of a dead letter: the reason, and the user who sent the message.

A broker lets nobody publish under another user's id. So a copy has the id of the user that made it, and the sender's id
in a header. Anyone may write such a header: it counts only in a message from the trusted user, the manager's, whose id
the broker has verified (docs/decisions/0009).
"""

from datetime import UTC, datetime

import msgspec

from slicebus.bus.sizes import SIZE_HEADER, bounded_headers
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason

REASON_HEADER = "slicebus-dead-reason"
DETAIL_HEADER = "slicebus-dead-detail"
QUEUE_HEADER = "slicebus-dead-queue"
TIME_HEADER = "slicebus-dead-time"
USER_HEADER = "slicebus-user-id"
"""The user who first sent the message; empty where the broker verified none."""
SHARD_HEADER = "slicebus-passed-on-by"
"""The shard of the manager that has passed the message on to this one. This counts only from the trusted user, too."""
DETAIL_LENGTH = 2000
_OF_DEAD_LETTERS = ("slicebus-dead-", "x-death", "x-first-death-", "x-last-death-")
"""Prefixes of the headers that dead-lettering adds: ours, and the broker's."""


def dead_copy(
    message: WireMessage, *, queue: str, reason: DeadReason, detail: str, at: datetime, by: str
) -> WireMessage:
    """The copy that the user `by` publishes to the dead-letter queue, without headers that a broker would not take."""
    copy = _copy(message, by=by)
    headers = copy.headers | _death_headers(queue, reason, detail, at)
    if SIZE_HEADER in message.headers:
        headers[SIZE_HEADER] = message.headers[SIZE_HEADER]
    return msgspec.structs.replace(copy, headers=headers)


def passed_on(message: WireMessage, *, by: str, shard: int) -> WireMessage:
    """The unchanged copy that one shard of the manager, whose user is `by`, publishes for another one."""
    copy = _copy(message, by=by)
    return msgspec.structs.replace(copy, headers=copy.headers | {SHARD_HEADER: str(shard)})


def was_passed_on(message: WireMessage, *, trusted: str) -> bool:
    """Whether another shard of the manager has passed a message on."""
    return message.user_id == trusted and SHARD_HEADER in message.headers


def _copy(message: WireMessage, *, by: str) -> WireMessage:
    headers = bounded_headers(without_death(message).headers) | {USER_HEADER: sender(message, trusted=by) or ""}
    return msgspec.structs.replace(message, headers=headers, user_id=by)


def dead_by_broker(message: WireMessage, *, queue: str, detail: str, at: datetime) -> WireMessage:
    """The copy that the broker itself puts into a dead-letter queue. It keeps the publisher's id."""
    headers = without_death(message).headers | _death_headers(queue, DeadReason.UNDELIVERABLE, detail, at)
    return msgspec.structs.replace(message, headers=headers)


def sender(message: WireMessage, *, trusted: str) -> str | None:
    """The verified user who first sent the message; None where there is none."""
    if message.user_id == trusted:
        return message.headers.get(USER_HEADER, trusted) or None
    return message.user_id


def as_sent(message: WireMessage, *, trusted: str) -> WireMessage:
    """The message under its first sender's id."""
    return msgspec.structs.replace(message, user_id=sender(message, trusted=trusted))


def without_death(message: WireMessage) -> WireMessage:
    """The message without the headers of dead-lettering."""
    headers = {name: value for name, value in message.headers.items() if not name.startswith(_OF_DEAD_LETTERS)}
    return msgspec.structs.replace(message, headers=headers)


def _death_headers(queue: str, reason: DeadReason, detail: str, at: datetime) -> dict[str, str]:
    return {
        REASON_HEADER: reason.value,
        DETAIL_HEADER: detail[:DETAIL_LENGTH],
        QUEUE_HEADER: queue,
        TIME_HEADER: at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }
