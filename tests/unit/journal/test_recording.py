"""Records of decisions: what is written is what is read."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from slicebus.journal.recording import (
    Batch,
    Began,
    Decided,
    Failure,
    Forgot,
    Gap,
    Gone,
    Noted,
    Put,
    Received,
    Record,
    SnapshotPart,
    Source,
    decode_batch,
    encode_batch,
    encode_record,
    encode_snapshot_part,
)
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import InvalidError
from unit.journal.records import BEGAN

Manifest = dict[str, Any]
EAST = Source("agent", "east", 3)
RECORDS: dict[str, Record] = {
    "began": Began(version="0.1.0"),
    "put": Put(of="jobs.batch", object={"metadata": {"name": "a"}}, same=("spec",)),
    "gone": Gone(of="pods", namespace="team", name="a"),
    "noted": Noted(table="published", key=Raw(b'"a"'), value=Raw(b"1")),
    "forgot": Forgot(table="published", key=Raw(b'"a"')),
    "received": Received.from_wire(
        WireMessage(routing_key="east.status", body=b'{"a":1}', headers={}), number=1, at=0.5
    ),
    "decided": Decided(what="reconcile_job", at=1.5, arguments=Raw(b'{"job":1}'), outcome=Raw(b"[1]")),
    "decided on nothing": Decided(what="reconcile_job", at=1.5, arguments=Raw(b"{}")),
    "failed": Decided(
        what="reconcile_job", at=1.5, arguments=Raw(b"{}"), failed=Failure("ConflictError", "it is there")
    ),
    "gap": Gap(dropped=7),
    "snapshot": SnapshotPart(part=1, last=True, content=(Put(of="pods", object={"metadata": {}}),)),
}


def plain(value: Any) -> Any:
    """Comparable: a Raw is not."""
    return msgspec.json.decode(msgspec.json.encode(value))


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_a_record_comes_back(record: Record) -> None:
    message = encode_batch(EAST, 5, [encode_record(record)], user="east", at=BEGAN)
    batch = decode_batch(message)
    assert (batch.source, batch.number) == (EAST, 5)
    assert plain(batch.records) == [plain(record)]
    assert isinstance(batch.records[0], type(record))


def test_a_batch_has_its_routing_key_and_user() -> None:
    assert encode_batch(EAST, 0, [], user="u", at=BEGAN).routing_key == "east.decisions"
    message = encode_batch(Source("manager", "", 1), 0, [], user="u", at=BEGAN)
    assert (message.routing_key, message.user_id, message.type) == ("manager.decisions", "u", "decisions")
    assert decode_batch(message) == Batch(
        format="slicebus.decisions/1", source=Source("manager", "", 1), number=0, records=()
    )


def test_a_part_of_a_snapshot_is_a_record() -> None:
    content = [RECORDS["put"], RECORDS["noted"]]
    part = encode_snapshot_part(2, list(map(encode_record, content)), last=False)
    [read] = decode_batch(encode_batch(EAST, 0, [part], user="east", at=BEGAN)).records
    assert isinstance(read, SnapshotPart)
    assert (read.part, read.last, plain(read.content)) == (2, False, plain(content))


def test_a_batch_with_a_damaged_byte_is_invalid() -> None:
    """In what is read only when somebody shows it, too."""
    made = Decided(what="reconcile", at=1.0, arguments=Raw(b'{"name":"a"}'))
    message = encode_batch(EAST, 0, [encode_record(made)], user="east", at=BEGAN)
    damaged = msgspec.structs.replace(message, body=message.body.replace(b'"name":"a"', b'"name":"\xc8"'))
    with pytest.raises(InvalidError, match=r"no batch of .*utf-8"):
        decode_batch(damaged)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b"{" * 5000, b'{"format":"slicebus.decisions/2"}'])
def test_what_is_no_batch_is_invalid(body: bytes) -> None:
    with pytest.raises(InvalidError, match="no batch of"):
        decode_batch(WireMessage(routing_key="east.decisions", body=body, headers={}))


@given(body=st.binary(), headers=st.dictionaries(st.text(), st.text()), user=st.none() | st.text())
def test_any_message_comes_back(body: bytes, headers: dict[str, str], user: str | None) -> None:
    wire = WireMessage(routing_key="k", body=body, headers=headers, user_id=user, message_id="m", type="status")
    received = Received.from_wire(wire, number=1, at=0.0)
    assert msgspec.json.decode(encode_record(received), type=Received).wire == wire
