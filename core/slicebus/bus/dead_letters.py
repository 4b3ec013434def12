"""Dead letters as values: what is told of one, which are asked for, and what publishes a message again. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Self

import msgspec

from slicebus.bus.dead_letter_headers import (
    DETAIL_HEADER,
    QUEUE_HEADER,
    REASON_HEADER,
    TIME_HEADER,
    USER_HEADER,
    sender,
    without_death,
)
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import MESSAGES, Direction
from slicebus.proto.topology import agent_queue, exchange_of, manager_queue, words

SHORT = 12
"""Characters of an id that a person is shown: of a UUIDv7 the end, which is random; its start is the time."""
_SUBJECT = "cloudEvents_subject"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a dead letter, without its body."""

    id: str
    """Its message id; of a message without one, made from its content."""
    at: datetime | None
    """When it was dead-lettered."""
    cluster: str
    type: str
    subject: str
    reason: str
    detail: str
    queue: str
    """Where it lay before."""
    by: str | None
    """The verified user that has dead-lettered it, or published it where the broker has."""

    @classmethod
    def from_message(cls, message: WireMessage) -> Self:
        """Never raises."""
        cluster, type, _ = words(message.routing_key)
        headers = message.headers
        return cls(
            id=message.message_id or hashlib.sha256(message.body).hexdigest()[:32],
            at=_moment(headers.get(TIME_HEADER, "")),
            cluster=cluster,
            type=type,
            subject=headers.get(_SUBJECT, ""),
            reason=headers.get(REASON_HEADER, ""),
            detail=headers.get(DETAIL_HEADER, ""),
            queue=headers.get(QUEUE_HEADER, ""),
            by=message.user_id,
        )

    @property
    def short_id(self) -> str:
        """The end of its id."""
        return self.id[-SHORT:]

    def age(self, now: datetime) -> timedelta | None:
        """For how long it has been dead; None where nobody has said when."""
        return max(now - self.at, timedelta()) if self.at else None


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are asked for; None and an empty tuple ask for nothing special."""

    ids: tuple[str, ...] = ()
    """Whole ids, or their ends."""
    cluster: str | None = None
    type: str | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    limit: int | None = None
    """At most so many, the oldest."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing narrows it down."""
        return self == Wanted()

    def matches(self, letter: DeadLetter, now: datetime) -> bool:
        """Whether a letter is asked for, the limit aside. One of an unknown age is older than anything."""
        age = letter.age(now)
        return (
            (not self.ids or any(letter.id.endswith(wanted) for wanted in self.ids))
            and self.cluster in (None, letter.cluster)
            and self.type in (None, letter.type)
            and self.reason in (None, letter.reason)
            and (self.older_than is None or age is None or age >= self.older_than)
        )


class Choice(msgspec.Struct, frozen=True):
    """What was chosen among dead letters."""

    letters: tuple[DeadLetter, ...]
    missing: tuple[str, ...]
    """Ids asked for that no chosen letter has."""
    ambiguous: tuple[str, ...]
    """Ends of ids that several messages have: nothing was chosen by them."""


def choose(letters: Iterable[DeadLetter], wanted: Wanted, now: datetime) -> Choice:
    """The letters that are asked for, oldest first. Copies of one message are several letters of one id."""
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


class Requeue(msgspec.Struct, frozen=True):
    """A message that goes once more to where it came from."""

    exchange: str
    queue: str
    """The one queue that takes it, beside the journal."""
    message: WireMessage


def requeue(message: WireMessage, *, manager: str, agents: Mapping[str, str]) -> Requeue:
    """What brings a dead letter back, published as the manager's user: the message as it was, with its first sender in
    a header that counts from that user alone.

    It goes through its own exchange under its own key, which reaches the queue it lay in and the journal; a receiver
    refuses a message whose key is the queue's name. `agents` are users that are not named as their cluster. Raises
    InvalidError, which says why, for one that would not reach that queue, or whose sender nobody has verified.
    """
    letter = DeadLetter.from_message(message)
    direction, queue = _destination(message.routing_key)
    if letter.queue != queue:
        raise InvalidError(f"it lay in queue {letter.queue!r}, but a {letter.type} of {letter.cluster} goes to {queue}")
    first = sender(message, trusted=manager)
    if direction is Direction.DOWN:
        first = _sender_of_order(message, letter, manager=manager, agent=agents.get(letter.cluster, letter.cluster))
    elif USER_HEADER in message.headers and letter.by != manager:
        # Put there by another account of the manager's, or by somebody who would like to be one.
        raise InvalidError(f"it was dead-lettered by {letter.by!r}, not by this user {manager!r}, the manager's")
    return _from(first, Requeue(exchange_of(direction), queue, message), manager=manager)


def again(message: WireMessage, *, manager: str) -> Requeue:
    """What publishes a recorded message once more, as the manager's user: under its id, with its first sender, whom
    the broker had verified when it was recorded. Raises InvalidError where nobody would believe it."""
    direction, queue = _destination(message.routing_key)
    first = sender(message, trusted=manager)
    if direction is Direction.DOWN and first and first != manager:
        raise InvalidError(f"an order from {first!r}, not from the manager {manager!r}")
    if direction is Direction.UP and first == manager:
        raise InvalidError(f"the manager's user {manager!r} sent it, who speaks for no cluster")
    return _from(first, Requeue(exchange_of(direction), queue, message), manager=manager)


def _from(first: str | None, back: Requeue, *, manager: str) -> Requeue:
    """The message as the manager's user publishes it for its first sender."""
    if not first:
        raise InvalidError("the broker has verified no sender")
    plain = without_death(back.message)
    headers = {name: value for name, value in plain.headers.items() if name != USER_HEADER}
    if first != manager:
        headers[USER_HEADER] = first
    return msgspec.structs.replace(back, message=msgspec.structs.replace(plain, headers=headers, user_id=manager))


def _destination(key: str) -> tuple[Direction, str]:
    cluster, type, uid = words(key)
    known = MESSAGES.get(type)
    if known is None or (uid and known.direction is Direction.UP):
        raise InvalidError(f"no queue takes the type {key.partition('.')[2]!r}")
    if known.direction is Direction.UP:
        return known.direction, manager_queue(known.lane)
    return known.direction, agent_queue(cluster, known.lane, uid)


def _sender_of_order(message: WireMessage, letter: DeadLetter, *, manager: str, agent: str) -> str:
    """The manager, or InvalidError. An order that comes back is an order of the manager: of what an agent says, only
    what is its own cluster's counts, where it could do the same without us."""
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
    """When the oldest was dead-lettered."""
    return min((letter.at for letter in letters if letter.at), default=None)


def _oldest_first(letter: DeadLetter) -> datetime:
    return letter.at or datetime.min.replace(tzinfo=UTC)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
