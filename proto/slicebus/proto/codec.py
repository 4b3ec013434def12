"""Encodes and decodes messages.

The attributes are CloudEvents 1.0 in the binary content mode of its AMQP binding: headers with the prefix
`cloudEvents_`, the body as JSON. Decoding raises ProtocolError and nothing else, whatever the bytes are.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
import orjson
from msgspec import UNSET

from slicebus.proto.envelope import SCHEMA_VERSION, Envelope, MessageId, WireMessage
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.headers import ATTRIBUTES, PREFIX, TYPE_PATTERN, Headers, VersionHeaders
from slicebus.proto.messages import MESSAGES, ClusterName, ClusterUid, Direction, Message, Order, Report, job_of
from slicebus.proto.topology import routing_key

MAX_DEPTH = 100
"""The most levels of a body. Kubernetes objects have about twenty; orjson writes 254, and a part that is passed on may
get some more levels around it."""

_TYPE = re.compile(TYPE_PATTERN)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""CloudEvents 1.0, 3.1: what a string must not hold."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
M_co = TypeVar("M_co", bound=Order | Report, covariant=True)


class Decoded(msgspec.Struct, Generic[M_co], frozen=True):
    """A decoded message. `unknown` are top-level body fields that this version does not know."""

    envelope: Envelope
    message: M_co
    unknown: dict[str, Any] = {}


def encode(envelope: Envelope, message: Message, *, unknown: dict[str, Any] | None = None) -> WireMessage:
    """The message to publish. The same input gives the same bytes."""
    extensions = {f"{PREFIX}{name}": value for name, value in envelope.extensions.items()}
    body = msgspec.to_builtins(message) | (unknown or {})
    return WireMessage(
        routing_key=_key(envelope, message.direction),
        body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        headers=extensions | msgspec.to_builtins(_headers(envelope, message.direction)),
        message_id=envelope.id,
        correlation_id=envelope.correlation_id,
        user_id=envelope.user_id,
        type=envelope.type,
    )


def decode(wire: WireMessage) -> Decoded[Order | Report]:
    """The message of a delivery. Raises ProtocolError with the reason and the detail."""
    attributes = _attributes(wire.headers)
    message_type = _message_type(_converted(attributes, VersionHeaders, "headers"))
    envelope = _envelope(attributes, message_type, user_id=wire.user_id)
    body = _body(wire.body)
    known = MESSAGES[message_type]
    message = _converted(body, known, message_type)
    _check_consistent(envelope, message, wire.routing_key)
    unknown = {name: value for name, value in body.items() if name not in known.__struct_fields__}
    return Decoded(envelope, message, unknown)


def decode_order(wire: WireMessage) -> Decoded[Order]:
    """The order that an agent got. Raises ProtocolError, also for a report."""
    decoded = decode(wire)
    if not isinstance(decoded.message, Order):
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{decoded.message.type} is not for an agent")
    return Decoded(decoded.envelope, decoded.message, decoded.unknown)


def decode_report(wire: WireMessage) -> Decoded[Report]:
    """The report that a manager got. Raises ProtocolError, also for an order."""
    decoded = decode(wire)
    if not isinstance(decoded.message, Report):
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"{decoded.message.type} is not for a manager")
    return Decoded(decoded.envelope, decoded.message, decoded.unknown)


def _headers(envelope: Envelope, direction: Direction) -> Headers:
    major = envelope.schema_version.partition(".")[0]
    up = direction is Direction.UP
    return Headers(
        specversion="1.0",
        id=envelope.id,
        source=f"/slicebus/clusters/{envelope.cluster}" if up else "/slicebus/manager",
        type=f"dev.slicebus.{envelope.type}.v{major}",
        subject=envelope.subject or UNSET,
        time=envelope.time,
        cluster=envelope.cluster,
        clusteruid=envelope.cluster_uid,
        shard=str(envelope.shard) if envelope.shard else UNSET,
        epoch=str(envelope.epoch),
        sequence=str(envelope.sequence),
        correlationid=envelope.correlation_id,
        causationid=envelope.causation_id or UNSET,
        traceparent=envelope.traceparent or UNSET,
        schemaversion=envelope.schema_version,
    )


def _key(envelope: Envelope, direction: Direction) -> str:
    """The routing key. It names the addressee where that has queues of its own: the cluster's UID, or the shard."""
    addressee = envelope.cluster_uid if direction is Direction.DOWN else envelope.shard
    return routing_key(envelope.cluster, envelope.type, addressee)


