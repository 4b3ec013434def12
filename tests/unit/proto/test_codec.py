"""Every refusal has its reason and says what is wrong; nothing but ProtocolError comes out of decode."""

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from slicebus.proto.codec import MAX_DEPTH, Decoded, decode, encode
from slicebus.proto.envelope import SCHEMA_VERSION, Envelope, WireMessage
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.headers import PREFIX
from slicebus.proto.messages import MESSAGES, Message
from unit.proto.golden import GOLDEN, Golden, schema
from unit.proto.strategies import TEXT, VALUES, sent

MALFORMED, UNKNOWN_TYPE, UNKNOWN_VERSION = DeadReason.MALFORMED, DeadReason.UNKNOWN_TYPE, DeadReason.UNKNOWN_VERSION

REQUEST = Golden.named("scale-request").to_wire()
"""A scale-request of cluster east, which decodes."""
HELLO = Golden.named("hello").to_wire()
GOLDEN_MESSAGES = [Golden.read(path).to_wire() for path in GOLDEN]

"""The time that an example takes is the machine's, not the codec's."""


def with_header(name: str, value: object) -> WireMessage:
    return msgspec.structs.replace(REQUEST, headers=REQUEST.headers | {f"{PREFIX}{name}": value})


def without_header(name: str) -> WireMessage:
    kept = {key: value for key, value in REQUEST.headers.items() if key != f"{PREFIX}{name}"}
    return msgspec.structs.replace(REQUEST, headers=kept)


def with_body(body: bytes) -> WireMessage:
    return msgspec.structs.replace(REQUEST, body=body)


def with_field(path: str, value: object) -> WireMessage:
    """The request with one field of its body changed; `a.b` is b in a."""
    body = orjson.loads(REQUEST.body)
    *parents, last = path.split(".")
    inner = body
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    return with_body(orjson.dumps(body))


def refusal(wire: WireMessage) -> tuple[DeadReason, str]:
    with pytest.raises(ProtocolError) as caught:
        decode(wire)
    assert str(caught.value) == caught.value.detail
    return caught.value.reason, caught.value.detail


def outcome(wire: WireMessage) -> Decoded | ProtocolError:
    try:
        return decode(wire)
    except ProtocolError as error:
        return error


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        pytest.param(b"", "the body is not JSON", id="empty"),
        pytest.param(b"\x00\xff", "the body is not JSON", id="binary"),
        pytest.param(b'{"job":', "the body is not JSON", id="cut off"),
        pytest.param(b'{"job": NaN}', "the body is not JSON", id="NaN"),
        pytest.param(b'{"job": "\xe4"}', "the body is not JSON", id="not UTF-8"),
        pytest.param(b'{"job": "\\ud800"}', "the body is not JSON", id="half a surrogate pair"),
        pytest.param(b"[" * 5000, "the body is not JSON", id="nested without end"),
        pytest.param(b"[]", "the body is a JSON list, not an object", id="list"),
        pytest.param(b"null", "the body is a JSON NoneType, not an object", id="null"),
        pytest.param(b'"x"', "the body is a JSON str, not an object", id="string"),
        pytest.param(b"{}", "scale-request: Object missing required field `job`", id="no fields"),
    ],
)
def test_an_invalid_body(body: bytes, detail: str) -> None:
    reason, text = refusal(with_body(body))
    assert reason is MALFORMED
    assert text.startswith(detail)


