"""The recorder: what it publishes is in order and complete, or says that it is not; the work never waits for it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec import Raw
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from slicebus.decisions.decider import content
from slicebus.journal import recorder as module
from slicebus.journal.object_diffs import DiffWriter
from slicebus.journal.recorder import Recorder
from slicebus.journal.recording import (
    Batch,
    Began,
    Gap,
    Noted,
    Put,
    Record,
    SnapshotPart,
    Source,
    decode_batch,
    encode_record,
)
from slicebus.journal.redaction import Redactor
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import UnavailableError
from slicebus.proto.topology import common_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from unit.kube.loop_time import LoopTime

SOURCE = Source("agent", "east", 3)
BEGAN = Began(version="0.1.0")


class Bus(MemoryBus):
    """Refuses as long as a test wants it to."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        super().__init__(self.broker, user="east")
        self.broker.declare(common_topology())
        self.refuses = self.hangs = False
        self.loses_confirms = False

    async def publish(self, exchange: str, message: WireMessage) -> None:
        if self.refuses:
            raise UnavailableError("no broker")
        if self.hangs:
            await asyncio.Event().wait()
        await super().publish(exchange, message)
        if self.loses_confirms:
            self.loses_confirms = False
            raise UnavailableError("no confirm")

    @property
    def batches(self) -> list[Batch]:
        return [decode_batch(record.message) for record in self.broker.journal]

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]


def note(number: int, size: int = 0) -> Noted:
    return Noted(table="t", key=Raw(b"%d" % number), value=Raw(b'"%s"' % (b"x" * size)))


def notes(records: list[Record]) -> list[int]:
    return [int(bytes(record.key)) for record in records if isinstance(record, Noted)]


