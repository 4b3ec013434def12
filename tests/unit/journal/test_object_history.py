"""The objects of a role as its recording has them: with times, over gaps, and from one leader to the next."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from slicebus.bus.contract import Record as StreamRecord
from slicebus.journal.object_history import ObjectHistory
from slicebus.journal.recording import (
    Began,
    Decided,
    Gap,
    Gone,
    Noted,
    Put,
    Record,
    SnapshotPart,
    Source,
    encode_batch,
    encode_record,
)
from slicebus.proto.errors import InvalidError

PODS = "pods"
Told = tuple[float, int | None, int | None]
"""The time of a change, and the object's value before and after it."""


def an_object(value: int, name: str = "a") -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": name}, "spec": {"value": value}, "status": {"kept": True}}


def put(value: int, **changes: Any) -> Put:
    return Put(of=PODS, object=an_object(value), **changes)


def decided(at: float) -> Decided:
    return Decided(what="cycle", at=at, arguments=msgspec.Raw(b"{}"))


def snapshot(*values: int) -> SnapshotPart:
    return SnapshotPart(part=0, last=True, content=tuple(put(value) for value in values))


def batch(number: int, at: float, *records: Record, epoch: int = 1, shard: int = 0) -> StreamRecord:
    source = Source(role="manager", cluster="", epoch=epoch, shard=shard)
    moment = datetime.fromtimestamp(at, UTC)
    message = encode_batch(source, number, list(map(encode_record, records)), user="manager", at=moment)
    return StreamRecord(offset=number, message=message, timestamp=moment)


def told(records: Sequence[StreamRecord]) -> list[Told]:
    history = ObjectHistory("manager", [PODS])
    return [
        (change.at, *(each["spec"]["value"] if each else None for each in (change.before, change.after)))
        for record in records
        for change in history.feed(record)
    ]


@pytest.mark.parametrize(
    ("records", "changes"),
    [
        ([batch(0, 10, put(1), decided(9))], []),
        ([batch(0, 10, snapshot(1)), batch(1, 20, put(2), decided(15), put(3))], [(15, 1, 2), (20, 2, 3)]),
        ([batch(0, 10, snapshot(1), Gone(of=PODS, namespace="team", name="a"))], [(10, 1, None)]),
        ([batch(0, 10, snapshot()), batch(1, 20, put(1)), batch(1, 20, put(2))], [(20, None, 1)]),
        ([batch(0, 10, snapshot(1)), batch(2, 30, put(2), snapshot(5), put(6))], [(30, 1, 5), (30, 5, 6)]),
        ([batch(0, 10, snapshot(1)), batch(1, 20, Gap(dropped=1), put(2), snapshot(3))], [(20, 1, 3)]),
        ([batch(0, 10, snapshot(1)), batch(0, 20, Began(version="1"), snapshot(2), epoch=2)], [(20, 1, 2)]),
        (
            [batch(0, 10, snapshot(1), epoch=2), batch(0, 20, snapshot(2)), batch(1, 30, put(3), epoch=2)],
            [(30, 1, 3)],
        ),
        ([batch(0, 10, snapshot(1)), batch(0, 12, snapshot(2), shard=1)], []),
        ([batch(0, 10, snapshot(1)), batch(1, 20, Put(of="nodes", object=an_object(7)))], []),
    ],
    ids=["unknown", "times", "gone", "twice", "missing", "gap", "leader", "earlier leader", "shard", "other"],
)
def test_changes(records: Sequence[StreamRecord], changes: list[Told]) -> None:
    assert told(records) == changes


def versioned(value: int, version: int, uid: str = "u") -> Put:
    metadata = {"namespace": "team", "name": "a", "uid": uid, "resourceVersion": str(version)}
    return Put(of=PODS, object=an_object(value) | {"metadata": metadata})


def of_version(value: int, version: int) -> SnapshotPart:
    return SnapshotPart(part=0, last=True, content=(versioned(value, version),))


BOTH = (batch(0, 10, of_version(1, 5)), batch(0, 10, of_version(1, 5), shard=1))
GONE = Gone(of=PODS, namespace="team", name="a")