@pytest.mark.parametrize(
    ("path", "value", "detail"),
    [
        pytest.param("job", "train", "Expected `object`, got `str` - at `$.job`", id="job is text"),
        pytest.param("job", None, "Expected `object`, got `null` - at `$.job`", id="job is null"),
        pytest.param("job.name", 7, "Expected `str`, got `int` - at `$.job.name`", id="name is a number"),
        pytest.param("job.name", "../secrets/x", "- at `$.job.name`", id="name is a path"),
        pytest.param("job.namespace", "", "- at `$.job.namespace`", id="no namespace"),
        pytest.param("job.kind", "Ray/Cluster", "- at `$.job.kind`", id="kind with a slash"),
        pytest.param("wanted", {"head": "1"}, "Expected `int`, got `str` - at `$.wanted[...]`", id="count is text"),
        pytest.param("wanted", {"head": 1.5}, "Expected `int`, got `float` - at `$.wanted[...]`", id="half a pod"),
        pytest.param("wanted", {"head": True}, "Expected `int`, got `bool` - at `$.wanted[...]`", id="count is a bool"),
        pytest.param("wanted", {"head": -1}, "Expected `int` >= 0 - at `$.wanted[...]`", id="negative count"),
        pytest.param("granted", [1], "Expected `object`, got `array` - at `$.granted`", id="counts are a list"),
        pytest.param("worker_generation", -1, "Expected `int` >= 0", id="negative generation"),
        pytest.param("wanted", {"": 1}, "- at `key` in `$.wanted`", id="a pod set without a name"),
        pytest.param("wanted", {"A b": 1}, "- at `key` in `$.wanted`", id="a pod set of another name"),
        pytest.param("wanted", {"head": 2**31}, "Expected `int` <= 2147483647", id="more pods than fit"),
        pytest.param("job.name", "train\n", "- at `$.job.name`", id="a line break after the name"),
        pytest.param("worker_generation", 2**53, "Expected `int` <= 9007199254740991", id="generation of 54 bits"),
        pytest.param("worker_generation", 2.0**70, "Expected `int`, got `float`", id="generation of 70 bits"),
    ],
)
def test_a_field_of_the_wrong_type(path: str, value: object, detail: str) -> None:
    reason, text = refusal(with_field(path, value))
    assert reason is MALFORMED
    assert text.startswith("scale-request: ")
    assert detail in text


def test_an_unknown_phase() -> None:
    status = Golden.named("status").to_wire()
    changed = msgspec.structs.replace(status, body=status.body.replace(b'"Running"', b'"Dancing"'))
    assert refusal(changed) == (MALFORMED, "status: Invalid enum value 'Dancing' - at `$.phase`")


def nested(levels: int) -> dict[str, Any]:
    deep: dict[str, Any] = {}
    for _ in range(levels - 1):
        deep = {"a": deep}
    return deep


def test_a_body_may_have_so_many_levels() -> None:
    received = decode(with_field("new", nested(MAX_DEPTH - 1)))
    assert encode(received.envelope, received.message, unknown=received.unknown)


@pytest.mark.parametrize("levels", [MAX_DEPTH, 2 * MAX_DEPTH, 900])
def test_a_body_that_is_nested_too_deep(levels: int) -> None:
    """It could be read, but not written again: the process that passed it on would end, and so the next one."""
    body = REQUEST.body[:-1] + b',"new":' + b'{"a":' * (levels - 1) + b"{}" + b"}" * levels
    assert refusal(with_body(body)) == (MALFORMED, f"the body is nested deeper than {MAX_DEPTH} levels")


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert decode(with_field("new", [[{}]] * 1000)).unknown == {"new": [[{}]] * 1000}


@pytest.mark.parametrize(
    "name", ["type", "schemaversion", "specversion", "id", "source", "time", "cluster", "epoch", "sequence"]
)
def test_a_header_that_is_missing(name: str) -> None:
    detail = f"headers: Object missing required field `{PREFIX}{name}`"
    assert refusal(without_header(name)) == (MALFORMED, detail)


def test_no_headers_at_all() -> None:
    reason, detail = refusal(msgspec.structs.replace(REQUEST, headers={}))
    assert (reason, detail) == (MALFORMED, f"headers: Object missing required field `{PREFIX}type`")


@pytest.mark.parametrize("name", ["datacontenttype", "correlationid", "causationid", "traceparent"])
def test_a_header_that_may_be_missing(name: str) -> None:
    assert decode(without_header(name)).message == decode(REQUEST).message


def test_a_message_without_correlation_begins_a_chain() -> None:
    envelope = decode(without_header("correlationid")).envelope
    assert envelope.correlation_id == envelope.id


