"""Whatever is read from outside, by whom it may have been written: nothing but the error that says so is raised.

The codec of the messages has its own tests (unit/proto/test_codec.py).
"""

from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.agent.act.tombstones import read_tombstone
from slicebus.agent.state import annotations
from slicebus.bus.contract import Record
from slicebus.bus.dead_letters.letters import DeadLetter, republish, requeue
from slicebus.bus.rabbitmq.messages import from_incoming
from slicebus.cli.journal.entry_lines import line
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import Replayer
from slicebus.journal.entry import Entry, matching
from slicebus.journal.export import from_line, to_line
from slicebus.journal.recording import decode_batch
from slicebus.journal.redrive import NewestMessages, NotRedriven, redrive
from slicebus.journal.steps import Steps
from slicebus.journal.summary import summary
from slicebus.journal.traces import sizes, traces
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.outbox import Dispatch, applied_version
from slicebus.proto.codec import decode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError, ProtocolError
from slicebus.proto.topology import DECISIONS_TYPE
from slicebus.slices.api import kueue
from slicebus.slices.api.annotation_values import read_json, read_number
from unit.journal.records import record
from unit.proto.golden import GOLDEN, Golden
from unit.proto.strategies import VALUES

TEXT = st.text(max_size=40)
DEEP = "[" * 5000 + "]" * 5000
TEXTS = (
    TEXT | VALUES.map(lambda value: orjson.dumps(value).decode()) | st.sampled_from(["", "{", DEEP, "9" * 5000, "٣"])
)
HEADERS = st.dictionaries(
    TEXT | st.sampled_from(["cloudEvents_time", "cloudEvents_subject", "x-death"]), TEXTS, max_size=4
)
MESSAGES = [Golden.read(path).to_wire() for path in GOLDEN]


@st.composite
def wires(draw: st.DrawFn) -> WireMessage:
    """A message that anybody could have published."""
    if draw(st.booleans()):
        good = draw(st.sampled_from(MESSAGES))
        return msgspec.structs.replace(good, headers=good.headers | draw(HEADERS))
    body = draw(st.binary(max_size=60) | TEXTS.map(str.encode))
    type = draw(st.sampled_from([None, "", DECISIONS_TYPE, "status"]))
    key, user = draw(TEXT | st.just("east.status")), draw(st.none() | TEXT)
    return WireMessage(routing_key=key, body=body, headers=draw(HEADERS), type=type, user_id=user)


# --- the journal ----------------------------------------------------------------------------------------------------

RESOURCES = st.sampled_from(["pods", "workloads.kueue.x-k8s.io", "jobs.batch", "workerclusters.slicebus.dev"])
METADATA = st.dictionaries(
    st.sampled_from(["name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences"]),
    VALUES | st.sampled_from(["7", "a", [{"kind": "Job", "name": "a", "uid": "u", "controller": True}]]),
)
MANIFESTS = st.fixed_dictionaries({}, optional={"metadata": METADATA | VALUES, "spec": VALUES, "status": VALUES})
PUTS = st.fixed_dictionaries(
    {"is": st.just("put"), "of": RESOURCES, "object": MANIFESTS},
    optional={"same": st.lists(st.sampled_from(["spec", "status"]), max_size=2)},
)
TABLES = st.sampled_from(["published", "newest", "reported", "tombstones", "owed", "other"])
GIVEN = st.dictionaries(st.sampled_from(["job", "now", "key", "incoming", "decision", "cluster"]), VALUES)
COMMANDS = st.fixed_dictionaries(
    {"do": st.sampled_from(["create", "patch", "remove"])},
    optional={"of": RESOURCES, "manifest": MANIFESTS, "target": TEXT, "body": VALUES | MANIFESTS},
)
RECORDS = st.one_of(
    PUTS,
    st.fixed_dictionaries({"is": st.just("gone"), "of": RESOURCES, "name": TEXT}),
    st.fixed_dictionaries({"is": st.just("noted"), "table": TABLES, "key": VALUES, "value": VALUES}),
    st.fixed_dictionaries({"is": st.just("forgot"), "table": TABLES, "key": VALUES}),
    st.fixed_dictionaries(
        {
            "is": st.just("decided"),
            "what": st.sampled_from(["reconcile_job", "receive", "cycle", "request", "gone"]),
            "at": st.floats(),
            "given": GIVEN | VALUES,
            "outcome": VALUES | st.lists(COMMANDS, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {
            "is": st.just("received"),
            "number": st.integers(0, 3),
            "at": st.floats(),
            "routing_key": TEXT,
            "headers": st.dictionaries(TEXT, TEXT, max_size=2),
        },
        optional={"text": TEXTS, "problem": TEXT},
    ),
    st.fixed_dictionaries(
        {"is": st.just("snapshot"), "part": st.integers(0, 1), "content": st.lists(PUTS, max_size=2)}
    ),
    st.dictionaries(TEXT | st.just("is"), VALUES, max_size=3),
)


@st.composite
def batches(draw: st.DrawFn) -> Record:
    """A batch in the right form, with records that are right in part."""
    source = {"role": draw(st.sampled_from(["manager", "agent"])), "cluster": "", "epoch": 1}
    batch = {
        "format": "slicebus.decisions/1",
        "source": source,
        "number": 0,
        "records": draw(st.lists(RECORDS, max_size=3)),
    }
    message = WireMessage(routing_key="manager.decisions", body=orjson.dumps(batch), headers={}, type=DECISIONS_TYPE)
    return Record(offset=1, message=message, timestamp=None)


@given(body=st.binary() | TEXTS.map(str.encode))
def test_any_body_is_a_batch_or_invalid(body: bytes) -> None:
    wire = WireMessage(routing_key="east.decisions", body=body, headers={}, type=DECISIONS_TYPE)
    with pytest.raises(InvalidError):
        decode_batch(wire)


@given(found=batches())
def test_a_batch_that_is_right_in_part_is_replayed_or_invalid(found: Record) -> None:
    begun = orjson.loads(found.message.body)
    begun["records"].insert(0, {"is": "snapshot", "part": 0, "last": True})
    for body in (found.message.body, orjson.dumps(begun)):
        batch = msgspec.structs.replace(found, message=msgspec.structs.replace(found.message, body=body))
        with suppress(InvalidError):
            list(Replayer(MODELS).feed(batch))
        list(Steps().feed(Entry.from_record(batch)))


@given(line=st.binary() | TEXTS.map(str.encode) | st.builds(lambda d: orjson.dumps(d), VALUES))
def test_any_line_is_invalid(line: bytes) -> None:
    with pytest.raises(InvalidError):
        from_line(line)


@given(data=st.data(), value=VALUES | st.just(DEEP))
def test_a_line_with_another_value_is_a_record_or_invalid(data: st.DataObject, value: Any) -> None:
    good = orjson.loads(to_line(record(decode(MESSAGES[0]).message)))
    name = data.draw(st.sampled_from([*good, "body_base64"]))
    try:
        read = from_line(orjson.dumps(good | {name: value}))
    except InvalidError:
        return
    assert isinstance(read.message, WireMessage)


@given(wire=wires(), offset=st.integers(0, 2**60))
def test_whatever_is_recorded_can_be_told(wire: WireMessage, offset: int) -> None:
    entry = Entry.from_record(Record(offset=offset, message=wire, timestamp=None))
    assert isinstance(summary(entry), str)
    assert line(entry).plain
    matching(cluster="a", job="b", until=datetime.now(UTC))(entry)
    assert all(trace.hops for trace in traces([entry]))
    assert isinstance(sizes([entry]), dict)
    since = NewestMessages()
    since.see(entry)
    assert isinstance(redrive(entry, since, manager="manager"), NotRedriven) or entry.received
    from_line(to_line(entry.record))


# --- AMQP -----------------------------------------------------------------------------------------------------------

AMQP = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=8) | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(["queue", "reason", "time"]), inner)
    ),
    max_leaves=8,
)


