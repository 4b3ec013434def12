"""What keeps the status of queues: a write that is refused ends nothing, and is tried again."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.cache import Cache
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.manager.act.status_writer import StatusWriter
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    SlicebusError,
    UnavailableError,
    WebhookError,
)
from unit.kube.loop_time import LoopTime

QUEUE: dict[str, Any] = {"metadata": {"name": "cq"}}
WRITES: list[Command] = [Emit(regarding=QUEUE, reason=reason, note="") for reason in ("first", "second")]


@pytest.mark.parametrize(
    ("error", "within_s"),
    [(ForbiddenError("403"), 95), (InvalidError("422"), 95), (UnavailableError("503"), 5), (ConflictError("409"), 5)],
    ids=repr,
)
async def test_a_status_that_is_not_taken_is_written_again(
    jumping: LoopTime, error: SlicebusError, within_s: float
) -> None:
    failures, written = [error] * 3, list[str]()

    class Executor:
        async def run(self, commands: Sequence[Command]) -> None:
            for command in commands:
                assert isinstance(command, Emit)
                if command.reason == "first" and failures:
                    raise failures.pop()
                written.append(command.reason)

    writer = StatusWriter(lambda _: WRITES, Executor(), of=(), interval_s=1.0)  # type: ignore[arg-type]
    task = asyncio.create_task(writer.run())
    await asyncio.sleep(0.5)
    assert written == ["second"]
    await asyncio.sleep(within_s)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "first" in written


@pytest.mark.parametrize("error", [ForbiddenError("403"), InvalidError("422"), WebhookError("500")], ids=repr)
async def test_a_status_that_is_refused_is_told_on_its_object(jumping: LoopTime, error: SlicebusError) -> None:
    write = Patch(resource=CLUSTERQUEUES, target=QUEUE, body={"status": {}}, subresource="status")
    told, tried = list[Emit](), list[float]()

    class Executor:
        async def run(self, commands: Sequence[Command]) -> None:
            for command in commands:
                if isinstance(command, Emit):
                    told.append(command)
                    continue
                tried.append(asyncio.get_running_loop().time())
                raise error

    writer = StatusWriter(lambda _: [write], Executor(), of=(), interval_s=1.0)  # type: ignore[arg-type]
    task = asyncio.create_task(writer.run())
    await asyncio.sleep(65)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert {(event.regarding["metadata"]["name"], event.reason, event.note) for event in told} == {
        ("cq", "NotShown", str(error))
    }
    assert len(tried) == 3, "every half a minute"


async def test_what_comes_together_is_written_once(jumping: LoopTime) -> None:
    """As the Workload of a job, and its admission a moment later."""
    told, cache, loop = list[float](), Cache(), asyncio.get_running_loop()

    def report(_: str) -> list[Command]:
        told.append(loop.time())
        return []

    writer = StatusWriter(report, None, of=[cache], interval_s=1.0)  # type: ignore[arg-type]
    task = asyncio.create_task(writer.run())
    await asyncio.sleep(5)
    began = loop.time()
    told.clear()
    for version, after_s in enumerate((0.0, 0.1, 0.1, 0.4, 0.1), start=1):
        await asyncio.sleep(after_s)
        cache.put({"metadata": {"name": "cq", "uid": "uid-cq", "resourceVersion": str(version)}})
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [at - began for at in told] == pytest.approx([0.25, 1.25])
