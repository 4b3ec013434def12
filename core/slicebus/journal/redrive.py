"""Decides which recorded messages may be published again, and says why others may not. Pure.

A receiver would take an old report of a state for the present state. An order that a newer one overtook would do
nothing at best. After its tombstone has expired it would even start a job again that has ended. So only the newest
message about each job goes out again. A receiver that has it takes it for a duplicate; one that lost it needs it.

Messages that were selected in a file are published only as the broker's own journal has them: there the broker has
verified who sent them. Whoever can edit a file could otherwise give orders, and report for any cluster.
"""

from datetime import datetime
from hashlib import sha256

import msgspec

from slicebus.bus.dead_letters.letters import MessageRequeue, republish
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import MARK
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import Direction, JobRef, Message, ScaleRequest, job_of, version_of


class NotRedriven(msgspec.Struct, frozen=True):
    """Says why a message is not published again."""

    why: str
    of_a_moment: bool = False


class NewestMessages:
    """Knows the newest messages about each job, by the journal of the live broker."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._ids: set[str] = set()
        self._contents: set[bytes] = set()
        self._epochs: dict[str, int] = {}
        self._versions: dict[JobRef, tuple[int, int]] = {}
        self._requests: dict[JobRef, tuple[datetime, int, str, int]] = {}

    def see(self, entry: Entry) -> None:
        """Take the next entry of that journal."""
        published, received = entry.published, entry.received
        if published is not None and self._first is None:
            self._first = published
        self._ids.add(entry.record.message.message_id or "")
        self._contents.add(_content(entry.record.message))
        if received is None or published is None:
            return
        envelope, message = received.envelope, received.message
        if message.direction is Direction.UP:
            self._epochs[envelope.agent] = max(envelope.epoch, self._epochs.get(envelope.agent, 0))
        job, version = job_of(message), version_of(message)
        if isinstance(message, ScaleRequest):
            at = published, entry.offset, message.worker_uid, message.worker_generation
            self._requests[message.job] = max(at, self._requests.get(message.job, at))
        elif job is not None and version is not None:
            newest = version, entry.offset
            self._versions[job] = max(newest, self._versions.get(job, newest))

    def why_not(self, entry: Entry, message: Message) -> str:
        """Why a message may not go out: that journal lacks it, or has a newer one about its job; empty where it may."""
        assert entry.received is not None
        envelope = entry.received.envelope
        if _content(entry.record.message) not in self._contents:
            return self._why_absent(entry)
        epoch = self._epochs.get(envelope.agent, envelope.epoch)
        if message.direction is Direction.UP and envelope.epoch < epoch:
            return f"epoch {envelope.epoch} of {envelope.cluster} has ended, {epoch} speaks now"
        job, version = job_of(message), version_of(message)
        if isinstance(message, ScaleRequest):
            _, offset, *newest = self._requests.get(message.job, (None, -1, *_key(message)))
            return "" if newest == _key(message) else f"overtaken by another request, offset {offset}"
        if job is not None and version is not None:
            newer, offset = self._versions.get(job, (version, -1))
            if version < newer:
                return f"version {version} was overtaken by {newer}, offset {offset}"
        return ""

    def _why_absent(self, entry: Entry) -> str:
        if entry.record.message.message_id in self._ids:
            return "the broker's journal has another message under this id: somebody has changed one of them"
        if self._first is None or entry.published is None or entry.published < self._first:
            return "the broker's journal does not go back so far: what came after it is not known"
        return "the broker's journal has no such message: nobody knows who sent it"


def redrive(entry: Entry, newest: NewestMessages, *, manager: str) -> MessageRequeue | NotRedriven:
    """The message that publishes a recorded one again, as the manager's user, or why it is not published."""
    if entry.received is None:
        return NotRedriven(entry.problem or "it is no message")
    message = entry.received.message
    if message.not_redriven:
        return NotRedriven(message.not_redriven, of_a_moment=True)
    if MARK.encode() in entry.record.message.body:
        return NotRedriven("secrets were taken out of it: redrive it from the stream")
    if why := newest.why_not(entry, message):
        return NotRedriven(why)
    try:
        return republish(entry.record.message, manager=manager)
    except InvalidError as error:
        return NotRedriven(str(error))


def _content(message: WireMessage) -> bytes:
    """A digest of everything that a receiver reads of a message."""
    return sha256(msgspec.json.encode(message, order="sorted")).digest()


def _key(request: ScaleRequest) -> list[str | int]:
    return [request.worker_uid, request.worker_generation]
