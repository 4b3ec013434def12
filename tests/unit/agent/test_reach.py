"""Whether an agent reaches its manager: the rule, and that it looks, says so, and stops saying so."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.act.reach import Reach
from slicebus.agent.decide.cluster.reach import NOT_KNOWN, Look, Moment, Unreached, Way, after, unreached
from slicebus.agent.state.views import JobKey
from slicebus.ambient.clock import ambient
from slicebus.bus.contract import QueueDepth
from slicebus.kube.times import time_text
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError
from slicebus.proto.messages import ScaleRequest
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED
from unit.agent.objects import EAST, REF
from unit.kube.loop_time import START_S, LoopTime

BEGAN = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)
READ, UNREAD, UNKNOWN, AWAY = Look(is_read=True), Look(is_read=False), Look(), Look("no connection")
Story = list[tuple[float, Look]]
"""Looks, each with its second."""


def at(second: float) -> Moment:
    return Moment(second, time_text(BEGAN + timedelta(seconds=second)))


def told(story: Story, now_s: float) -> tuple[str, str] | None:
    """What is not reached then, and since when."""
    way = Way(at(0))
    for second, look in story:
        way = after(way, look, at(second))
    found = unreached(way, now_s)
    return (found.reason, found.since) if found is not None else None


KNOWS_NOTHING = (NOT_KNOWN.reason, NOT_KNOWN.since)


STORIES: dict[str, tuple[Story, float, tuple[str, str] | None]] = {
    "all is well": ([(10, READ), (20, READ)], 3600, None),
    "a standby takes over": ([(10, READ), (20, UNREAD), (34, READ)], 34, None),
    "nobody does": ([(10, READ), (20, UNREAD), (34, UNREAD)], 35, (MANAGER_NOT_REACHED, "2026-05-01T10:00:10Z")),
    "nobody did since the agent began": ([(2, UNREAD)], 17, (MANAGER_NOT_REACHED, "2026-05-01T10:00:00Z")),
    "a look without an answer": ([(10, READ), (20, UNREAD), (30, UNKNOWN)], 35, (MANAGER_NOT_REACHED, at(10).text)),
    "only looks without an answer": ([(10, READ), (20, UNKNOWN), (30, UNKNOWN)], 60, None),
    "it has just begun": ([], 1, KNOWS_NOTHING),
    "nobody has read yet": ([(2, UNREAD)], 16, KNOWS_NOTHING),
    "it began without a broker": ([(2, AWAY)], 11, KNOWS_NOTHING),
    "it began without an answer": ([(2, UNKNOWN)], 60, KNOWS_NOTHING),
    "it is back": ([(10, READ), (20, UNREAD), (60, READ)], 60, None),
    "the broker is away": ([(10, READ), (20, AWAY), (29, AWAY)], 30, (BROKER_NOT_REACHED, "2026-05-01T10:00:20Z")),
    "it changes nodes": ([(10, READ), (20, AWAY)], 29, None),
    "it is back, and the manager has its time": ([(10, READ), (20, AWAY), (60, UNREAD)], 74, None),
    "it is back, and the manager is not": (
        [(10, READ), (20, AWAY), (60, UNREAD)],
        75,
        (MANAGER_NOT_REACHED, at(10).text),
    ),
    "it goes while a standby takes over": ([(10, READ), (20, UNREAD), (30, AWAY)], 39, None),
    "it goes while the manager is away": (
        [(20, UNREAD), (40, AWAY), (44, AWAY)],
        45,
        (MANAGER_NOT_REACHED, at(0).text),
    ),
    "it stays away": ([(20, UNREAD), (40, AWAY), (49, AWAY)], 50, (BROKER_NOT_REACHED, at(40).text)),
    "it is back, and the manager had gone before": (
        [(20, UNREAD), (40, AWAY), (60, UNREAD)],
        60,
        (MANAGER_NOT_REACHED, at(0).text),
    ),
    "the manager had gone before, and reads again": ([(20, UNREAD), (40, AWAY), (60, UNREAD), (62, READ)], 62, None),
}


@pytest.mark.parametrize(("story", "now_s", "expected"), STORIES.values(), ids=STORIES.keys())
def test_what_is_not_reached(story: Story, now_s: float, expected: tuple[str, str] | None) -> None:
    assert told(story, now_s) == expected


def test_it_names_the_shard() -> None:
    found = unreached(Way(at(0), unread=at(0)), 15, shard=2)
    assert found is not None
    assert found.message == f"manager not reached since {at(0).text}: {FEW[2]}"


FEW = {shard: f"nobody reads what this cluster sends{to}" for shard, to in ((0, ""), (2, " to shard 2 of the manager"))}


class Broker:
    """A bus, and a store without jobs."""

    def __init__(self) -> None:
        self.connected, self.blocked, self.readers = True, "", 1
        self.asked: list[str] = []
        self.of_shards: dict[str, int] = {}
        """The readers of what is addressed to others than the first shard."""
        self.error: SlicebusError | None = None

    async def depth(self, queue: str) -> QueueDepth:
        self.asked.append(queue)
        if self.error is not None:
            raise self.error
        consumers = self.readers if queue == QUEUE else self.of_shards[queue]
        return QueueDepth(ready=0, consumers=consumers)


QUEUE = "slicebus.cluster.east.control"


@contextmanager
def clocks(time: LoopTime) -> Iterator[None]:
    with ambient(clock=lambda: BEGAN + timedelta(seconds=time.now - START_S), random=Random(1)):
        yield


@asynccontextmanager
async def looking(broker: Broker, time: LoopTime) -> AsyncIterator[tuple[Reach, Addressees]]:
    state = SimpleNamespace(our_jobs=list, on_change=lambda _: None, reading=lambda _: SimpleNamespace(ref=REF))
    store: Any = SimpleNamespace(state=state)
    bus: Any = broker
    executor: Any = None
    addressees = Addressees()
    reach = Reach(bus, EAST, decide=store, executor=executor, addressees=addressees, requeue=lambda _: None)
    with clocks(time):
        task = asyncio.create_task(reach.run())
        try:
            yield reach, addressees
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_manager_that_has_gone_is_told_within_half_a_minute_and_forgotten_when_it_is_back(
    jumping: LoopTime,
) -> None:
    broker = Broker()
    async with looking(broker, jumping) as (reach, _):
        assert reach.of(JOB) == NOT_KNOWN
        await asyncio.sleep(60)
        assert (reach.problem, broker.asked) == ("", [QUEUE] * 6), "one look in ten seconds"
        assert reach.of(JOB) is None
        broker.readers = 0
        await asyncio.sleep(30)
        assert reach.problem == f"manager not reached since 2026-05-01T10:00:50Z: {FEW[0]}"
        assert reach.of(JOB) == Unreached(MANAGER_NOT_REACHED, FEW[0], "2026-05-01T10:00:50Z")
        broker.readers = 1
        await asyncio.sleep(5)
        assert (reach.problem, reach.of(JOB)) == ("", None)


JOB = JobKey.of(REF)
REQUEST = ScaleRequest(
    job=REF, workload="w1", worker_uid="u", worker_generation=2, granted={"main": 1}, wanted={"main": 2}
)
OF_SHARD = "slicebus.manager.1.control"


async def test_another_shard_is_looked_at_while_it_owes_an_answer(jumping: LoopTime) -> None:
    broker = Broker()
    broker.of_shards[OF_SHARD] = 0
    async with looking(broker, jumping) as (reach, addressees):
        addressees.note(REF, 1)
        await asyncio.sleep(60)
        assert (OF_SHARD in broker.asked, reach.of(JOB)) == (False, None), "nobody has asked it anything"
        addressees.of(REQUEST)
        await asyncio.sleep(30)
        told = reach.of(JOB)
        assert told is not None
        assert (told.reason, told.why) == (MANAGER_NOT_REACHED, f"{FEW[0]} to shard 1 of the manager")
        assert reach.problem == told.message
        addressees.note(REF, 0)
        await asyncio.sleep(5)
        assert (reach.problem, reach.of(JOB)) == ("", None)


async def test_the_first_shard_says_nothing_of_a_job_of_another_one(jumping: LoopTime) -> None:
    broker = Broker()
    broker.of_shards[OF_SHARD] = 1
    async with looking(broker, jumping) as (reach, addressees):
        addressees.note(REF, 1)
        addressees.of(REQUEST)
        await asyncio.sleep(30)
        broker.readers = 0
        await asyncio.sleep(40)
        assert (reach.of(JOB), FEW[0] in reach.problem) == (None, True)
        broker.connected = False
        await asyncio.sleep(15)
        told = reach.of(JOB)
        assert told is not None
        assert told.reason == BROKER_NOT_REACHED


LOST: dict[str, tuple[dict[str, Any], str]] = {
    "no connection": (
        {"connected": False},
        "broker not reached since 2026-05-01T10:01:00Z: there is no connection to it",
    ),
    "its memory is short": (
        {"blocked": "low on memory"},
        "broker not reached since 2026-05-01T10:01:00Z: it takes nothing from publishers, low on memory",
    ),
    "the queue has gone": (
        {"error": NotFoundError("no queue")},
        "manager not reached since 2026-05-01T10:00:50Z: nobody reads what this cluster sends",
    ),
    "nobody answers": ({"error": UnavailableError("hm")}, ""),
}


@pytest.mark.parametrize(("change", "problem"), LOST.values(), ids=LOST.keys())
async def test_what_it_says_half_a_minute_later(change: dict[str, Any], problem: str, jumping: LoopTime) -> None:
    broker = Broker()
    async with looking(broker, jumping) as (reach, _):
        await asyncio.sleep(60)
        for name, value in change.items():
            setattr(broker, name, value)
        await asyncio.sleep(30)
        assert reach.problem == problem
