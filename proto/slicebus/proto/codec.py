"""Messages to wire and back.

The attributes are CloudEvents 1.0 in the binary content mode of its AMQP binding: headers with the prefix
`cloudEvents_`, the body as JSON. Decoding raises ProtocolError and nothing else, whatever the bytes are.
"""

import re
from typing import Any

import msgspec
import orjson

from slicebus.proto.envelope import SCHEMA_VERSION, Envelope, MessageId, WireMessage
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import MESSAGES, ClusterName, Direction, Message
from slicebus.proto.topology import routing_key

_PREFIX = "cloudEvents_"
_TYPE = re.compile(r"dev\.slicebus\.([a-z-]+)\.v(\d+)")
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KNOWN = frozenset(
    {
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "cluster",
        "epoch",
        "sequence",
        "correlationid",
        "causationid",
        "traceparent",
        "schemaversion",
    }
)


class Received(msgspec.Struct, frozen=True):
    """A decoded message. `unknown` are top-level body fields that this version does not know."""

    envelope: Envelope
    message: Message
    unknown: dict[str, Any] = {}


def encode(envelope: Envelope, message: Message, *, unknown: dict[str, Any] | None = None) -> WireMessage:
    """The message as it is published. The same input gives the same bytes."""
    major = envelope.schema_version.partition(".")[0]
    attributes: dict[str, str | None] = {
        "specversion": "1.0",
        "id": envelope.id,
        "source": _source(message.direction, envelope.cluster),
        "type": f"dev.slicebus.{envelope.type}.v{major}",
        "subject": envelope.subject or None,
        "time": envelope.time,
        "datacontenttype": "application/json",
        "cluster": envelope.cluster,
        "epoch": str(envelope.epoch),
        "sequence": str(envelope.sequence),
        "correlationid": envelope.correlation_id,
        "causationid": envelope.causation_id,
        "traceparent": envelope.traceparent,
        "schemaversion": envelope.schema_version,
    }
    known = {name: value for name, value in attributes.items() if value is not None}
    body = msgspec.to_builtins(message) | (unknown or {})
    return WireMessage(
        routing_key=routing_key(envelope.cluster, envelope.type),
        body=orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        headers={f"{_PREFIX}{name}": value for name, value in (known | envelope.extensions).items()},
        message_id=envelope.id,
        correlation_id=envelope.correlation_id,
        user_id=envelope.user_id,
        type=envelope.type,
    )


def decode(wire: WireMessage) -> Received:
    """The message of what lay in a queue. Raises ProtocolError with the reason and what exactly is wrong."""
    attributes = {name.removeprefix(_PREFIX): value for name, value in wire.headers.items() if name.startswith(_PREFIX)}
    message_type = _message_type(attributes)
    envelope = _envelope(attributes, message_type, user_id=wire.user_id)
    body = _body(wire.body)
    known = MESSAGES[message_type]
    try:
        message = msgspec.convert(body, known)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(DeadReason.MALFORMED, f"{message_type}: {error}") from error
    unknown = {name: value for name, value in body.items() if name not in known.__struct_fields__}
    return Received(envelope, message, unknown)


def _source(direction: Direction, cluster: ClusterName) -> str:
    return f"/slicebus/clusters/{cluster}" if direction is Direction.UP else "/slicebus/manager"


def _message_type(attributes: dict[str, str]) -> str:
    text = _required(attributes, "type")
    match = _TYPE.fullmatch(text)
    if match is None:
        raise ProtocolError(DeadReason.UNKNOWN_TYPE, f"no type of slicebus: {text[:200]!r}")
    message_type, major = match.groups()
    version = attributes.get("schemaversion", major)
    if major != SCHEMA_VERSION.partition(".")[0] or version.partition(".")[0] != major:
        detail = f"schema version {version[:50]} of {message_type}, this side knows {SCHEMA_VERSION}"
        raise ProtocolError(DeadReason.UNKNOWN_VERSION, detail)
    if message_type not in MESSAGES:
        raise ProtocolError(
            DeadReason.UNKNOWN_TYPE, f"no message type of schema {SCHEMA_VERSION}: {message_type[:200]}"
        )
    return message_type


def _envelope(attributes: dict[str, str], message_type: str, *, user_id: str | None) -> Envelope:
    cluster = _required(attributes, "cluster")
    if not _CLUSTER.fullmatch(cluster):
        raise ProtocolError(DeadReason.MALFORMED, f"cluster is no DNS label: {cluster[:200]!r}")
    identifier = MessageId(_required(attributes, "id"))
    return Envelope(
        id=identifier,
        type=message_type,
        cluster=ClusterName(cluster),
        subject=attributes.get("subject", ""),
        time=_required(attributes, "time"),
        epoch=_number(attributes, "epoch"),
        sequence=_number(attributes, "sequence"),
        correlation_id=MessageId(attributes.get("correlationid", identifier)),
        causation_id=MessageId(attributes["causationid"]) if "causationid" in attributes else None,
        traceparent=attributes.get("traceparent"),
        user_id=user_id,
        schema_version=attributes.get("schemaversion", SCHEMA_VERSION),
        extensions={name: value for name, value in attributes.items() if name not in _KNOWN},
    )


def _required(attributes: dict[str, str], name: str) -> str:
    value = attributes.get(name)
    if not isinstance(value, str) or not value:
        raise ProtocolError(DeadReason.MALFORMED, f"header {_PREFIX}{name} is missing or empty")
    return value


def _number(attributes: dict[str, str], name: str) -> int:
    text = _required(attributes, name)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ProtocolError(DeadReason.MALFORMED, f"header {_PREFIX}{name} is no count: {text[:50]!r}")
    return int(text)


def _body(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError(DeadReason.MALFORMED, f"the body is a JSON {type(value).__name__}, not an object")
    return value
