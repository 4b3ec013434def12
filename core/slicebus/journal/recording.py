"""Defines the records of a leader's inputs and decisions, and their form in the stream.

A recording has every input of a role and every decision, in order: changes of caches and tables, messages, decisions.
One message of the stream is a batch of records. Feeding the records to the same functions gives the same decisions
(`slicebus.decisions.replay`).

Batches are numbered from 0 on within one epoch of one role. A missing number is a gap, and so is a `Gap` record. After
a gap the recording is of use from the next snapshot on.
"""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw

from slicebus.journal.redaction import MARK
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.headers import PREFIX
from slicebus.proto.topology import AGENT_DECISIONS, DECISIONS, DECISIONS_TYPE, MANAGER_KEY, decisions_key

FORMAT = "slicebus.decisions/1"
RoleName = Literal["manager", "agent"]
Manifest = dict[str, Any]
_NOTHING = Raw(b"[]")
_UNREADABLE_BYTES = 16 * 1024

UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""The errors of encoding a record, for an object that is nested too deep or is no JSON."""


class Source(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Names who recorded: one leader during one epoch, from taking the Lease to losing it."""

    role: RoleName
    cluster: str
    """The agent's; empty for the manager."""
    epoch: int
    cluster_uid: str = ""
    """The UID of the agent's cluster: two clusters with one name may have agents in the same epoch."""
    shard: int = 0
    """The manager's: each shard has epochs of its own."""

    @property
    def exchange(self) -> str:
        """The exchange of its batches. No agent can publish to the manager's."""
        return DECISIONS if self.role == "manager" else AGENT_DECISIONS

    @property
    def routing_key(self) -> str:
        """The routing key of its batches."""
        return decisions_key(self.cluster or MANAGER_KEY)

    def __str__(self) -> str:
        which = f" {self.cluster}" if self.cluster else f", shard {self.shard}" if self.shard else ""
        return f"{self.role}{which}, epoch {self.epoch}"


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag=str.lower, omit_defaults=True):
    """One record; its type is the field `is`."""


class Began(_Record, frozen=True, kw_only=True):
    """A leader began, with empty caches and tables."""

    version: str
    """Of slicebus."""


class Put(_Record, frozen=True, kw_only=True):
    """An object was added to a cache, or changed in it."""

    of: str
    """The resource: `pods`, `jobs.batch`."""
    object: Manifest
    """Without the parts in `same`."""
    same: tuple[str, ...] = ()
    """The parts, such as `spec`, that have not changed since the version before."""
    cut: tuple[str, ...] = ()
    """The parts that are not recorded, because whoever reported them has used up its share. The next record of the
    object has them again, or says so again."""


class Gone(_Record, frozen=True, kw_only=True):
    """An object was removed from a cache."""

    of: str
    namespace: str = ""
    name: str


class Noted(_Record, frozen=True, kw_only=True):
    """An entry of a table was set."""

    table: str
    key: Raw
    value: Raw


class Forgot(_Record, frozen=True, kw_only=True):
    """An entry of a table was removed."""

    table: str
    key: Raw


class Received(_Record, frozen=True, kw_only=True):
    """The role consumed a message; decisions refer to it by its number."""

    number: int
    at: float
    """Unix time."""
    routing_key: str
    headers: dict[str, str]
    message_id: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    content_type: str = "application/json"
    type: str | None = None
    text: str = ""
    """The body, where it is text."""
    body: bytes = b""
    """The body, where it is not text."""
    problem: str = ""
    """Why it could not be read."""

    @classmethod
    def from_wire(cls, wire: WireMessage, *, number: int, at: float, problem: str = "") -> "Received":
        """The record of a message. A large one that cannot be read is recorded without its content: whoever sends many
        must not fill the recording too, and the journal has them as messages."""
        if problem and len(wire.body) + sum(map(len, wire.headers.values())) > _UNREADABLE_BYTES:
            wire = msgspec.structs.replace(wire, body=MARK.encode(), headers={})
        try:
            text, body = wire.body.decode(), b""
        except UnicodeDecodeError:
            text, body = "", wire.body
        return cls(
            number=number,
            at=at,
            routing_key=wire.routing_key,
            headers=wire.headers,
            message_id=wire.message_id,
            correlation_id=wire.correlation_id,
            user_id=wire.user_id,
            content_type=wire.content_type,
            type=wire.type,
            text=text,
            body=body,
            problem=problem,
        )

    @property
    def wire(self) -> WireMessage:
        """The message."""
        return WireMessage(
            routing_key=self.routing_key,
            headers=self.headers,
            message_id=self.message_id,
            correlation_id=self.correlation_id,
            user_id=self.user_id,
            content_type=self.content_type,
            type=self.type,
            body=self.text.encode() if self.text else self.body,
        )


class Failure(msgspec.Struct, frozen=True):
    """A decision that raised an error."""

    error: str
    """The class."""
    text: str


class Decided(_Record, frozen=True, kw_only=True):
    """A decision was made, from the state at this point of the recording."""

    what: str
    """The function's name."""
    at: float
    """Unix time."""
    arguments: Raw
    """Its arguments beside the state, by name."""
    outcome: Raw = _NOTHING
    """What it returned: mostly commands, in the form of `recorded_commands`."""
    failed: Failure | None = None


class Gap(_Record, frozen=True, kw_only=True):
    """Records were dropped; a snapshot follows."""

    dropped: int


class SnapshotPart(_Record, frozen=True, kw_only=True, tag="snapshot"):
    """A part of the whole state at the time of the first part. Other records may lie between the parts."""

    part: int
    last: bool = False
    content: tuple[Put | Noted, ...] = ()


Record = Began | Put | Gone | Noted | Forgot | Received | Decided | Gap | SnapshotPart


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive records of one source."""

    format: Literal["slicebus.decisions/1"]
    source: Source
    number: int
    records: tuple[Record, ...]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Batch)


def encode_record(record: Record) -> bytes:
    """Encode one record of a batch."""
    return _encoder.encode(record)


def encode_snapshot_part(part: int, content: list[bytes], *, last: bool) -> bytes:
    """Encode a `SnapshotPart` of encoded records."""
    head = _encoder.encode({"is": "snapshot", "part": part, "last": last})
    return b"".join((head[:-1], b',"content":[', b",".join(content), b"]}"))


def encode_batch(source: Source, number: int, records: list[bytes], *, user: str, at: datetime) -> WireMessage:
    """Encode the message of a batch, with its time of publishing."""
    head = _encoder.encode({"format": FORMAT, "source": source, "number": number})
    body = b"".join((head[:-1], b',"records":[', b",".join(records), b"]}"))
    headers = {f"{PREFIX}time": at.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    return WireMessage(routing_key=source.routing_key, body=body, headers=headers, user_id=user, type=DECISIONS_TYPE)


def with_records(message: WireMessage, batch: Batch, records: tuple[Record, ...]) -> WireMessage:
    """Encode the message of a batch again, with other records."""
    return msgspec.structs.replace(message, body=_encoder.encode(msgspec.structs.replace(batch, records=records)))


def decode_batch(message: WireMessage) -> Batch:
    """Decode the batch of a message. Raises InvalidError."""
    try:
        str(message.body, "utf-8")  # Nobody looks into what stays undecoded.
        return _decoder.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"no batch of {FORMAT}: {error}") from error