@given(
    headers=st.dictionaries(
        TEXT | st.sampled_from(["x-death", "cloudEvents_id", "cloudEvents_time"]), AMQP, max_size=4
    ),
    body=st.binary(max_size=20),
    text=st.none() | TEXT,
)
def test_any_delivery_is_a_message(headers: dict[str, Any], body: bytes, text: str | None) -> None:
    names = ("routing_key", "message_id", "correlation_id", "user_id", "content_type", "type")
    incoming: Any = SimpleNamespace(headers=headers, body=body, delivery_mode=2, **dict.fromkeys(names, text))
    message = from_incoming(incoming)
    assert all(isinstance(value, str) for value in message.headers.values())
    with pytest.raises(ProtocolError):
        decode(message)


@given(wire=wires())
def test_any_dead_letter_is_told_and_goes_back_or_is_invalid(wire: WireMessage) -> None:
    assert DeadLetter.from_message(wire).short_id is not None
    for attempt in (lambda: requeue(wire, manager="manager", agents={}), lambda: republish(wire, manager="manager")):
        with suppress(InvalidError):
            assert attempt().message.user_id == "manager"


# --- what is written on objects -------------------------------------------------------------------------------------


def annotated(text: str) -> dict[str, Any]:
    names = [value for name, value in vars(kueue).items() if name.endswith("_ANNOTATION")]
    return {"metadata": {"name": "a", "annotations": dict.fromkeys([*names, kueue.PREBUILT_NAME], text)}}


@given(text=TEXTS)
def test_any_mark_on_a_workers_object_is_read(text: str) -> None:
    for manifest in (annotated(text), {"metadata": {"annotations": None, "labels": None}}, {"metadata": {}}):
        assert annotations.spec_version(manifest) >= 0
        assert isinstance(annotations.granted(manifest), dict)
        annotations.baseline(manifest)
        annotations.PendingRequests.from_job(manifest)
        assert isinstance(annotations.slice_of(manifest), str)
        assert not annotations.is_ours(manifest)


@given(text=TEXTS)
def test_any_mark_on_a_managers_object_is_read(text: str) -> None:
    manifest = annotated(text)
    assert applied_version(manifest) >= 0
    SizeRequest.from_manifest(manifest)
    Dispatch.from_manifest(manifest)


@given(text=TEXTS)
def test_any_tombstone_is_read_or_passed_over(text: str) -> None:
    assert read_tombstone(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("0", 0), ("007", 7), (str(2**53 - 1), 2**53 - 1), (str(2**53), 0), ("9" * 19, 0), ("9" * 5000, 0)]
    + [(text, 0) for text in ("", None, "-1", "1.0", "1e3", " 1", "٣", "x")],
)
def test_numbers(text: str | None, number: int) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 5000 + "1" + "}" * 5000, "\ud800", "", None])
def test_json_that_is_none(text: str | None) -> None:
    assert read_json(text, msgspec.json.Decoder(dict[str, int])) is None
