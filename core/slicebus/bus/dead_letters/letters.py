"""Describes and selects dead letters, and makes the message that requeues one. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec

from slicebus.bus.dead_letters.headers import (
    DETAIL_HEADER,
    DETAIL_LENGTH,
    QUEUE_HEADER,
    REASON_HEADER,
    SHARD_HEADER,
    TIME_HEADER,
    USER_HEADER,
    sender,
    without_death,
)
from slicebus.bus.sizes import LEFT_OUT_HEADER, SIZE_HEADER, bounded_headers
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.headers import ADDRESSEE, SUBJECT
from slicebus.proto.messages import MESSAGES, ClusterName, ClusterUid, Direction
from slicebus.proto.topology import agent_queue, exchange_of, manager_queue, of_first_shard, routing_key, words

SHORT = 12
"""The length of an id shown to people: the end of a UUIDv7 is random, its start is the time."""
_TEXT = 400
"""Most characters of a text about a dead letter. A name in Kubernetes has 253, a job's key at most 380."""


def letter_id(message: WireMessage) -> str:
    """The message's id; a hash of the body where it has none."""
    return message.message_id or hashlib.sha256(message.body).hexdigest()[:32]


def head(message: WireMessage) -> WireMessage:
    """The head of a dead letter, which describes it: the message without its body, under the same id."""
    return msgspec.structs.replace(
        message, body=b"", headers=bounded_headers(message.headers), message_id=letter_id(message)
    )


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a dead letter, without its body. Its texts are cut off: there may be very many."""

    id: str
    """Its message id; a hash of the body where it has none."""
    at: datetime | None
    """When it was dead-lettered."""
    cluster: str
    type: str
    subject: str
    reason: str
    detail: str
    queue: str
    """The queue it was in before."""
    by: str | None
    """The verified user that dead-lettered it; where the broker did, the one that published it."""

    @classmethod
    def from_message(cls, message: WireMessage) -> Self:
        """Describe any message. Never raises."""
        cluster, type, _ = words(message.routing_key)
        headers = message.headers
        return cls(
            id=letter_id(message),
            at=_moment(headers.get(TIME_HEADER, "")),
            cluster=ClusterName(cluster[:_TEXT]),
            type=type[:_TEXT],
            subject=headers.get(SUBJECT, "")[:_TEXT],
            reason=headers.get(REASON_HEADER, "")[:_TEXT],
            detail=headers.get(DETAIL_HEADER, "")[:DETAIL_LENGTH],
            queue=headers.get(QUEUE_HEADER, "")[:_TEXT],
            by=message.user_id,
        )

    @property
    def short_id(self) -> str:
        """The end of its id."""
        return self.id[-SHORT:]

    def age(self, now: datetime) -> timedelta | None:
        """The time since it was dead-lettered; None where that is unknown."""
        return max(now - self.at, timedelta()) if self.at else None


class LetterSelection(msgspec.Struct, frozen=True, kw_only=True):
    """A selection of dead letters; None and an empty tuple select all."""

    ids: tuple[str, ...] = ()
    """Whole ids, or their ends."""
    cluster: str | None = None
    type: str | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    limit: int | None = None
    """At most this many, the oldest first."""

    @property
    def is_everything(self) -> bool:
        """Whether it selects every dead letter."""
        return self == LetterSelection()

    def matches(self, letter: DeadLetter, now: datetime) -> bool:
        """Whether it selects a dead letter, the limit aside. One of unknown age counts as the oldest."""
        age = letter.age(now)
        return (
            (not self.ids or any(letter.id.endswith(wanted) for wanted in self.ids))
            and self.cluster in (None, letter.cluster)
            and self.type in (None, letter.type)
            and self.reason in (None, letter.reason)
            and (self.older_than is None or age is None or age >= self.older_than)
        )


class Choice(msgspec.Struct, frozen=True):
    """The selected dead letters."""

    letters: tuple[DeadLetter, ...]
    missing: tuple[str, ...]
    """Ids that no dead letter has."""
    ambiguous: tuple[str, ...]
    """The ends of ids that several messages share: they select nothing."""


def choose(letters: Iterable[DeadLetter], wanted: LetterSelection, now: datetime) -> Choice:
    """Select dead letters, oldest first. Copies of one message are several dead letters with one id."""
    matching = [letter for letter in letters if wanted.matches(letter, now)]
    meant = {text: {letter.id for letter in matching if letter.id.endswith(text)} for text in wanted.ids}
    named = {text: {text} if text in ids else ids for text, ids in meant.items()}
    clear = {next(iter(ids)) for ids in named.values() if len(ids) == 1}
    chosen = [letter for letter in matching if not wanted.ids or letter.id in clear]
    return Choice(
        tuple(sorted(chosen, key=_oldest_first)[: wanted.limit]),
        missing=tuple(text for text, ids in named.items() if not ids),
        ambiguous=tuple(text for text, ids in named.items() if len(ids) > 1),
    )


class MessageRequeue(msgspec.Struct, frozen=True):
    """A message to publish once more, and the queue that it reaches."""

    exchange: str
    queue: str
    """The one queue that gets it, beside the journal."""
    message: WireMessage


def requeue(message: WireMessage, *, manager: str, agents: Mapping[str, str]) -> MessageRequeue:
    """The message that requeues a dead letter, published as the manager's user: the original, with its first sender in
    a header that counts only from that user.

    It goes through its own exchange under its own key. So it reaches its former queue and the journal, or the shard of
    the manager that passes it on to that queue. A receiver refuses a message whose key is the queue's name. `agents`
    has the users whose name differs from their cluster's. Raises InvalidError, with the reason, where the message would
    not reach that queue or has no verified sender.
    """
    letter = DeadLetter.from_message(message)
    _check_complete(message)
    direction, queue = _destination(message.routing_key)
    if of_first_shard(letter.queue) != queue:
        raise InvalidError(f"it lay in queue {letter.queue!r}, but a {letter.type} of {letter.cluster} goes to {queue}")
    first = sender(message, trusted=manager)
    if direction is Direction.DOWN:
        first = _sender_of_order(message, letter, manager=manager, agent=agents.get(letter.cluster, letter.cluster))
    elif USER_HEADER in message.headers and letter.by != manager:
        # Another account of the manager's dead-lettered it, or somebody who pretends to be one.
        raise InvalidError(f"it was dead-lettered by {letter.by!r}, not by this user {manager!r}, the manager's")
    return _published_for(first, direction, queue, message, manager=manager)


def republish(message: WireMessage, *, manager: str) -> MessageRequeue:
    """The message that publishes a recorded one once more, as the manager's user: with its own id, and with the first
    sender, which the broker had verified. Raises InvalidError where a receiver would not trust it."""
    direction, queue = _destination(message.routing_key)
    first = sender(message, trusted=manager)
    if direction is Direction.DOWN and first and first != manager:
        raise InvalidError(f"an order from {first!r}, not from the manager {manager!r}")
    if direction is Direction.UP and first == manager:
        raise InvalidError(f"the manager's user {manager!r} sent it, who speaks for no cluster")
    return _published_for(first, direction, queue, message, manager=manager)


def _published_for(
    first: str | None, direction: Direction, queue: str, message: WireMessage, *, manager: str
) -> MessageRequeue:
    """The message as the manager's user publishes it for its first sender. What an agent has addressed to a shard of
    the manager goes to the first one: there may be no such shard any more."""
    if not first:
        raise InvalidError("the broker has verified no sender")
    plain, dropped = without_death(message), {USER_HEADER, SHARD_HEADER}
    key = plain.routing_key
    if direction is Direction.UP:
        key = routing_key(*words(key)[:2])
        dropped.add(ADDRESSEE)
    headers = {name: value for name, value in plain.headers.items() if name not in dropped}
    if first != manager:
        headers[USER_HEADER] = first
    copy = msgspec.structs.replace(plain, routing_key=key, headers=headers, user_id=manager)
    return MessageRequeue(exchange_of(direction), queue, copy)


def _check_complete(message: WireMessage) -> None:
    """Raises InvalidError for a dead letter that is not the message as it was sent."""
    if SIZE_HEADER in message.headers:
        raise InvalidError(f"its {message.headers[SIZE_HEADER][:20]} bytes are more than the limit, and were not kept")
    if LEFT_OUT_HEADER in message.headers:
        raise InvalidError(f"{message.headers[LEFT_OUT_HEADER][:20]} of its headers were not kept")


def _destination(key: str) -> tuple[Direction, str]:
    cluster, type, addressee = words(key)
    known = MESSAGES.get(type)
    if known is not None and known.direction is Direction.UP and re.fullmatch("[0-9]+", addressee or "0"):
        return known.direction, manager_queue(known.lane)
    if known is not None and known.direction is Direction.DOWN and addressee:
        return known.direction, agent_queue(cluster, known.lane, ClusterUid(addressee))
    raise InvalidError(f"no queue takes the type {key.partition('.')[2]!r}")


def _sender_of_order(message: WireMessage, letter: DeadLetter, *, manager: str, agent: str) -> str:
    """The manager; raises InvalidError for any other sender. An agent may dead-letter orders for its own cluster only:
    it could do the same there without us."""
    if letter.by == manager:
        first = sender(message, trusted=manager)
    elif letter.by == agent:
        first = message.headers.get(USER_HEADER)
    else:
        text = f"it was dead-lettered by {letter.by!r}, and {agent!r} speaks for {letter.cluster}"
        raise InvalidError(f"{text}: --agent-user {letter.cluster}={letter.by} if that is its brokerUser")
    if first != manager:
        raise InvalidError(f"an order from {first or 'nobody'!r}, not from the manager {manager!r}")
    return manager


def oldest(letters: Sequence[DeadLetter]) -> datetime | None:
    """When the oldest letter was dead-lettered; None where no time is known."""
    return min((letter.at for letter in letters if letter.at), default=None)


def _oldest_first(letter: DeadLetter) -> datetime:
    return letter.at or datetime.min.replace(tzinfo=UTC)


def _moment(text: str) -> datetime | None:
    """A time in UTC; None for what is none. An agent's user may have written anything."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
