"""The recipe for a message: a type that the catalogue knows is encoded, routed, summarised and redriven."""

import asyncio
from typing import ClassVar

import pytest

from slicebus.bus.contract import Delivery
from slicebus.bus.dead_letters import Requeue
from slicebus.bus.lanes import dispatch
from slicebus.journal.entry import Entry
from slicebus.journal.redrive import Left, Since, redrive
from slicebus.journal.summary import summary
from slicebus.proto.codec import decode
from slicebus.proto.messages import MESSAGES, Count, Direction, JobMessage, Lane, Message
from slicebus.proto.topology import DOWN, agent_queue, agent_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from unit.journal.records import EAST, JOB, record


class Checkpoint(JobMessage, frozen=True, kw_only=True):
    """Asks a worker's job to write a checkpoint."""

    type: ClassVar[str] = "checkpoint"
    direction: ClassVar[Direction] = Direction.DOWN

    spec_version: Count
    path: str

    def summary(self) -> str:
        return f"to {self.path}, version {self.spec_version}"


class Progress(JobMessage, frozen=True, kw_only=True):
    """How far a worker's job is."""

    type: ClassVar[str] = "progress"
    direction: ClassVar[Direction] = Direction.UP
    lane: ClassVar[Lane] = Lane.STATUS
    not_redriven: ClassVar[str] = "an agent says it every minute"

    done: float

    def summary(self) -> str:
        return f"{self.done:.0%}"


CHECKPOINT = Checkpoint(job=JOB, spec_version=3, path="/data")


@pytest.fixture(autouse=True)
def _catalogued(monkeypatch: pytest.MonkeyPatch) -> None:
    for message in (Checkpoint, Progress):
        monkeypatch.setitem(MESSAGES, message.type, message)


def sent(message: Message, user: str, *, offset: int = 5) -> Entry:
    return Entry.from_record(record(message, offset=offset, user_id=user))


def redriven(entry: Entry, *later: Entry) -> Requeue | Left:
    since = Since()
    for each in (entry, *later):
        since.see(each)
    return redrive(entry, since, manager="manager")


def test_it_comes_back_as_it_was() -> None:
    received = decode(record(CHECKPOINT).message)
    assert received.message == CHECKPOINT
    assert received.envelope.subject == JOB.key


async def test_it_is_dispatched_from_the_lane_that_it_declares() -> None:
    bus = MemoryBus(MemoryBroker(), user="east")
    await bus.declare(agent_topology(EAST))
    await bus.publish(DOWN, record(CHECKPOINT).message)
    handled: asyncio.Queue[Message] = asyncio.Queue()

    async def handle(delivery: Delivery) -> None:
        handled.put_nowait(decode(delivery.message).message)

    async with asyncio.TaskGroup() as group, bus.subscribe(agent_queue(EAST, Lane.CONTROL), prefetch=1) as lane:
        running = group.create_task(dispatch(lane, handle, key=lambda delivery: delivery.message.routing_key))
        assert await handled.get() == CHECKPOINT
        running.cancel()


def test_it_is_told_in_one_line() -> None:
    assert summary(sent(CHECKPOINT, "manager")) == "to /data, version 3"


def test_the_newest_of_its_job_is_published_again() -> None:
    assert isinstance(redriven(sent(CHECKPOINT, "manager")), Requeue)
    newer = sent(Checkpoint(job=JOB, spec_version=4, path="/data"), "manager", offset=6)
    left = redriven(sent(CHECKPOINT, "manager"), newer)
    assert isinstance(left, Left)
    assert left.why == "version 3 was overtaken by 4, offset 6"


def test_what_tells_of_a_moment_is_left() -> None:
    assert redriven(sent(Progress(job=JOB, done=0.5), "east")) == Left(
        "an agent says it every minute", of_a_moment=True
    )
