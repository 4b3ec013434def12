"""Keeps the status of objects that users have made: queues and admission checks. An Event says what is refused."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from slicebus.ambient.timers import Timers
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.cache import Cache
from slicebus.kube.times import now_text
from slicebus.proto.errors import ConflictError, DecisionError, PermanentError, TransientError, WebhookError
from slicebus.runtime.executor import NOT_SHOWN, Executor

_log = structlog.get_logger()
_REFUSED_S = 30.0
"""How much later a write that the API server has refused is tried again."""
_GATHERED = 0.25
"""The part of the interval that passes between a change and its report: what follows from one admission comes within
it, and is written once."""


class StatusWriter:
    """Writes changed statuses at most once in `interval_s` seconds: no decision depends on them."""

    def __init__(
        self, report: Callable[[str], list[Command]], executor: Executor, *, of: Iterable[Cache], interval_s: float
    ) -> None:
        """`report` decides what to write, given the time as RFC 3339. `of` are the caches that it depends on."""
        self._decide = report
        self._executor = executor
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._refused = Timers[None](lambda _: self._changed.set())
        self._changed.set()
        for cache in of:
            cache.subscribe(lambda _: self._changed.set())

    def look_again(self) -> None:
        """Report soon, although no object has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(self._interval_s * _GATHERED)
            self._changed.clear()
            await self._report()
            await asyncio.sleep(self._interval_s * (1 - _GATHERED))

    async def _report(self) -> None:
        try:
            commands = self._decide(now_text())
        except DecisionError as error:
            # The next change leads to the next try.
            _log.error("status.undecided", error=str(error), exc_info=error)
            return
        for command in commands:
            try:
                await self._executor.run([command])
            except (PermanentError, WebhookError) as error:
                _log.warning("status.refused", error=str(error))
                self._refused.start(None, _REFUSED_S)
                if isinstance(command, Patch):
                    told = Emit(regarding=command.target, reason=NOT_SHOWN, note=str(error), warning=True)
                    await self._executor.run([told])
            except (ConflictError, TransientError) as error:
                _log.info("status.unwritten", error=str(error))
                self._changed.set()