@pytest.mark.parametrize("name", ["type", "schemaversion", "id", "cluster", "epoch", "subject", "traceparent", "new"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (4, "int"),
        (True, "bool"),
        (0.5, "float"),
        (decimal.Decimal("0.5"), "Decimal"),
        (None, "NoneType"),
        (b"east", "bytes"),
        (bytearray(b"east"), "bytearray"),
        (datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC), "datetime"),
        ({"nested": {"table": 1}}, "dict"),
        (["east"], "list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_header_that_is_not_a_string(name: str, value: object, kind: str) -> None:
    assert refusal(with_header(name, value)) == (MALFORMED, f"header {PREFIX}{name} is a {kind}, not a string")


def test_headers_of_the_broker_may_be_of_any_type() -> None:
    table = {"x-delivery-count": 3, "x-death": [{"count": 1, "time": datetime.datetime.now(datetime.UTC)}], "x": None}
    assert decode(msgspec.structs.replace(REQUEST, headers=REQUEST.headers | table)) == decode(REQUEST)


@pytest.mark.parametrize("value", ["east\n", "ea\x00st", "\x7f", "\x9f", "\ud800"], ids=ascii)
@pytest.mark.parametrize("name", ["cluster", "subject", "epoch", "new"])
def test_a_header_with_control_characters(name: str, value: str) -> None:
    assert refusal(with_header(name, value)) == (
        MALFORMED,
        f"header {PREFIX}{name} has control characters: {value!a}",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("specversion", "0.3", id="another CloudEvents"),
        pytest.param("datacontenttype", "application/cbor", id="another content type"),
        pytest.param("source", "", id="empty source"),
        pytest.param("id", "", id="empty id"),
        pytest.param("id", "17", id="id that is no UUID"),
        pytest.param("id", "9b2b6a4c-31f5-4f0c-9d3e-0c6a8a4f7f10", id="UUIDv4"),
        pytest.param("id", REQUEST.headers[f"{PREFIX}id"].upper(), id="UUID in upper case"),
        pytest.param("id", "{" + REQUEST.headers[f"{PREFIX}id"] + "}", id="UUID in braces"),
        pytest.param("causationid", "none", id="causation that is no UUID"),
        pytest.param("correlationid", "", id="empty correlation"),
        pytest.param("correlationid", "c" * 256, id="correlation longer than AMQP allows"),
        pytest.param("cluster", "", id="empty cluster"),
        pytest.param("cluster", "East", id="cluster in upper case"),
        pytest.param("cluster", "east.control", id="cluster with a dot"),
        pytest.param("cluster", "east-", id="cluster that ends with a dash"),
        pytest.param("cluster", "*", id="cluster that is a wildcard"),
        pytest.param("cluster", "e" * 64, id="cluster of 64 characters"),
        pytest.param("epoch", "-1", id="negative epoch"),
        pytest.param("epoch", "+1", id="epoch with a sign"),
        pytest.param("epoch", "1.0", id="epoch with a fraction"),
        pytest.param("epoch", "04", id="epoch with a leading zero"),
        pytest.param("epoch", "1_0", id="epoch as Python writes it"),
        pytest.param("epoch", "٤", id="epoch in other digits"),
        pytest.param("epoch", "9" * 16, id="epoch of 16 digits"),
        pytest.param("sequence", "-1", id="negative sequence"),
        pytest.param("sequence", "", id="empty sequence"),
        pytest.param("sequence", str(2**53), id="sequence past every record"),
        pytest.param("sequence", "9" * 5000, id="sequence without end"),
        pytest.param("time", "yesterday", id="time in words"),
        pytest.param("time", "2026-03-02T09:00:00+01:00", id="time that is not UTC"),
        pytest.param("time", "2026-02-30T09:00:00Z", id="time that never was"),
        pytest.param("schemaversion", "1", id="version without a minor"),
        pytest.param("schemaversion", "1.x", id="minor that is no number"),
    ],
)
def test_a_header_of_the_wrong_form(name: str, value: str) -> None:
    reason, detail = refusal(with_header(name, value))
    assert reason is MALFORMED
    assert f"{PREFIX}{name}" in detail


@pytest.mark.parametrize(
    ("headers", "reason", "detail"),
    [
        pytest.param(
            {"type": "dev.slicebus.scale-request.v2", "schemaversion": "2.0"},
            UNKNOWN_VERSION,
            f"schema version 2.0 of dev.slicebus.scale-request.v2, this side knows {SCHEMA_VERSION}",
            id="next major",
        ),
        pytest.param(
            {"type": "dev.slicebus.dance.v2", "schemaversion": "2.4"},
            UNKNOWN_VERSION,
            f"schema version 2.4 of dev.slicebus.dance.v2, this side knows {SCHEMA_VERSION}",
            id="next major of a type that it adds",
        ),
        pytest.param(
            {"type": "dev.slicebus.scale-request.v0", "schemaversion": "0.9"},
            UNKNOWN_VERSION,
            f"schema version 0.9 of dev.slicebus.scale-request.v0, this side knows {SCHEMA_VERSION}",
            id="major before",
        ),
        pytest.param(
            {"schemaversion": "2.0"},
            UNKNOWN_VERSION,
            f"schema version 2.0 of dev.slicebus.scale-request.v1, this side knows {SCHEMA_VERSION}",
            id="two majors",
        ),
        pytest.param(
            {"type": "dev.slicebus.dance.v1"},
            UNKNOWN_TYPE,
            f"no message type of schema {SCHEMA_VERSION}: dance",
            id="unknown type",
        ),
        pytest.param(
            {"type": "com.example.order"}, UNKNOWN_TYPE, "no type of slicebus: 'com.example.order'", id="else"
        ),
        pytest.param({"type": ""}, UNKNOWN_TYPE, "no type of slicebus: ''", id="empty type"),
        pytest.param(
            {"type": "dev.slicebus.hello.v٣"}, UNKNOWN_TYPE, "no type of slicebus: 'dev.slicebus.hello.v٣'", id="digits"
        ),
    ],
)
def test_a_type_or_version_that_this_side_does_not_know(
    headers: Mapping[str, str], reason: DeadReason, detail: str
) -> None:
    changed = REQUEST.headers | {f"{PREFIX}{name}": value for name, value in headers.items()}
    assert refusal(msgspec.structs.replace(REQUEST, headers=changed)) == (reason, detail)


@pytest.mark.parametrize("minor", ["1.1", "1.9999"])
def test_another_minor_version_is_understood(minor: str) -> None:
    assert decode(with_header("schemaversion", minor)).message == decode(REQUEST).message


def test_an_order_of_one_cluster_has_its_uid_in_the_key() -> None:
    order = Golden.named("resync").to_wire()
    assert decode(order).envelope.cluster_uid == "9f6d2c1e-5b0a-4c57-8a7e-0d1f2b3c4d5e"
    for key in ("east.resync", "east.resync.another"):
        assert refusal(msgspec.structs.replace(order, routing_key=key))[0] is DeadReason.MALFORMED
    plain = {name: value for name, value in order.headers.items() if name != f"{PREFIX}clusteruid"}
    assert refusal(msgspec.structs.replace(order, headers=plain))[0] is DeadReason.MALFORMED


@pytest.mark.parametrize(
    "key", ["", "west.scale-request", "east.status", "east.scale-request.more", "scale-request", "#"]
)
def test_a_routing_key_that_contradicts_the_envelope(key: str) -> None:
    assert refusal(msgspec.structs.replace(REQUEST, routing_key=key)) == (
        MALFORMED,
        f"routing key {key!r}, but the envelope says 'east.scale-request'",
    )


def test_a_cluster_that_the_routing_key_does_not_name() -> None:
    assert refusal(with_header("cluster", "west")) == (
        MALFORMED,
        "routing key 'east.scale-request', but the envelope says 'west.scale-request'",
    )


@pytest.mark.parametrize("wire", [with_header("subject", "Job/team-a/sweep"), without_header("subject")])
def test_a_subject_that_is_another_job(wire: WireMessage) -> None:
    reason, detail = refusal(wire)
    assert reason is MALFORMED
    assert detail.endswith("but the job is 'RayCluster/team-a/train'")


def test_a_detail_stays_short_for_any_input() -> None:
    for wire in (
        with_header("type", "x" * 10**6),
        with_header("type", f"dev.slicebus.{'x' * 10**6}.v1"),
        with_header("type", f"dev.slicebus.{'x' * 10**6}.v2"),
        with_header("subject", "x" * 10**6),
        with_header("new", "\n" * 10**6),
        msgspec.structs.replace(REQUEST, routing_key="x" * 10**6),
    ):
        assert len(refusal(wire)[1]) < 1000


# --- whatever comes -------------------------------------------------------------------------------------------------

JUNK = (
    TEXT
    | st.integers()
    | st.none()
    | st.binary(max_size=8)
    | st.floats()
    | st.datetimes()
    | st.dictionaries(TEXT, st.integers(), max_size=2)
)
HEADER_NAMES = st.sampled_from([*REQUEST.headers, f"{PREFIX}causationid", f"{PREFIX}new", PREFIX]) | TEXT
BODIES = st.binary(max_size=200) | VALUES.map(orjson.dumps)


@given(headers=st.dictionaries(HEADER_NAMES, JUNK), body=BODIES, key=TEXT, user=st.none() | TEXT)
def test_any_other_input_is_refused(headers: dict[str, Any], body: bytes, key: str, user: str | None) -> None:
    with pytest.raises(ProtocolError):
        decode(WireMessage(routing_key=key, headers=headers, body=body, user_id=user))


VALIDATORS = {name: Draft202012Validator(schema(name)) for name in [*MESSAGES, "envelope"]}


@given(wire=st.sampled_from(GOLDEN_MESSAGES), headers=st.dictionaries(HEADER_NAMES, JUNK, max_size=2), data=st.data())
def test_a_changed_message_is_refused_or_is_valid_by_the_schemas(
    wire: WireMessage, headers: dict[str, Any], data: st.DataObject
) -> None:
    body = orjson.loads(wire.body)
    name = data.draw(st.sampled_from([*body, "new"]) if body else TEXT)
    changed = orjson.dumps(body | {name: data.draw(VALUES)})
    received = outcome(msgspec.structs.replace(wire, headers=wire.headers | headers, body=changed))
    if isinstance(received, ProtocolError):
        assert received.reason in (MALFORMED, UNKNOWN_TYPE, UNKNOWN_VERSION)
        assert received.detail
        return
    attributes = {key: value for key, value in (wire.headers | headers).items() if key.startswith(PREFIX)}
    VALIDATORS["envelope"].validate(attributes)
    VALIDATORS[received.envelope.type].validate(orjson.loads(changed))
    assert decode(encode(received.envelope, received.message, unknown=received.unknown)) == received


@given(wire=st.sampled_from(GOLDEN_MESSAGES), at=st.integers(0, 5000), byte=st.integers(0, 255))
def test_a_body_with_another_byte_is_refused_or_decodes(wire: WireMessage, at: int, byte: int) -> None:
    body = bytearray(wire.body)
    body[at % len(body)] = byte
    received = outcome(msgspec.structs.replace(wire, body=bytes(body)))
    assert isinstance(received, Decoded) or received.reason is MALFORMED


@given(sent=sent(), unknown=st.dictionaries(TEXT.map("new-{}".format), VALUES, max_size=2))
def test_a_message_comes_back_as_it_was_sent(sent: tuple[Envelope, Message], unknown: dict[str, Any]) -> None:
    envelope, message = sent
    wire = encode(envelope, message, unknown=unknown)
    received = decode(wire)
    assert received.envelope == envelope
    assert received.message == message
    assert received.unknown == unknown
    assert encode(received.envelope, received.message, unknown=received.unknown) == wire
    VALIDATORS["envelope"].validate(wire.headers)
    VALIDATORS[message.type].validate(orjson.loads(wire.body))
