"""What a role has not done yet, and since when."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from slicebus.bus.lanes import Backlog
from slicebus.kube.workqueue import WorkQueue
from slicebus.proto.errors import DecisionError, InvalidError, UnavailableError
from slicebus.runtime.work_metrics import WorkMetrics
from slicebus.sandbox.queues import MemoryDelivery
from unit.kube.loop_time import LoopTime

AGES = ("slicebus_work_queue_depth", "slicebus_work_queue_oldest_seconds", "slicebus_oldest_unreconciled_seconds")


async def test_the_oldest_change_has_its_age_while_it_is_worked_on_and_others_wait(jumping: LoopTime) -> None:
    queue, backlog, registry, done = WorkQueue[str]("test"), Backlog(), CollectorRegistry(), asyncio.Event()
    registry.register(WorkMetrics(queue, backlog))

    async def handle(_: str) -> None:
        await done.wait()

    def shown() -> list[float]:
        return [round(registry.get_sample_value(name) or 0, 3) for name in AGES]

    assert shown() == [0, 0, 0]
    working = asyncio.create_task(queue.run(handle, workers=1))
    queue.add("first")
    await asyncio.sleep(0.5)
    queue.add("second")
    queue.add("third", first=True)
    await asyncio.sleep(0.25)
    assert shown() == [2, 0.25, 0.75]
    done.set()
    await asyncio.sleep(1)
    assert shown() == [0, 0, 0]
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_message_that_is_not_settled_is_a_change_too(jumping: LoopTime) -> None:
    backlog, registry = Backlog(), CollectorRegistry()
    registry.register(WorkMetrics(WorkQueue[str]("test"), backlog))
    message = MemoryDelivery.__new__(MemoryDelivery)
    backlog.receive(message)
    await asyncio.sleep(7)
    assert registry.get_sample_value(AGES[2]) == pytest.approx(7)
    assert backlog.settle(message) == pytest.approx(7)
    assert registry.get_sample_value(AGES[2]) == 0


@pytest.mark.decisions_fail
async def test_each_retry_counts_with_its_reason(jumping: LoopTime) -> None:
    queue, registry = WorkQueue[str]("test"), CollectorRegistry()
    registry.register(WorkMetrics(queue, Backlog()))
    errors = [UnavailableError("a"), UnavailableError("b"), InvalidError("c"), DecisionError("d", "digest", "KeyError")]

    async def handle(_: str) -> None:
        if errors:
            raise errors.pop(0)

    working = asyncio.create_task(queue.run(handle, workers=1))
    queue.add("key")
    await asyncio.sleep(1000)
    counted = {
        reason: registry.get_sample_value("slicebus_work_queue_retries_total", {"reason": reason})
        for reason in ("transient", "refused", "set_aside")
    }
    assert counted == {"transient": 2, "refused": 1, "set_aside": 1}
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
