"""Whether an agent reaches its manager: the rule, and that it looks, says so, and stops saying so."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from slicebus.agent.act.reach import Reach
from slicebus.agent.decide.reach import Look, Moment, Unreached, Way, after, unreached
from slicebus.ambient.clock import ambient
from slicebus.bus.contract import QueueDepth
from slicebus.kube.times import time_text
from slicebus.proto.errors import NotFoundError, SlicebusError, UnavailableError
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED, MANAGER_NOT_REACHED
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


STORIES: dict[str, tuple[Story, float, tuple[str, str] | None]] = {
    "all is well": ([(10, READ), (20, READ)], 3600, None),
    "a standby takes over": ([(10, READ), (20, UNREAD), (34, READ)], 34, None),
    "nobody does": ([(10, READ), (20, UNREAD), (34, UNREAD)], 35, (MANAGER_NOT_REACHED, "2026-05-01T10:00:10Z")),
    "nobody did since the agent began": ([(2, UNREAD)], 17, (MANAGER_NOT_REACHED, "2026-05-01T10:00:00Z")),
    "a look without an answer": ([(10, READ), (20, UNREAD), (30, UNKNOWN)], 35, (MANAGER_NOT_REACHED, at(10).text)),
    "only looks without an answer": ([(10, READ), (20, UNKNOWN), (30, UNKNOWN)], 60, None),
    "it is back": ([(10, READ), (20, UNREAD), (60, READ)], 60, None),
    "the broker is away": ([(10, READ), (20, AWAY), (29, AWAY)], 30, (BROKER_NOT_REACHED, "2026-05-01T10:00:20Z")),
    "it changes nodes": ([(10, READ), (20, AWAY)], 29, None),
    "it is back, and the manager has its time": ([(10, READ), (20, AWAY), (60, UNREAD)], 74, None),
    "it is back, and the manager is not": (
        [(10, READ), (20, AWAY), (60, UNREAD)],
        75,
        (MANAGER_NOT_REACHED, at(10).text),
    ),
    "it goes while the manager is away": ([(20, UNREAD), (40, AWAY)], 45, None),
}


@pytest.mark.parametrize(("story", "now_s", "expected"), STORIES.values(), ids=STORIES.keys())
def test_what_is_not_reached(story: Story, now_s: float, expected: tuple[str, str] | None) -> None:
    assert told(story, now_s) == expected


class Broker:
    """A bus, and a store without jobs."""

    def __init__(self) -> None:
        self.connected, self.blocked, self.readers, self.asked = True, "", 1, 0
        self.error: SlicebusError | None = None

    async def depth(self, queue: str) -> QueueDepth:
        assert queue == "slicebus.cluster.east.control"
        self.asked += 1
        if self.error is not None:
            raise self.error
        return QueueDepth(ready=0, consumers=self.readers)


@contextmanager
def clocks(time: LoopTime) -> Iterator[None]:
    with ambient(clock=lambda: BEGAN + timedelta(seconds=time.now - START_S), random=Random(1)):
        yield


@asynccontextmanager
async def looking(broker: Broker, time: LoopTime) -> AsyncIterator[Reach]:
    store: Any = SimpleNamespace(state=SimpleNamespace(our_jobs=list, on_change=lambda _: None))
    bus: Any = broker
    executor: Any = None
    reach = Reach(bus, "slicebus.cluster.east.control", decide=store, executor=executor, requeue=lambda _: None)
    with clocks(time):
        task = asyncio.create_task(reach.run())
        try:
            yield reach
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_manager_that_has_gone_is_told_within_half_a_minute_and_forgotten_when_it_is_back(
    jumping: LoopTime,
) -> None:
    broker = Broker()
    async with looking(broker, jumping) as reach:
        await asyncio.sleep(60)
        assert (reach.problem, broker.asked) == ("", 6), "one look in ten seconds"
        broker.readers = 0
        await asyncio.sleep(30)
        told = "manager not reached since 2026-05-01T10:00:50Z: nobody reads what this cluster sends"
        assert reach.unreached == Unreached(MANAGER_NOT_REACHED, told, "2026-05-01T10:00:50Z")
        broker.readers = 1
        await asyncio.sleep(5)
        assert reach.unreached is None


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
    async with looking(broker, jumping) as reach:
        await asyncio.sleep(60)
        for name, value in change.items():
            setattr(broker, name, value)
        await asyncio.sleep(30)
        assert reach.problem == problem
