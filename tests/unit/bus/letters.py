"""Messages as they are in the dead-letter queue."""

from datetime import UTC, datetime, timedelta

from slicebus.bus.dead_letters.headers import dead_by_broker, dead_copy
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
UP_QUEUE = "slicebus.manager.control"
DOWN_QUEUE = "slicebus.agent.east.uid-1.control"


def wire(
    key: str = "east.scale-request", *, user: str | None = "east", id: str = "id-1", **headers: str
) -> WireMessage:
    """A message as its publisher sent it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    subject = {"cloudEvents_subject": "Job/team/train"}
    return WireMessage(routing_key=key, body=b'{"a":1}', headers=subject | named, message_id=id, user_id=user)


def dead(
    message: WireMessage | None = None,
    *,
    queue: str = UP_QUEUE,
    reason: DeadReason = DeadReason.UNKNOWN_CLUSTER,
    detail: str = "why",
    minutes_ago: float = 0,
    by: str = "manager",
) -> WireMessage:
    """A copy that a receiver made."""
    at = NOON - timedelta(minutes=minutes_ago)
    return dead_copy(message or wire(), queue=queue, reason=reason, detail=detail, at=at, by=by)


def given_up(message: WireMessage, *, queue: str = UP_QUEUE) -> WireMessage:
    """What the broker dead-lettered."""
    return dead_by_broker(message, queue=queue, detail="delivery_limit", at=NOON)


def letter(key: str = "east.scale-request", *, id: str = "id-1", minutes_ago: float = 0, **how: object) -> DeadLetter:
    """The description of one."""
    return DeadLetter.from_message(dead(wire(key, id=id), minutes_ago=minutes_ago, **how))  # type: ignore[arg-type]