@pytest.mark.parametrize(
    ("records", "changes"),
    [
        ([*BOTH, batch(1, 11, versioned(2, 6)), batch(1, 11.1, versioned(2, 6), shard=1)], [(11, 1, 2)]),
        ([*BOTH, batch(1, 11, versioned(2, 6), shard=1), batch(2, 12, shard=1)], []),
        (
            [*BOTH, batch(1, 11, versioned(2, 6), shard=1), batch(2, 16, versioned(3, 7), shard=1)],
            [(11, 1, 2), (16, 2, 3)],
        ),
        (
            [
                *BOTH,
                batch(1, 12, versioned(2, 6)),
                batch(1, 12.1, versioned(2, 6), shard=1),
                batch(2, 13, Gap(dropped=1)),
                batch(2, 14, versioned(3, 7), shard=1),
                batch(3, 15, of_version(3, 7)),
                batch(4, 16, versioned(4, 8)),
            ],
            [(12, 1, 2), (14, 2, 3)],
        ),
        ([*BOTH, batch(1, 11, versioned(2, 6)), batch(2, 12, Gap(dropped=1)), batch(1, 13, shard=1)], [(11, 1, 2)]),
        (
            [
                *BOTH,
                batch(1, 11, GONE),
                batch(2, 12, Gap(dropped=1)),
                batch(1, 12.1, versioned(2, 6), shard=1),
                batch(2, 12.2, GONE, versioned(9, 9, "new"), shard=1),
            ],
            [(11, 1, None), (12.2, None, 9)],
        ),
        (
            [batch(0, 10, shard=0), batch(0, 10, of_version(1, 5), shard=1), batch(1, 11, GONE, shard=1)],
            [(11, 1, None)],
        ),
    ],
    ids=["both", "not followed", "ended", "gap", "behind", "gone", "only the other"],
)
def test_another_shard_takes_the_place_of_one_that_is_lost(
    records: Sequence[StreamRecord], changes: list[Told]
) -> None:
    assert told(records) == changes


def test_it_is_interrupted_where_no_shard_can_be_followed() -> None:
    history = ObjectHistory("manager", [PODS])
    for record in (*BOTH, batch(1, 11, Gap(dropped=1))):
        list(history.feed(record))
    assert history.interruptions == 0
    list(history.feed(batch(1, 12, Gap(dropped=1), shard=1)))
    assert history.interruptions == 1


def test_parts_that_are_the_same_or_not_recorded_are_kept() -> None:
    history = ObjectHistory("manager", [PODS], ["settings"])
    note = Noted(table="settings", key=msgspec.Raw(b'"own"'), value=msgspec.Raw(b"{}"))
    partly = {"metadata": {"namespace": "team", "name": "a"}, "spec": {"value": 2}}
    for record in (
        batch(0, 10, snapshot(1), note),
        batch(1, 20, Put(of=PODS, object=partly, same=("status",))),
        batch(2, 30, Put(of=PODS, object={**partly, "spec": {"value": 3}}, cut=("status",))),
    ):
        list(history.feed(record))
    assert history.objects[PODS]["team", "a"] == an_object(3)
    assert history.tables["settings"] == {b'"own"': msgspec.Raw(b"{}")}
    assert history.interruptions == 0


def test_a_version_that_is_no_number_of_an_api_server_counts_as_none() -> None:
    """int() raises for one of thousands of digits."""
    odd = an_object(1)
    odd["metadata"]["resourceVersion"] = "9" * 5000
    history = ObjectHistory("manager", [PODS])
    list(history.feed(batch(0, 10, snapshot(2))))
    list(history.feed(batch(1, 20, Put(of=PODS, object=odd))))
    assert history.objects[PODS]["team", "a"] == odd


@pytest.mark.parametrize("record", [Put(of=PODS, object={}), Put(of=PODS, object={"metadata": 1}, same=("spec",))])
def test_what_no_role_records(record: Put) -> None:
    history = ObjectHistory("manager", [PODS])
    list(history.feed(batch(0, 10, snapshot(1))))
    with pytest.raises(InvalidError):
        list(history.feed(batch(1, 20, record)))
