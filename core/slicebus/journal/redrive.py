"""Which recorded messages may be published again, and why others may not. Pure.

A receiver would take an old report of a state for the state now. An order that a newer one overtook would do nothing at
best; after its tombstone has expired it would even start a job again that has ended. So only the newest message about
each job goes out again. A receiver that has it takes it for a duplicate; one that lost it needs it.
"""

from datetime import datetime

import msgspec

from slicebus.bus.dead_letters import Requeue, again
from slicebus.journal.entry import Entry
from slicebus.journal.redaction import MARK
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import Direction, JobRef, Message, ScaleRequest, job_of, version_of


class Left(msgspec.Struct, frozen=True):
    """A message that is not published again, and why."""

    why: str
    of_a_moment: bool = False


class Since:
    """The newest messages about each job, by the journal of the live broker."""

    def __init__(self) -> None:
        self._first: datetime | None = None
        self._seen: set[str] = set()
        self._epochs: dict[str, int] = {}
        self._versions: dict[JobRef, tuple[int, int]] = {}
        self._requests: dict[JobRef, tuple[datetime, int, str, int]] = {}

    def see(self, entry: Entry) -> None:
        """Take the next entry of that journal."""
        published, received = entry.published, entry.received
        if published is not None and self._first is None:
            self._first = published
        if received is None or published is None:
            return
        envelope, message = received.envelope, received.message
        self._seen.add(envelope.id)
        if message.direction is Direction.UP:
            self._epochs[envelope.speaker] = max(envelope.epoch, self._epochs.get(envelope.speaker, 0))
        job, version = job_of(message), version_of(message)
        if isinstance(message, ScaleRequest):
            at = published, entry.offset, message.worker_uid, message.worker_generation
            self._requests[message.job] = max(at, self._requests.get(message.job, at))
        elif job is not None and version is not None:
            found = version, entry.offset
            self._versions[job] = max(found, self._versions.get(job, found))

    def why_not(self, entry: Entry, message: Message) -> str:
        """Why a message is not the newest about its job; empty where it is."""
        assert entry.received is not None
        envelope = entry.received.envelope
        if not self._covers(entry):
            return "the broker's journal does not go back so far: what came after it is not known"
        epoch = self._epochs.get(envelope.speaker, envelope.epoch)
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

    def _covers(self, entry: Entry) -> bool:
        if entry.record.message.message_id in self._seen:
            return True
        return self._first is not None and entry.published is not None and entry.published >= self._first


def redrive(entry: Entry, since: Since, *, manager: str) -> Requeue | Left:
    """How to publish a recorded message again, as the manager's user; or why not."""
    if entry.received is None:
        return Left(entry.problem or "it is no message")
    message = entry.received.message
    if message.not_redriven:
        return Left(message.not_redriven, of_a_moment=True)
    if MARK.encode() in entry.record.message.body:
        return Left("secrets were taken out of it: redrive it from the stream")
    if why := since.why_not(entry, message):
        return Left(why)
    try:
        return again(entry.record.message, manager=manager)
    except InvalidError as error:
        return Left(str(error))


def _key(request: ScaleRequest) -> list[str | int]:
    return [request.worker_uid, request.worker_generation]
