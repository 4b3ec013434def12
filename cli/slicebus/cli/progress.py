"""Shows how far long work is: on a terminal only, beside the result, and not before two seconds."""

import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from slicebus.cli import screen

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_S = 2.0
"""Work that takes no longer shows nothing."""
_REFRESH_S = 0.1


class WorkProgress:
    """Counts the steps of some work. Shown are how many there were, their rate, and the time that is left."""

    def __init__(
        self, work: str, unit: str, *, total: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work, self._unit, self._total, self._clock = work, unit, total, clock
        self._began_s = clock()
        self._next_s = self._began_s + QUIET_S
        self._count = 0
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, share: float | None = None) -> None:
        """One more step is done. `share` is how much of the work is, from 0 to 1, where there is no total; None where
        nobody knows."""
        self._count += 1
        share = self._count / self._total if self._total else share
        now_s = self._clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _REFRESH_S
        bar = self._bar or screen.progress_bar()
        if bar is None:
            self._next_s = float("inf")  # There is no terminal.
            return
        task = bar.task_ids[0] if bar.task_ids else bar.add_task(self._work, total=None, told="", left="")
        told = f"{self._count:,} {self._unit}, {self._count / (now_s - self._began_s):,.0f}/s"
        bar.update(task, told=told)
        if share is not None:
            bar.update(task, completed=share, total=1.0, left="left")
        if self._bar is None:
            bar.start()
            self._bar = bar


def share_between(at: datetime | None, first: datetime | None, last: datetime) -> float | None:
    """How far a reading from one time to another is; None without the times."""
    if at is None or first is None or last <= first:
        return None
    return min(1.0, max(0.0, (at - first) / (last - first)))
