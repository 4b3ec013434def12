"""Lines of an export: the same record comes back, without its secrets."""

import base64
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.bus.contract import Record
from slicebus.journal.export import FORMAT, from_line, to_line
from slicebus.journal.recording import Received, Source, decode_batch, encode_batch, encode_record
from slicebus.journal.redaction import MARK
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import Resync
from unit.journal.records import BEGAN, garbage, record

BODIES: dict[str, bytes] = {
    "as we write it": b'{"reason":"x","n":1.5}',
    "with spaces": b'{ "reason": "x" }',
    "keys twice": b'{"a":1,"a":2}',
    "a number that JSON here cannot hold": b'{"n":123456789012345678901234567890}',
    "a long fraction": b"0.10000000000000000555",
    "escapes": b'"\\u0041\\n"',
    "a list": b"[1,2]",
    "null": b"null",
    "empty": b"",
    "no JSON": b"\x00\xff{",
    "nested as deep as it is read": b"[" * 1000 + b"]" * 1000,
    "nested beyond": b"[" * 100_000 + b"]" * 100_000,
    "objects nested deep": b'{"a":' * 900 + b"1" + b"}" * 900,
    "text that looks like JSON": orjson.dumps({"text": '{ "a" : 1 }', "more": "{", "deep": "[" * 1000 + "]" * 1000}),
}


DEEP = ("nested as deep as it is read", "objects nested deep")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_comes_back_byte_by_byte(body: bytes) -> None:
    before = garbage(body)
    line = to_line(before, redact=False)
    assert b"\n" not in line
    assert from_line(line) == before


@pytest.mark.parametrize("name", BODIES)
def test_a_body_without_secrets_says_the_same_after_looking_for_them(name: str) -> None:
    body = BODIES[name]
    after = from_line(to_line(garbage(body))).message.body
    if not body:
        assert after == b""
        return
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = ""
    if isinstance(value, dict) and "deep" in value:
        value["deep"] = MARK
    expected = MARK if name in DEEP or isinstance(value, str) else value
    assert orjson.loads(after) == expected


@pytest.mark.parametrize("redact", [True, False], ids=["redacted", "verbatim"])
def test_every_property_comes_back(redact: bool) -> None:
    before = record(Resync(reason="x"), offset=9, at_s=0.123456, chain="c", persistent=False, content_type="text/x")
    after = from_line(to_line(before, redact=redact))
    assert after == before
    assert after.timestamp == before.timestamp


@given(
    body=st.binary(),
    headers=st.dictionaries(st.text(), st.text()),
    texts=st.lists(st.one_of(st.none(), st.text()), min_size=4, max_size=4),
    offset=st.integers(0, 2**60),
)
def test_any_record_comes_back(body: bytes, headers: dict[str, str], texts: list[str | None], offset: int) -> None:
    message = WireMessage(
        routing_key="k",
        body=body,
        headers=headers,
        message_id=texts[0],
        correlation_id=texts[1],
        user_id=texts[2],
        type=texts[3],
    )
    before = Record(offset=offset, message=message, timestamp=None)
    assert from_line(to_line(before, redact=False)) == before


SECRETS: dict[str, tuple[Any, Any]] = {
    "an environment variable": (
        {"env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "HOME", "value": "/root"}]},
        {"env": [{"name": "DB_PASSWORD", "value": MARK}, {"name": "HOME", "value": MARK}]},
    ),
    "an annotation": ({"annotations": {"x/api-key": "hunter2"}}, {"annotations": {"x/api-key": MARK}}),
}


@pytest.mark.parametrize(("before", "after"), SECRETS.values(), ids=SECRETS.keys())
def test_secrets_stay_behind_unless_asked_for(before: Any, after: Any) -> None:
    held = garbage(orjson.dumps(before))
    assert orjson.loads(from_line(to_line(held)).message.body) == after
    assert b"hunter2" not in to_line(held)
    assert orjson.loads(from_line(to_line(held, redact=False)).message.body) == before


def test_a_secret_in_an_oddly_written_body_stays_behind_too() -> None:
    line = to_line(garbage(b'{ "token" : "hunter2" }'))
    assert orjson.loads(from_line(line).message.body) == {"token": MARK}


def good(**changes: Any) -> bytes:
    line = orjson.loads(to_line(record(Resync()))) | changes
    return orjson.dumps({name: value for name, value in line.items() if value is not msgspec.UNSET})


LINES: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"hello",
    "no object": b"[]",
    "a number": b"1",
    "null": b"null",
    "an object of something else": b"{}",
    "another format": good(format="slicebus.journal/2"),
    "no body": good(body=msgspec.UNSET),
    "no headers": good(headers=msgspec.UNSET),
    "headers that are none": good(headers=["a"]),
    "a number for a header": good(headers={"a": 1}),
    "no time": good(recorded="yesterday"),
    "a number for a time": good(recorded=5),
    "no base64": good(body_base64="!"),
    "a number for base64": good(body_base64=5),
    "no offset": good(offset=msgspec.UNSET),
    "text for an offset": good(offset="5"),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_what_is_no_line_is_invalid(line: bytes) -> None:
    with pytest.raises(InvalidError, match=FORMAT):
        from_line(line)


@given(line=st.binary())
def test_reading_raises_nothing_else(line: bytes) -> None:
    with pytest.raises(InvalidError):
        from_line(line)


def test_a_body_that_cannot_be_searched_is_left_out() -> None:
    for body in (b"\xffpassword=hunter2", b'"password=hunter2"'):
        assert orjson.loads(to_line(garbage(body)))["body"] == MARK
    assert b"hunter2" in from_line(to_line(garbage(b"\xffpassword=hunter2"), redact=False)).message.body


def test_a_header_has_no_secrets_either() -> None:
    headers = {"cloudEvents_time": "x", "api-token": "hunter2", "cloudEvents_at": "amqp://a:hunter2@b/"}
    line = to_line(garbage(headers=headers))
    assert b"hunter2" not in line
    assert from_line(line).message.headers["cloudEvents_time"] == "x"


@pytest.mark.parametrize(
    "body", [b"\xffpassword=hunter2", b"password=hunter2", b'{"password":"hunter2"', b'"password=hunter2"']
)
def test_recorded_decisions_have_no_body_that_cannot_be_searched(body: bytes) -> None:
    taken = Received.from_wire(garbage(body).message, number=1, at=0.0, problem="malformed: the body is not JSON")
    fine = Received.from_wire(garbage(b'{"reason":"x"}').message, number=2, at=0.0)
    records = [encode_record(each) for each in (taken, fine)]
    message = encode_batch(Source("manager", "", 1), 0, records, user="manager", at=BEGAN)
    line = to_line(Record(offset=1, message=message, timestamp=None))
    assert b"hunter2" not in base64.b64decode(orjson.loads(line).get("body_base64", ""))
    assert b"hunter2" not in line
    read, same = decode_batch(from_line(line).message).records
    assert isinstance(read, Received)
    assert (read.text, read.body, read.problem) == (MARK, b"", taken.problem)
    assert same == fine


def test_headers_lose_their_secrets_unless_they_are_asked_for() -> None:
    before = garbage(b"{}")
    headers = {"x-api-token": "hunter2", "note": "--password=hunter2"}
    before = msgspec.structs.replace(before, message=msgspec.structs.replace(before.message, headers=headers))
    assert b"hunter2" not in to_line(before)
    assert from_line(to_line(before, redact=False)) == before
