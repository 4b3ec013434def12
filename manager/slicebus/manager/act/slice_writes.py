"""Writes what the admission has decided about slices, some at once.

The cycle waits for its writes, but not for one that takes long, as where a webhook on Workloads hangs: that goes on
beside the next cycles, which decide nothing about its slice. A slice whose write has failed is left alone for a while,
longer after each failure in a row. Others of its tree go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.long_calls import LONG_S, MOST, LongCalls
from slicebus.ambient.timers import Timers
from slicebus.proto.errors import SlicebusError
from slicebus.slices.admission.cycle import Decision
from slicebus.slices.workload.workload import SliceKey

_RETRY = Backoff(first_s=0.2, most_s=10.0)
"""The pauses before a decision about one slice is written again."""


class SliceWrites:
    """The writes of one admitter."""

    def __init__(
        self,
        write: Callable[[Decision, str], Awaitable[SlicebusError | None]],
        *,
        at_once: int,
        is_long: Callable[[Decision, str], None],
        due: Callable[[SliceKey], None],
    ) -> None:
        """`write` writes a decision that was made from a resourceVersion, and returns the error for which that is tried
        again. `is_long` gets each that is no longer waited for. `due` gets a slice about which something may have to
        be decided: its pause is over, or a write that took long."""
        self._write = write
        self._due = due
        self._at_once = at_once
        self._is_long = is_long
        self._long_calls = LongCalls()
        self._pauses = Timers[SliceKey](due)
        self._failures: dict[SliceKey, int] = {}
        """How often in a row the decisions about a slice could not be written."""
        self._under_way: set[SliceKey] = set()
        self._slow: set[SliceKey] = set()
        """The slices whose last write took long: nobody waits for the next one."""

    def has_failed(self, key: SliceKey) -> bool:
        """Whether the last write about a slice failed."""
        return key in self._failures

    def forget(self, key: SliceKey) -> None:
        """Forget how the writes of a slice went: it is gone."""
        self._failures.pop(key, None)
        self._slow.discard(key)
        self._pauses.stop(key)

    async def carry_out(self, decided: Iterable[tuple[Decision, str]], group: asyncio.TaskGroup) -> None:
        """Return when each decision was written, or takes long. The group has the writes. Nothing becomes of a second
        decision about a slice: the write of the first leads to another cycle."""
        free, waited_for = asyncio.Semaphore(self._at_once), list[asyncio.Event]()
        for decision, version in decided:
            key = decision.key
            if key in self._pauses or key in self._under_way:
                continue
            if key not in self._slow:
                waited_for.append(asyncio.Event())
                write = self._in_turn(decision, version, free, waited_for[-1])
            elif len(self._under_way) < MOST:
                self._is_long(decision, version)
                write = self._beside(decision, version)
            else:
                self._pauses.start(key, LONG_S)
                continue
            self._under_way.add(key)
            group.create_task(write, name=f"admit:{key}")
        for settled in waited_for:
            await settled.wait()

    async def _in_turn(self, decision: Decision, version: str, free: asyncio.Semaphore, settled: asyncio.Event) -> None:
        await free.acquire()

        def let_go() -> None:
            free.release()
            settled.set()

        def is_long() -> None:
            self._slow.add(decision.key)
            self._is_long(decision, version)
            let_go()

        with self._long_calls.noticed(is_long) as call:
            await self._one(decision, version)
        if call.is_long:
            self._due(decision.key)
        else:
            let_go()

    async def _beside(self, decision: Decision, version: str) -> None:
        """Write a decision about a slice whose last write took long."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await self._one(decision, version)
        if clock() - began < LONG_S:
            self._slow.discard(decision.key)
        self._due(decision.key)

    async def _one(self, decision: Decision, version: str) -> None:
        key = decision.key
        try:
            failure = await self._write(decision, version)
        finally:
            self._under_way.remove(key)
        if failure is None:
            self._failures.pop(key, None)
        else:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._pauses.start(key, _RETRY.pause_s(self._failures[key], failure))
