"""Writes and reads the journal as a file: JSON Lines, one record a line, lossless except for secrets.

An export without secrets also leaves out every body that is no JSON: nobody can search that for secrets. Every line is
safe to show: a character that a terminal would act on is escaped.
"""

import base64
from datetime import datetime
from typing import Any, Literal

import msgspec
import orjson
from msgspec import Raw

from slicebus.bus.contract import Record
from slicebus.journal.printable import printable_json
from slicebus.journal.redaction import MARK, redacted, redacted_headers
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.topology import DECISIONS_TYPE

FORMAT = "slicebus.journal/1"


def to_line(record: Record, *, redact: bool = True) -> bytes:
    """Write a record as one line of an export, without the newline."""
    message = record.message
    line: dict[str, Any] = {
        "format": FORMAT,
        "offset": record.offset,
        "recorded": record.timestamp.isoformat() if record.timestamp else None,
        "routing_key": message.routing_key,
        "headers": redacted_headers(message.headers) if redact else message.headers,
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "user_id": message.user_id,
        "content_type": message.content_type,
        "type": message.type,
        "persistent": message.persistent,
    }
    return printable_json(orjson.dumps(line | _body(message, redact=redact)))


class _Line(msgspec.Struct):
    """A line with its body still undecoded."""

    format: Literal["slicebus.journal/1"]
    offset: int
    recorded: datetime | None
    routing_key: str
    headers: dict[str, str]
    message_id: str | None
    correlation_id: str | None
    user_id: str | None
    content_type: str
    type: str | None
    persistent: bool
    body: Raw = Raw()
    body_base64: str | None = None


_lines = msgspec.json.Decoder(_Line)


def from_line(line: bytes) -> Record:
    """Read the record of a line. Raises InvalidError for anything else."""
    try:
        read = _lines.decode(line)
        body = _body_of(read)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidError(f"not a line of {FORMAT}: {error}") from error
    properties = {name: getattr(read, name) for name in WireMessage.__struct_fields__ if name != "body"}
    return Record(read.offset, WireMessage(**properties, body=body), read.recorded)


def _body_of(line: _Line) -> bytes:
    if line.body_base64 is not None:
        return base64.b64decode(line.body_base64, validate=True)
    if body := bytes(line.body):
        return body
    raise ValueError("it has no body")


def _body(message: WireMessage, *, redact: bool) -> dict[str, Any]:
    """The body as JSON where that is lossless, else as base64.

    Redacting encodes the JSON anew, so white space may differ. A body that cannot be searched for secrets is left out
    whole: one that is no JSON, a single text, or nested too deep.
    """
    verbatim = {"body_base64": base64.b64encode(message.body).decode()}
    try:
        value = orjson.loads(message.body)
        if redact and isinstance(value, str):
            return {"body": MARK}
        if redact:
            value = redacted(_with_readable_messages(value) if message.type == DECISIONS_TYPE else value)
        written = orjson.dumps(value)
    except orjson.JSONDecodeError:
        return {"body": MARK} if redact and message.body else verbatim
    except orjson.JSONEncodeError:
        return {"body": MARK} if redact else verbatim
    is_as_sent = written == message.body and printable_json(written) is written
    return {"body": orjson.Fragment(written)} if redact or is_as_sent else verbatim


def _with_readable_messages(batch: Any) -> Any:
    """A batch of decisions without the bodies of received messages that are no JSON."""
    if not (isinstance(batch, dict) and isinstance(batch.get("records"), list)):
        return batch
    return batch | {"records": [_with_readable_body(record) for record in batch["records"]]}


def _with_readable_body(record: Any) -> Any:
    if not (isinstance(record, dict) and record.get("is") == "received"):
        return record
    try:
        text = isinstance(orjson.loads(record.get("text") or "null"), str)
    except orjson.JSONDecodeError:
        text = True
    if not text and "body" not in record:
        return record
    return {name: value for name, value in record.items() if name != "body"} | {"text": MARK}