class Recording:
    """A recorder whose state is notes."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.registry = CollectorRegistry()
        self.recorder = Recorder(self.bus, SOURCE, registry=self.registry)
        self.state: list[Put | Noted] = []

    def content(self) -> Iterator[Put | Noted]:
        return iter(list(self.state))

    @asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        async with self.recorder.recording():
            self.recorder.begin(BEGAN, self.content)
            yield

    def add(self, number: int, size: int = 0) -> None:
        self.state.append(note(number, size))
        self.recorder.add(lambda: note(number, size))

    @property
    def dropped(self) -> float:
        return self.registry.get_sample_value("slicebus_recording_dropped_total") or 0.0


@pytest.fixture
def recording(jumping: LoopTime) -> Recording:
    return Recording()


async def test_a_recording_begins_with_the_whole_state(recording: Recording) -> None:
    recording.state = [note(1), note(2)]
    async with recording.going():
        recording.add(3)
    began, snapshot, added = recording.bus.records
    assert isinstance(began, Began)
    assert isinstance(snapshot, SnapshotPart)
    assert (snapshot.part, snapshot.last, notes(list(snapshot.content))) == (0, True, [1, 2])
    assert notes([added]) == [3]
    [batch] = recording.bus.batches
    assert (batch.source, batch.number) == (SOURCE, 0)


async def test_records_wait_a_moment_for_others(recording: Recording) -> None:
    async with recording.going():
        await asyncio.sleep(1)
        for number in range(3):
            recording.add(number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert [notes(list(batch.records)) for batch in recording.bus.batches] == [[], [0, 1, 2]]


async def test_a_full_batch_does_not_wait(recording: Recording) -> None:
    async with recording.going():
        await asyncio.sleep(1)
        for number in range(8):
            recording.add(number, size=30_000)
        await asyncio.sleep(0.001)
        assert [notes(list(batch.records)) for batch in recording.bus.batches] == [[], [0, 1, 2], [3, 4, 5]]
        await asyncio.sleep(1)
        assert notes(recording.bus.records) == list(range(8))
    assert [batch.number for batch in recording.bus.batches] == [0, 1, 2, 3]


async def test_the_rest_is_published_at_the_end(recording: Recording) -> None:
    async with recording.going():
        for number in range(20):
            recording.add(number, size=30_000)
    assert notes(recording.bus.records) == list(range(20))


async def test_the_recording_ends_also_without_a_broker(recording: Recording) -> None:
    async with recording.going():
        recording.bus.refuses = True
        recording.add(1)
        await asyncio.sleep(10)
    assert recording.bus.records == []


async def test_a_role_that_fails_while_its_recording_cannot_end_has_failed(recording: Recording) -> None:
    """Its process would go on and hold the Lease, and nothing would work."""

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("the role has failed")

    async def role() -> None:
        async with recording.going(), asyncio.TaskGroup() as group:
            recording.bus.hangs = True
            recording.add(1)
            group.create_task(fail())

    task = asyncio.create_task(role())
    await asyncio.wait((task,))
    assert not task.cancelled()
    assert isinstance(task.exception(), ExceptionGroup)


async def test_a_broker_that_comes_back_gets_everything_in_order(recording: Recording) -> None:
    with capture_logs() as lines:
        async with recording.going():
            recording.bus.refuses = True
            for number in range(100):
                recording.add(number, size=1000)
                await asyncio.sleep(0.1)
            recording.bus.refuses = False
            await asyncio.sleep(60)
            assert notes(recording.bus.records) == list(range(100))
    assert recording.dropped == 0
    assert [line["event"] for line in lines] == ["recording.unpublished"], "one line, however long it takes"


async def test_an_unconfirmed_batch_is_published_again_under_its_number(recording: Recording) -> None:
    async with recording.going():
        await asyncio.sleep(1)
        recording.bus.loses_confirms = True
        recording.add(1)
        await asyncio.sleep(10)
        recording.add(2)
    assert [(batch.number, notes(list(batch.records))) for batch in recording.bus.batches] == [
        (0, []),
        (1, [1]),
        (1, [1]),
        (2, [2]),
    ]


async def test_a_batch_being_published_at_the_end_is_published_again(recording: Recording) -> None:
    async with recording.going():
        recording.bus.refuses = True
        recording.add(1)
        await asyncio.sleep(1)
        recording.bus.refuses = False
    assert notes(recording.bus.records) == [1]


async def test_a_full_buffer_is_a_gap_and_a_snapshot(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100_000)
    async with recording.going():
        await asyncio.sleep(1)
        recording.bus.refuses = True
        for number in range(50):
            recording.add(number, size=10_000)
            await asyncio.sleep(0.01)
        recording.bus.refuses = False
        await asyncio.sleep(60)
        recording.add(50)
        await asyncio.sleep(1)
    records = recording.bus.records
    gap = next(record for record in records if isinstance(record, Gap))
    after = records[records.index(gap) + 1 :]
    shown = [entry for record in after if isinstance(record, SnapshotPart) for entry in record.content]
    assert notes(shown) == list(range(50))
    assert notes(after) == [50]
    before = notes(records[: records.index(gap)])
    assert before == list(range(len(before))), "what was kept has no holes"
    assert gap.dropped == recording.dropped == 50 - len(before)
    numbers = [batch.number for batch in recording.bus.batches]
    assert numbers == list(range(len(numbers)))


async def test_differences_after_a_gap_refer_to_the_version_before_and_not_to_the_recorded_one(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100_000)
    diffs = DiffWriter("pods", Redactor())

    def change(version: int, spec: str) -> None:
        metadata = {"name": "p", "uid": "u", "resourceVersion": str(version)}
        manifest = {"metadata": metadata, "spec": spec}
        recording.state = [Put(of="pods", object=manifest)]
        recording.recorder.add(lambda: diffs.put(manifest))

    async with recording.going():
        change(1, "a")
        await asyncio.sleep(1)
        for number in range(50):
            recording.add(number, size=10_000)
        change(2, "b")
        await asyncio.sleep(60)
        change(3, "a")
    last = recording.bus.records[-1]
    assert isinstance(last, Put)
    assert (last.object["spec"], last.same) == ("a", ())


async def test_a_burst_that_is_larger_than_the_buffer_is_a_gap(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 100_000)
    async with recording.going():
        await asyncio.sleep(1)
        for number in range(50):
            recording.add(number, size=10_000)
        await asyncio.sleep(60)
    kinds = [type(record) for record in recording.bus.records if not isinstance(record, Noted)]
    assert kinds[:3] == [Began, SnapshotPart, Gap]
    assert recording.dropped == 50


async def test_a_large_snapshot_comes_in_parts_between_other_records(recording: Recording) -> None:
    recording.state = [note(number, size=10_000) for number in range(50)]
    async with recording.going():
        for number in range(50, 60):
            recording.add(number)
            await asyncio.sleep(0.06)
    records = recording.bus.records
    parts = [record for record in records if isinstance(record, SnapshotPart)]
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert [number for part in parts for number in notes(list(part.content))] == list(range(50))
    assert notes(records) == list(range(50, 60))
    assert len(parts) > 5
    assert all(len(record.message.body) < 150_000 for record in recording.bus.broker.journal)


async def test_changes_larger_than_the_state_cause_a_snapshot(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SNAPSHOT_LEAST_BYTES", 50_000)
    async with recording.going():
        for number in range(20):
            recording.recorder.add(partial(note, number, size=10_000))
            await asyncio.sleep(1)
    shown = [index for index, record in enumerate(recording.bus.records) if isinstance(record, SnapshotPart)]
    assert shown == [1, 7, 13, 19, 25]


@pytest.mark.parametrize(("size", "expected"), [(1_000, 12), (4_000_000, 4), (15_000_000, 2)])
async def test_a_snapshot_is_taken_now_and_then(recording: Recording, size: int, expected: int) -> None:
    recording.state = [note(number, size=100_000) for number in range(size // 100_000)]
    async with recording.going():
        for number in range(120):
            await asyncio.sleep(60)
            recording.recorder.add(partial(note, number))
        await asyncio.sleep(1)
    assert sum(isinstance(record, SnapshotPart) and record.last for record in recording.bus.records) == expected


async def test_an_entry_that_cannot_be_written_is_left_out_and_counted(recording: Recording) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    unwritable = Put(of="pods", object=deep)
    recording.state = [note(1), unwritable, note(2)]
    with capture_logs() as logs:
        async with recording.going():
            assert recording.dropped == 1, "of the snapshot"
            recording.recorder.add(lambda: unwritable)
            assert recording.dropped == 2
    assert [line["event"] for line in logs] == ["recording.unwritable"], "the object comes again and again"
    assert not any(isinstance(record, Gap) for record in recording.bus.records), "another snapshot is no help"
    [snapshot] = [record for record in recording.bus.records if isinstance(record, SnapshotPart)]
    assert notes(list(snapshot.content)) == [1, 2]


def test_an_object_of_the_state_that_cannot_be_written_is_left_out_and_counted(recording: Recording) -> None:
    objects = [("pods", [{"metadata": {"name": "a"}, "spec": {"x": 1j}}, {"metadata": {"name": "b"}, "spec": {}}])]
    [record] = content(objects, [], recording.recorder.redactor, recording.recorder.leave_out)
    assert b'"b"' in encode_record(record)
    assert recording.dropped == 1
