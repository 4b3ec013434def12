"""What a leading role records of its decisions, and how that lies in the stream.

A recording is everything that a role decides by, and everything that it decides, in the order in which it happened:
changes of its caches and of its tables, messages, and decisions. Records are put together into batches; a batch is one
message. Feeding the records to the same functions gives the same decisions (`slicebus.decisions.replay`).

Each batch has a number, from 0 on within one epoch of one role. A number that is missing is a gap, and so is a `Gap`
record; what comes after it can be used from the next snapshot on.
"""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw

from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.headers import PREFIX
from slicebus.proto.topology import DECISIONS_TYPE, MANAGER_KEY, decisions_key

FORMAT = "slicebus.decisions/1"
RoleName = Literal["manager", "agent"]
Manifest = dict[str, Any]
_NOTHING = Raw(b"[]")

UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""What writing down may raise: for an object that is nested too deep, or is no JSON after all."""


class Source(msgspec.Struct, frozen=True, order=True):
    """Who recorded: one leader, from the time when it took the lease to the time when it lost it."""

    role: RoleName
    cluster: str
    """The agent's; empty for the manager."""
    epoch: int
    cluster_uid: str = ""
    """Of the agent's: agents of two clusters of one name may have the same epoch."""

    @property
    def routing_key(self) -> str:
        """Where its batches go."""
        return decisions_key(self.cluster or MANAGER_KEY)

    def __str__(self) -> str:
        return f"{self.role}{f' {self.cluster}' if self.cluster else ''}, epoch {self.epoch}"


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag=str.lower, omit_defaults=True):
    """One record; its type is the field `is`."""


class Began(_Record, frozen=True, kw_only=True):
    """The leader has begun: caches and tables are empty."""

    version: str
    """Of slicebus."""


class Put(_Record, frozen=True, kw_only=True):
    """An object came or changed in a cache."""

    of: str
    """The resource: `pods`, `jobs.batch`."""
    object: Manifest
    """Without the parts in `same`."""
    same: tuple[str, ...] = ()
    """Parts of the object, such as `spec`, that are as they were in the version before."""


class Gone(_Record, frozen=True, kw_only=True):
    """An object went out of a cache."""

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
    """The role has taken a message from its queue; decisions refer to it by its number."""

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
    """The body, where it is no text."""
    problem: str = ""
    """Why it could not be read."""

    @classmethod
    def of(cls, wire: WireMessage, *, number: int, at: float, problem: str = "") -> "Received":
        """The record of a message."""
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
    given: Raw
    """Its arguments beside the state, by name."""
    outcome: Raw = _NOTHING
    """What it returned: most decide on commands."""
    failed: Failure | None = None


class Gap(_Record, frozen=True, kw_only=True):
    """Records could not be kept; a snapshot follows."""

    dropped: int


class Snapshot(_Record, frozen=True, kw_only=True):
    """A part of the whole state, as it was when the first part was recorded. Other records may be between the parts."""

    part: int
    last: bool = False
    content: tuple[Put | Noted, ...] = ()


Record = Began | Put | Gone | Noted | Forgot | Received | Decided | Gap | Snapshot


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one source that follow each other."""

    format: Literal["slicebus.decisions/1"]
    source: Source
    number: int
    records: tuple[Record, ...]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Batch)


def encode_record(record: Record) -> bytes:
    """One record of a batch."""
    return _encoder.encode(record)


def encode_snapshot_part(part: int, content: list[bytes], *, last: bool) -> bytes:
    """A `Snapshot` of encoded records."""
    head = _encoder.encode({"is": "snapshot", "part": part, "last": last})
    return b"".join((head[:-1], b',"content":[', b",".join(content), b"]}"))


def encode_batch(source: Source, number: int, records: list[bytes], *, user: str, at: datetime) -> WireMessage:
    """The message of a batch that is published at that time."""
    head = _encoder.encode({"format": FORMAT, "source": source, "number": number})
    body = b"".join((head[:-1], b',"records":[', b",".join(records), b"]}"))
    headers = {f"{PREFIX}time": at.astimezone(UTC).isoformat().replace("+00:00", "Z")}
    return WireMessage(routing_key=source.routing_key, body=body, headers=headers, user_id=user, type=DECISIONS_TYPE)


def with_records(message: WireMessage, batch: Batch, records: tuple[Record, ...]) -> WireMessage:
    """The message of a batch, with other records."""
    return msgspec.structs.replace(message, body=_encoder.encode(msgspec.structs.replace(batch, records=records)))


def decode_batch(message: WireMessage) -> Batch:
    """The batch of a message. Raises InvalidError."""
    try:
        return _decoder.decode(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"no batch of {FORMAT}: {error}") from error
