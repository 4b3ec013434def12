"""An event loop on a virtual clock: a fleet's day passes as fast as its code runs, and the same from the same seed."""

import asyncio
import selectors
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import tenacity

Result = TypeVar("Result")


class Stuck(AssertionError):
    """Nothing is left to wait for: every task waits for another."""


class _Leaping(selectors.BaseSelector):
    """Waits for no file: it leaps to the next timer. The loop's own wake-up socket is registered and never read."""

    def __init__(self) -> None:
        self.now = 0.0
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._registered[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("no task can go on, and no timer is set")
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._registered


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready; when nothing is, time leaps."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._leaping.now


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end on a clock of its own."""
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        # tenacity measures its deadlines by the machine's clock.
        patch.object(tenacity, "time", SimpleNamespace(monotonic=runner.get_loop().time)),
    ):
        return runner.run(main)
