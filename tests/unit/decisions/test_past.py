"""The state of a leader at a moment of the past."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.decisions.past import Past
from slicebus.journal.recording import (
    Began,
    Decided,
    Gap,
    Gone,
    Put,
    Record,
    SnapshotPart,
    Source,
    encode_batch,
    encode_record,
)
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import decisions_key
from unit.decisions.roles import SOURCE, Store, a_pod, model
from unit.journal.records import BEGAN

SECOND = Source("manager", "", 2)
BEGINS = Began(version="1")
GAP = Gap(dropped=3)


def put(name: str, version: int = 1) -> Put:
    return Put(of="pods", object=a_pod(name, version))


def gone(name: str) -> Gone:
    return Gone(of="pods", namespace="team", name=name)


def decided(at_s: float) -> Decided:
    return Decided(what="names", at=BEGAN.timestamp() + at_s, arguments=Raw(b"{}"))


def part(number: int, *names: str, last: bool = False) -> SnapshotPart:
    return SnapshotPart(part=number, last=last, content=tuple(map(put, names)))


def batch(number: int, published_s: float, *records: Record, source: Source = SOURCE, key: str = "") -> StreamRecord:
    message = encode_batch(
        source, number, list(map(encode_record, records)), user="manager", at=BEGAN + timedelta(seconds=published_s)
    )
    return StreamRecord(number, msgspec.structs.replace(message, routing_key=key or message.routing_key), None)


def at(moment_s: float, *records: StreamRecord) -> Past:
    """The past that was read, to where it said that it needs no more."""
    past = Past(BEGAN + timedelta(seconds=moment_s), "manager", model())
    for record in records:
        if past.is_complete:
            break
        past.feed(record)
    return past


def pods(past: Past) -> str:
    """The names of the pods that were there; `?` where nobody knows."""
    if past.state is None:
        return "?"
    assert isinstance(past.state.state, Store)
    return " ".join(sorted(pod["metadata"]["name"] for pod in past.state.state.pods.all()))


WHOLE = batch(0, 0.0, BEGINS, part(0, "x", last=True), decided(0.0))
ORDINARY = (WHOLE, batch(1, 10.2, put("a"), decided(10.0), put("b"), decided(10.1), put("c"), gone("x")))
LATE = (
    WHOLE,
    batch(1, 100.0, put("a"), decided(10.0), put("b")),
    batch(2, 100.1, put("c"), decided(20.0), put("d"), decided(30.0)),
)
PARTS = (
    batch(0, 1.0, BEGINS, part(0, "x"), decided(1.0)),
    batch(1, 2.0, put("a"), decided(2.0), part(1, "y")),
    batch(2, 4.0, put("b"), decided(4.0), part(2, "z", last=True)),
)
LEADERS = (
    WHOLE,
    batch(1, 10.0, put("a"), decided(10.0)),
    batch(0, 20.1, BEGINS, part(0, "x", "b", last=True), decided(20.0), source=SECOND),
    batch(1, 30.0, put("c"), decided(30.0), source=SECOND),
)
HOLE = (WHOLE, batch(2, 10.0, put("b"), decided(10.0)), batch(3, 20.0, part(0, "y", last=True), decided(20.0)))
NEW_HOLE = (*LEADERS[:3], batch(2, 30.0, put("c"), decided(30.0), source=SECOND))
DROPPED = (WHOLE, batch(1, 11.2, GAP, decided(10.0), part(0, "y", last=True), decided(11.0)))


@pytest.mark.parametrize(
    ("records", "moment_s", "expected"),
    [
        pytest.param(ORDINARY, -1.0, "?", id="before the beginning"),
        pytest.param(ORDINARY, 5.0, "x", id="between batches"),
        pytest.param(ORDINARY, 10.0, "a x", id="a change before a decision is as old as that"),
        pytest.param(ORDINARY, 10.05, "a x", id="between decisions"),
        pytest.param(ORDINARY, 10.15, "a b x", id="what only its batch dates is not older than that"),
        pytest.param(ORDINARY, 10.2, "a b c", id="a batch that was published by then"),
        pytest.param(ORDINARY, 99.0, "a b c", id="after the last record"),
        pytest.param(LATE, 5.0, "x", id="the broker was away"),
        pytest.param(LATE, 15.0, "a x", id="the broker was away, after a decision"),
        pytest.param(LATE, 25.0, "a b c x", id="the broker was away, and a batch begins with changes"),
        pytest.param(PARTS, 1.5, "x y z", id="a snapshot was half done"),
        pytest.param(PARTS, 3.0, "a x y z", id="a snapshot was half done, and a change came between its parts"),
        pytest.param(PARTS, 0.5, "?", id="a snapshot had not begun"),
        pytest.param(LEADERS, 15.0, "a x", id="nobody leads"),
        pytest.param(LEADERS, 25.0, "b x", id="another leads"),
        pytest.param(LEADERS, 35.0, "b c x", id="another leads, later"),
        pytest.param(HOLE, 5.0, "?", id="a batch is missing that may be of then"),
        pytest.param(HOLE, 15.0, "?", id="after a batch that is missing"),
        pytest.param(HOLE, 25.0, "y", id="after the next snapshot"),
        pytest.param(NEW_HOLE, 35.0, "?", id="the state of a leader before is not that of the next one"),
        pytest.param(DROPPED, 5.0, "?", id="what was dropped may be of then"),
        pytest.param(DROPPED, 10.5, "?", id="before the snapshot after dropped records"),
        pytest.param(DROPPED, 11.1, "y", id="after the snapshot after dropped records"),
    ],
)
def test_what_was_there(records: tuple[StreamRecord, ...], moment_s: float, expected: str) -> None:
    assert pods(at(moment_s, *records)) == expected


@pytest.mark.parametrize(
    ("records", "moment_s", "known_s"),
    [(ORDINARY, -1.0, 0.0), (PARTS, 0.5, 4.0), (HOLE, 15.0, 20.0), (ORDINARY, 5.0, None)],
    ids=["before the beginning", "before the first part", "in a hole", "known at once"],
)
def test_from_when_on_it_is_known(records: tuple[StreamRecord, ...], moment_s: float, known_s: float | None) -> None:
    known = at(moment_s, *records).known_from
    assert known == (None if known_s is None else BEGAN + timedelta(seconds=known_s))


def test_how_old_it_is() -> None:
    for moment_s, seen_s in ((5.0, 0.0), (10.05, 10.0), (10.3, 10.2), (99.0, 10.2)):
        state = at(moment_s, *ORDINARY).state
        assert state is not None
        assert abs(state.seen - (BEGAN + timedelta(seconds=seen_s))) < timedelta(milliseconds=1)


def test_no_more_is_read_than_is_needed() -> None:
    past = Past(BEGAN + timedelta(seconds=15), "manager", model())
    complete = []
    for record in LEADERS:
        past.feed(record)
        complete.append(past.is_complete)
    assert complete == [False, False, True, True]


def test_shards_each_know_everything() -> None:
    first, other = (Source("manager", "", 1, shard=shard) for shard in (0, 1))
    records = (
        batch(0, 0.0, BEGINS, part(0, "x", last=True), decided(0.0), source=first),
        batch(0, 0.1, BEGINS, part(0, "x", last=True), decided(0.1), source=other),
        batch(1, 9.0, put("a"), decided(9.0), source=other),
        batch(1, 20.0, put("b"), decided(20.0), source=first),
        batch(2, 20.0, put("b"), decided(20.0), source=other),
    )
    assert pods(at(10.0, *records)) == "a x"


def test_nobody_else_says_what_the_manager_knew() -> None:
    agent = Source("agent", "east", 9)
    east = decisions_key(ClusterName("east"))
    forged = batch(0, 5.0, BEGINS, part(0, "evil", last=True), decided(5.0), source=SECOND, key=east)
    own = batch(0, 5.0, BEGINS, part(0, "east", last=True), decided(5.0), source=agent)
    assert pods(at(9.0, WHOLE, forged, own)) == "x"


def test_a_batch_that_was_published_twice_counts_once() -> None:
    again = (WHOLE, ORDINARY[1], ORDINARY[1], batch(2, 12.0, gone("a"), decided(12.0)), ORDINARY[1])
    assert pods(at(13.0, *again)) == "b c"
