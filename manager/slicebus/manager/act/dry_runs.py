"""Keeps the verdict on jobs that are only asked about."""

import asyncio

import structlog

from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text
from slicebus.manager.decide import catalog
from slicebus.manager.decide.forecast import dry_runs
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConflictError, DecisionError, PermanentError, TransientError
from slicebus.proto.messages import JobRef
from slicebus.runtime.executor import Executor

_log = structlog.get_logger()
_ROUND_S = 1.0
_SHARE = 0.1
"""Of the time: however many jobs are asked about, those that run come first."""


class DryRuns:
    """Writes the verdicts anew after changes, at most once a second for all."""

    def __init__(self, decide: Decider[ManagerStore], executor: Executor) -> None:
        self._decide = decide
        self._executor = executor
        self._changed = asyncio.Event()
        for _, cache in decide.state.caches():
            cache.subscribe(lambda _: self._note_change())

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for job in [*dry_runs.asked(self._decide.state)]:
                took_s = await self._show(job)
                await asyncio.sleep(took_s / _SHARE)
            await asyncio.sleep(_ROUND_S)

    def _note_change(self) -> None:
        """In a fleet where nobody asks, nothing is looked at."""
        if dry_runs.are_there(self._decide.state):
            self._changed.set()

    async def _show(self, job: JobRef) -> float:
        """Write one; how long the decision took, in seconds."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        try:
            commands = self._decide(catalog.show_verdict, job=job, now=now_text())
            took_s = clock() - began_s
            await self._executor.run(commands)
        except DecisionError as error:
            _log.error("dry_run.undecided", job=job.key, error=str(error))
            return clock() - began_s
        except (ConflictError, TransientError) as error:
            _log.info("dry_run.unwritten", job=job.key, error=str(error))
            self._changed.set()
        except PermanentError as error:
            _log.warning("dry_run.refused", job=job.key, error=str(error))
        return took_s
