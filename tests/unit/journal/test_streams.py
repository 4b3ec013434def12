"""The two streams of the journal, read as one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

from slicebus.bus.contract import Record
from slicebus.journal.streams import merged, read_journals
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import DOWN, JOURNALS, UP, cluster_topology, common_topology, manager_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
EAST = ClusterName("east")


def at(second: float, offset: int, key: str = "east.x", *, by_header: bool = False) -> Record:
    moment = NOON + timedelta(seconds=second)
    headers = {"cloudEvents_time": moment.isoformat()} if by_header else {}
    return Record(offset, WireMessage(routing_key=key, body=b"", headers=headers), None if by_header else moment)


def seen(records: list[Record]) -> list[tuple[int, str]]:
    return [(record.offset, record.message.routing_key) for record in records]


@pytest.mark.parametrize("by_header", [False, True], ids=["the broker's time", "the publisher's"])
def test_records_come_in_the_order_of_their_times(by_header: bool) -> None:
    ours = [at(1, 0, "a", by_header=by_header), at(4, 1, "d", by_header=by_header)]
    theirs = [at(2, 0, "b", by_header=by_header), at(3, 1, "c", by_header=by_header)]
    assert seen(list(merged(ours, theirs))) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


def test_each_stream_keeps_its_own_order_whatever_clocks_say() -> None:
    ours = [at(5, 0, "a"), at(1, 1, "b")]
    theirs = [at(3, 0, "x"), at(6, 1, "y")]
    assert [key for _, key in seen(list(merged(ours, theirs)))] == ["x", "a", "b", "y"]


def test_a_record_has_the_same_number_wherever_the_reading_begins() -> None:
    ours = [at(number, number, f"a{number}") for number in range(0, 20, 1)]
    theirs = [at(number + 0.5, number, f"b{number}") for number in range(0, 20, 1)]
    whole = dict(reversed(one) for one in seen(list(merged(ours, theirs))))
    part = dict(reversed(one) for one in seen(list(merged(ours[7:], theirs[7:]))))
    assert part == {key: number for key, number in whole.items() if key in part}
    assert sorted(whole.values()) == list(range(40))


def test_one_stream_alone_keeps_its_offsets() -> None:
    assert seen(list(merged([at(1, 5), at(2, 6)], []))) == [(5, "east.x"), (6, "east.x")]


@pytest.fixture
async def broker() -> MemoryBroker:
    made = MemoryBroker()
    made.declare(manager_topology() + cluster_topology(EAST))
    return made


def publish(broker: MemoryBroker, exchange: str, key: str) -> None:
    broker.publish(exchange, WireMessage(routing_key=key, body=b"", headers={}))


async def test_both_are_read_to_their_ends(broker: MemoryBroker) -> None:
    for exchange, key in ((UP, "east.hello"), (DOWN, "east.terms"), (UP, "east.status"), (UP, "north.hello")):
        publish(broker, exchange, key)
    bus = MemoryBus(broker, user="manager")
    records = [record async for record in read_journals(bus, "first", follow=False)]
    assert seen(records) == [(0, "east.hello"), (1, "east.terms"), (2, "east.status"), (3, "north.hello")]
    assert records == broker.journal


async def test_a_reading_goes_on_with_what_comes(broker: MemoryBroker) -> None:
    publish(broker, UP, "east.hello")
    found: list[str] = []

    async def read() -> None:
        async with aclosing(read_journals(MemoryBus(broker, user="manager"), "next", follow=True)) as records:
            async for record in records:
                found.extend([record.message.routing_key])

    task = asyncio.create_task(read())
    await some_turns()
    for exchange, key in ((DOWN, "east.terms"), (UP, "east.status"), (DOWN, "east.resync")):
        publish(broker, exchange, key)
        await some_turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert found == ["east.terms", "east.status", "east.resync"]


async def test_a_reading_that_fails_raises() -> None:
    class Half(MemoryBus):
        async def read_stream(self, stream: str, offset: object, *, follow: bool) -> AsyncIterator[Record]:
            if stream == JOURNALS[1]:
                raise NotFoundError("gone")
            async for record in super().read_stream(stream, "first", follow=follow):
                yield record

    broker = MemoryBroker()
    broker.declare(common_topology())
    for follow in (False, True):
        with pytest.raises(NotFoundError):
            async for _ in read_journals(Half(broker, user="manager"), "first", follow=follow):
                pass


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
