"""Looks at the way to the manager, and has shown on jobs that it is not reached. `decide.reach` has the rule.

A look asks the broker how many consumers the queue has of what the cluster sends. That is one request of each agent in
ten seconds, and the manager does nothing for it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from slicebus.agent.decide import catalog
from slicebus.agent.decide.reach import Look, Moment, Unreached, Way, after, unreached
from slicebus.agent.decide.waiting import shows_unreached
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.ambient.yield_budget import YieldBudget
from slicebus.bus.contract import Bus
from slicebus.decisions.decider import Decider
from slicebus.decisions.guard import guarded
from slicebus.kube.times import now_text
from slicebus.proto.errors import ConflictError, DecisionError, NotFoundError, PermanentError, TransientError
from slicebus.runtime.executor import Executor

_log = structlog.get_logger()
_LOOK_S = 10.0
"""The pause between looks while all is well."""
_AGAIN_S = 2.0
"""The pause while something is not, and between looks at the connection, which ask nobody."""
_ANSWER_S = 5.0


class Reach:
    """Knows whether this agent reaches its manager."""

    def __init__(
        self,
        bus: Bus,
        queue: str,
        *,
        decide: Decider[AgentStore],
        executor: Executor,
        requeue: Callable[[JobKey], None],
    ) -> None:
        """`queue` is that of what the cluster sends, which the manager reads."""
        self._bus = bus
        self._queue = queue
        self._decide = decide
        self._executor = executor
        self._requeue = requeue
        self._way: Way | None = None
        self._asked_s = 0.0
        self._changed: set[JobKey] = set()
        """The jobs that may not show what is not reached, while something is not."""
        self.unreached: Unreached | None = None
        """What is not reached; None where all is well."""

    @property
    def problem(self) -> str:
        """The same for people; empty where all is well."""
        return self.unreached.message if self.unreached is not None else ""

    async def run(self) -> None:
        """Look until cancelled."""
        self._way = Way(_now())
        self._decide.state.on_change(self._note)
        while True:
            if (look := await self._look(self._way)) is not None:
                self._way = after(self._way, look, _now())
            found = unreached(self._way, asyncio.get_running_loop().time())
            if found != self.unreached:
                await self._turn(found)
            if found is not None:
                await self._show(found)
            await asyncio.sleep(_AGAIN_S)

    async def _look(self, way: Way) -> Look | None:
        """One look; None where nothing is due."""
        if not self._bus.connected:
            return Look("there is no connection to it")
        if self._bus.blocked:
            return Look(f"it takes nothing from publishers, {self._bus.blocked}")
        now_s = asyncio.get_running_loop().time()
        if way.unread is None and way.away is None and now_s - self._asked_s < _LOOK_S:
            return None
        self._asked_s = now_s
        try:
            async with asyncio.timeout(_ANSWER_S):
                return Look(is_read=(await self._bus.depth(self._queue)).consumers > 0)
        except NotFoundError:
            return Look(is_read=False)
        except (TransientError, PermanentError, TimeoutError) as error:
            _log.info("manager.unknown", queue=self._queue, error=str(error))
            return Look()

    async def _turn(self, found: Unreached | None) -> None:
        """Have it shown on every job that waits for an answer, or no longer."""
        before, self.unreached = self.unreached, found
        self._changed = set(self._decide.state.our_jobs())
        if found is not None:
            _log.warning("manager.not_reached", reason=found.reason, message=found.message)
            return
        _log.info("manager.reached", after=before.message if before is not None else "")
        budget = YieldBudget()
        for key in self._changed:
            await budget.yield_if_spent()
            with suppress(DecisionError):
                if guarded(shows_unreached, guarded(self._decide.state.view, key)):
                    self._requeue(key)

    def _note(self, key: JobKey) -> None:
        if self.unreached is not None:
            self._changed.add(key)

    async def _show(self, found: Unreached) -> None:
        """Show it on the jobs that have changed. A publish that waits for the broker holds the lock of its job, so this
        does not take it: a write that conflicts is made after the next look."""
        changed, self._changed = self._changed, set()
        budget = YieldBudget()
        for key in changed:
            await budget.yield_if_spent()
            try:
                await self._executor.run(self._decide(catalog.show_unreached, key=key, unreached=found))
            except (ConflictError, TransientError):
                self._changed.add(key)
            except (DecisionError, PermanentError) as error:
                _log.info("job.unshown", job=str(key), error=str(error))


def _now() -> Moment:
    return Moment(asyncio.get_running_loop().time(), now_text())