def _attributes(headers: Mapping[str, object]) -> dict[str, str]:
    """The headers that are CloudEvents attributes. An AMQP table may hold any type; an attribute is a string."""
    attributes = {}
    for name, value in headers.items():
        if not name.startswith(PREFIX):
            continue
        if not isinstance(value, str):
            raise ProtocolError(DeadReason.MALFORMED, f"header {name[:200]} is a {type(value).__name__}, not a string")
        if _UNPRINTABLE.search(value):
            raise ProtocolError(DeadReason.MALFORMED, f"header {name[:200]} has control characters: {value[:200]!a}")
        attributes[name] = value
    return attributes


def _message_type(headers: VersionHeaders) -> str:
    match = _TYPE.fullmatch(headers.type)
    if match is None:
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"no type of slicebus: {headers.type[:200]!r}")
    message_type, major = match.groups()
    version = headers.schemaversion
    if {major, version.partition(".")[0]} != {SCHEMA_VERSION.partition(".")[0]}:
        detail = f"schema version {version} of {headers.type[:200]}, this side knows {SCHEMA_VERSION}"
        raise ProtocolError(DeadReason.UNKNOWN_VERSION, detail)
    if message_type not in MESSAGES:
        detail = f"no message type of schema {SCHEMA_VERSION}: {message_type[:200]}"
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, detail)
    return message_type


def _envelope(attributes: dict[str, str], message_type: str, *, user_id: str | None) -> Envelope:
    headers = _converted(attributes, Headers, "headers")
    try:
        datetime.fromisoformat(headers.time)
    except ValueError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"header {PREFIX}time is no time: {headers.time!r}") from error
    return Envelope(
        id=MessageId(headers.id),
        type=message_type,
        cluster=ClusterName(headers.cluster),
        cluster_uid=ClusterUid(headers.clusteruid),
        subject=headers.subject or "",
        time=headers.time,
        shard=int(headers.shard or 0),
        epoch=int(headers.epoch),
        sequence=int(headers.sequence),
        correlation_id=MessageId(headers.correlationid or headers.id),
        causation_id=MessageId(headers.causationid) if headers.causationid else None,
        traceparent=headers.traceparent or None,
        user_id=user_id,
        schema_version=headers.schemaversion,
        extensions={name.removeprefix(PREFIX): value for name, value in attributes.items() if name not in ATTRIBUTES},
    )


def _body(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError(DeadReason.MALFORMED, f"the body is a JSON {type(value).__name__}, not an object")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _is_too_deep(value):
        raise ProtocolError(DeadReason.MALFORMED, f"the body is nested deeper than {MAX_DEPTH} levels")
    return value


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _check_consistent(envelope: Envelope, message: Message, key: str) -> None:
    """Check that routing key and envelope agree: queues route by the one, receivers act on the other."""
    expected = _key(envelope, message.direction)
    if key != expected:
        raise ProtocolError(DeadReason.MALFORMED, f"routing key {key[:300]!r}, but the envelope says {expected!r}")
    job = job_of(message)
    if job is not None and envelope.subject != job.key:
        detail = f"header {PREFIX}subject is {envelope.subject[:300]!r}, but the job is {job.key!r}"
        raise ProtocolError(DeadReason.MALFORMED, detail)


def _converted(value: Mapping[str, Any], into: type[_Struct], part: str) -> _Struct:
    try:
        return msgspec.convert(value, into)
    except msgspec.ValidationError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"{part}: {error}") from error
