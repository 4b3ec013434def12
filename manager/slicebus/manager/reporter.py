"""Keeps the status of the queues."""

import asyncio

import structlog

from slicebus.kube.times import now_text
from slicebus.manager import decisions
from slicebus.manager.store import Store
from slicebus.process.decisions import Decider
from slicebus.process.executor import Executor
from slicebus.proto.errors import ConflictError, TransientError
from slicebus.slices.sharing import FairSharing

_log = structlog.get_logger()


class QueueReporter:
    """Writes what has changed, at most once in `interval_s`: nobody decides by it."""

    def __init__(
        self, decide: Decider[Store], executor: Executor, *, interval_s: float, fair_sharing: FairSharing
    ) -> None:
        store = decide.state
        self._decide = decide
        self._executor = executor
        self._interval_s = interval_s
        self._fair_sharing = fair_sharing
        self._changed = asyncio.Event()
        self._changed.set()
        for cache in (store.workloads, store.cluster_queues, store.cohorts, store.local_queues):
            cache.subscribe(lambda _: self._changed.set())

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._report()
            await asyncio.sleep(self._interval_s)

    async def _report(self) -> None:
        commands = self._decide(decisions.report_queues, now=now_text(), fair_sharing=self._fair_sharing)
        for command in commands:
            try:
                await self._executor.run([command])
            except (ConflictError, TransientError) as error:
                _log.info("queue.status.unwritten", error=str(error))
                self._changed.set()
