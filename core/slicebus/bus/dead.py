"""How a message that lies in the dead-letter queue says why."""

import msgspec

from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason

REASON_HEADER = "slicebus-dead-reason"
DETAIL_HEADER = "slicebus-dead-detail"
QUEUE_HEADER = "slicebus-dead-queue"
USER_HEADER = "slicebus-user-id"
"""The publisher's verified user. A broker refuses the property itself from anyone else."""
_DETAIL_LENGTH = 2000


def dead_copy(message: WireMessage, *, queue: str, reason: DeadReason, detail: str) -> WireMessage:
    """The message as it lies in the dead-letter queue."""
    headers = message.headers | {REASON_HEADER: reason, DETAIL_HEADER: detail[:_DETAIL_LENGTH], QUEUE_HEADER: queue}
    if message.user_id:
        headers[USER_HEADER] = message.user_id
    return msgspec.structs.replace(message, headers=headers, user_id=None)
