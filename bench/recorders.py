"""A manager and an agent whose recorders can be switched off, and count the processor time that they take."""

import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from types import coroutine
from typing import Any, ClassVar

from slicebus.agent.app import Agent
from slicebus.journal.recorder import Recorder
from slicebus.journal.recording import Record, Source
from slicebus.manager.app import Manager
from slicebus.runtime.role import Role


class MeasuredRecorder(Recorder):
    """Can be switched off, and counts the processor time of every recorder in this process."""

    on: ClassVar[bool] = True
    took_s: ClassVar[float] = 0.0

    def add(self, make: Callable[[], Record]) -> None:
        if self.on:
            with _counted():
                super().add(make)

    async def _run(self) -> None:
        await _counted_steps(super()._run())


@contextmanager
def _counted() -> Iterator[None]:
    began = time.thread_time()
    try:
        yield
    finally:
        MeasuredRecorder.took_s += time.thread_time() - began


@coroutine
def _counted_steps(steps: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """What a coroutine does, without its waiting."""
    step = partial(steps.send, None)
    while True:
        try:
            with _counted():
                waits = step()
        except StopIteration:
            return
        try:
            step = partial(steps.send, (yield waits))
        except BaseException as error:  # noqa: BLE001 also the cancellation is the coroutine's
            step = partial(steps.throw, error)


class Measured(Role[Any]):
    def recorder(self, source: Source) -> Recorder:
        return MeasuredRecorder(self._bus, source, registry=self._registry, wait_s=self.record_wait_s)


class MeasuredManager(Measured, Manager): ...


class MeasuredAgent(Measured, Agent): ...
