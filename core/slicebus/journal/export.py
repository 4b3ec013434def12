"""The journal as a file: JSON Lines, one record a line, lossless except for secrets.

With secrets taken out, what cannot be looked into is left out too: a body that is no JSON.
"""

import base64
from datetime import datetime
from typing import Any

import msgspec
import orjson

from slicebus.bus.contract import Record
from slicebus.journal.redaction import MARK, redacted
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.topology import DECISIONS_TYPE

FORMAT = "slicebus.journal/1"


def to_line(record: Record, *, redact: bool = True) -> bytes:
    """One line of an export, without the newline."""
    message = record.message
    line: dict[str, Any] = {
        "format": FORMAT,
        "offset": record.offset,
        "recorded": record.timestamp.isoformat() if record.timestamp else None,
        "routing_key": message.routing_key,
        "headers": redacted(message.headers) if redact else message.headers,
        "message_id": message.message_id,
        "correlation_id": message.correlation_id,
        "user_id": message.user_id,
        "content_type": message.content_type,
        "type": message.type,
        "persistent": message.persistent,
    }
    return orjson.dumps(line | _body(message, redact=redact))


def from_line(line: bytes) -> Record:
    """The record of a line. Raises InvalidError for a line that is none."""
    try:
        read = orjson.loads(line)
        if read["format"] != FORMAT:
            raise InvalidError(f"not a line of {FORMAT}: {read['format']}")
        message = {name: read[name] for name in WireMessage.__struct_fields__ if name != "body"}
        body = (
            base64.b64decode(read["body_base64"], validate=True)
            if "body_base64" in read
            else orjson.dumps(read["body"])
        )
        recorded = datetime.fromisoformat(read["recorded"]) if read["recorded"] else None
        offset = msgspec.convert(read["offset"], int)
        return Record(offset, msgspec.convert(message | {"body": body}, WireMessage), recorded)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise InvalidError(f"not a line of {FORMAT}: {error}") from error


def _body(message: WireMessage, *, redact: bool) -> dict[str, Any]:
    """The body as JSON where that tells it all, else as base64.

    With secrets taken out it is written anew, so that other spaces may come back. What nobody can look into for
    secrets, as it is no JSON, only text, or nested too deep, is left out as a whole.
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
    except (orjson.JSONEncodeError, RecursionError):
        return {"body": MARK} if redact else verbatim
    return {"body": orjson.Fragment(written)} if redact or written == message.body else verbatim


def _with_readable_messages(batch: Any) -> Any:
    """A batch of decisions without the bodies that are no JSON of the messages that a role took."""
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
