"""Looks at the way to the manager, and has shown on jobs that it is not reached. `decide.cluster.reach` has the rule.

A look asks the broker how many consumers the queue has of what the cluster sends. That is one request of each agent in
ten seconds, and the manager does nothing for it. Another shard of the manager is looked at while it owes an answer.
"""

import asyncio
from collections.abc import Callable

import structlog

from slicebus.agent.act.addressees import Addressees
from slicebus.agent.decide import catalog
from slicebus.agent.decide.cluster.reach import NOT_KNOWN, Look, Moment, Unreached, Way, after, unreached
from slicebus.agent.decide.job.waiting import shows_unreached
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.ambient.yield_budget import YieldBudget
from slicebus.bus.contract import Bus
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text
from slicebus.proto.errors import ConflictError, DecisionError, NotFoundError, PermanentError, TransientError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import cluster_queue, manager_queue
from slicebus.runtime.executor import Executor
from slicebus.slices.workload.waiting import BROKER_NOT_REACHED

_log = structlog.get_logger()
_LOOK_S = 10.0
"""The pause between looks while all is well."""
_AGAIN_S = 2.0
"""The pause while something is not, and between looks at the connection, which ask nobody."""
_ANSWER_S = 5.0
_Found = dict[int, Unreached | None]
"""What is not reached, by shard of the manager; None where all is well."""


class Reach:
    """Knows whether this agent reaches its manager."""

    def __init__(
        self,
        bus: Bus,
        cluster: ClusterName,
        *,
        decide: Decider[AgentStore],
        executor: Executor,
        addressees: Addressees,
        requeue: Callable[[JobKey], None],
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._decide = decide
        self._executor = executor
        self._addressees = addressees
        self._requeue = requeue
        self._ways: dict[int, Way] = {}
        self._asked_s: dict[int, float] = {}
        self._found: _Found = {0: NOT_KNOWN}
        self._changed: set[JobKey] = set()
        """The jobs that may not show what is not reached, while something is not."""

    @property
    def problem(self) -> str:
        """What is not reached, for people; empty where all is well."""
        return next((found.message for found in self._found.values() if found is not None and found.reason), "")

    def of(self, key: JobKey) -> Unreached | None:
        """What keeps the requests of a job from being answered."""
        first = self._found[0]
        shard = self._shard_of(key)
        if not shard:
            return first
        # Before a request is published, nobody has looked at the shard.
        return self._found.get(shard, first if first is not None and first.reason == BROKER_NOT_REACHED else None)

    async def run(self) -> None:
        """Look until cancelled."""
        self._decide.state.on_change(self._note)
        while True:
            found = await self._look()
            if found != self._found:
                await self._turn(found)
            if self.problem:
                await self._show()
            await asyncio.sleep(_AGAIN_S)

    async def _look(self) -> _Found:
        shards = sorted({0, *self._addressees.asked})
        self._ways = {shard: self._ways.get(shard) or Way(_now(), is_known=shard > 0) for shard in shards}
        for shard, way in self._ways.items():
            if (look := await self._look_at(shard, way)) is not None:
                self._ways[shard] = after(way, look, _now())
        now_s = asyncio.get_running_loop().time()
        return {shard: unreached(way, now_s, shard=shard) for shard, way in self._ways.items()}

    async def _look_at(self, shard: int, way: Way) -> Look | None:
        """One look; None where nothing is due."""
        if not self._bus.connected:
            return Look("there is no connection to it")
        if self._bus.blocked:
            return Look(f"it takes nothing from publishers, {self._bus.blocked}")
        now_s = asyncio.get_running_loop().time()
        if way.unread is None and way.away is None and now_s - self._asked_s.get(shard, 0.0) < _LOOK_S:
            return None
        self._asked_s[shard] = now_s
        lane = Lane.CONTROL
        queue = manager_queue(lane, shard) if shard else cluster_queue(self._cluster, lane)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return Look(is_read=(await self._bus.depth(queue)).consumers > 0)
        except NotFoundError:
            return Look(is_read=False)
        except (TransientError, PermanentError, TimeoutError) as error:
            _log.info("manager.unknown", queue=queue, error=str(error))
            return Look()

    async def _turn(self, found: _Found) -> None:
        """Have it shown on every job that waits for an answer, or no longer."""
        before, self._found = self.problem, found
        if self.problem:
            _log.warning("manager.not_reached", message=self.problem)
        elif before:
            _log.info("manager.reached", after=before)
        self._changed, budget = set(self._decide.state.our_jobs()), YieldBudget()
        for key in self._changed.copy():
            await budget.yield_if_spent()
            if (job := self._decide.state.reading(key)) is not None and shows_unreached(job):
                self._requeue(key)

    def _note(self, key: JobKey) -> None:
        if self.problem:
            self._changed.add(key)

    async def _show(self) -> None:
        """Show it on the jobs that have changed. A publish that waits for the broker holds the lock of its job, so this
        does not take it: a write that conflicts is made after the next look."""
        changed, self._changed = self._changed, set()
        budget = YieldBudget()
        for key in changed:
            await budget.yield_if_spent()
            try:
                if (unreached := self.of(key)) is not None:
                    await self._executor.run(self._decide(catalog.show_unreached, key=key, unreached=unreached))
            except (ConflictError, TransientError):
                self._changed.add(key)
            except (DecisionError, PermanentError) as error:
                _log.info("job.unshown", job=str(key), error=str(error))

    def _shard_of(self, key: JobKey) -> int:
        if not self._addressees.asked:
            return 0
        job = self._decide.state.reading(key)
        return self._addressees.of_job(job.ref.uid) if job is not None else 0


def _now() -> Moment:
    return Moment(asyncio.get_running_loop().time(), now_text())
