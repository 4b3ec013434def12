"""Watches the fleet: clusters that fall silent, are given up and return, and clusters that are drained. The first shard
hears the heartbeats and says who is silent; the others go by what it shows.

A cluster is given up after `cluster_lost_requeue_s` without a message to this process. Every cluster gets this whole
time after a start, and again after more than half of them were silent at once. While a cluster is given up, no answer
opens the fence of its agent. When it speaks again, it first has to remove its copies of the jobs that went elsewhere.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog

from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.lasting_failures import OBJECT_PATIENCE, LastingFailures
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text
from slicebus.kube.workqueue import WorkQueue
from slicebus.manager.act.inbox import ManagerInbox
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster import relocation
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConflictError, DecisionError, PermanentError, TransientError
from slicebus.proto.messages import ClusterName, JobRef
from slicebus.runtime.executor import Executor
from slicebus.slices.api.conditions import Finding

_log = structlog.get_logger()
_TICKS = 10
"""How many checks there are within `cluster_lost_s`."""


class FleetWatch:
    """Notices silent clusters, and moves the jobs of lost and drained ones."""

    def __init__(
        self,
        *,
        cluster_lost_s: float,
        decide: Decider[ManagerStore],
        executor: Executor,
        inbox: ManagerInbox,
        resyncer: Resyncer,
        requeue: Callable[[JobRef], None],
    ) -> None:
        self._cluster_lost_s = cluster_lost_s
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._last_message_at = inbox.last_message_at
        self._refused = inbox.refused_clusters
        self._resyncer = resyncer
        self._requeue = requeue
        self._speaks_for_fleet = decide.state.shards.own.index == 0
        self._started_at = 0.0
        self._since = 0.0
        """The earliest time from which silence counts, in the loop's time."""
        self._silence: WorkQueue[ClusterName] = WorkQueue("fleet")
        self._failures = LastingFailures[ClusterName](OBJECT_PATIENCE)
        inbox.on_message(self._on_message)

    @property
    def refused(self) -> dict[ClusterName, str]:
        """The clusters of the fleet whose status the API server refuses to write, with its words."""
        told = {**self._refused, **self._silence.refused}
        return {name: text for name, text in told.items() if self._store.clusters.get(None, name) is not None}

    async def run(self) -> None:
        """Watch until cancelled."""
        self._since = self._started_at = asyncio.get_running_loop().time()
        async with TaskGroup() as group:
            group.create_task(self._silence.run(self._report_lost, workers=1), name="fleet-silence")
            while True:
                await asyncio.sleep(self._cluster_lost_s / _TICKS)
                names = [ClusterName(cluster.name) for cluster in self._store.quotas.worker_clusters]
                if self._store.settings.cluster_lost_requeue_s is not None:
                    await _guarded(self._assess_silent(names))
                if self._speaks_for_fleet:
                    for name in names:
                        self._silence.add(name)
                    await _guarded(self._report_returned())
                else:
                    await self._resyncer.ask_connected()
                await _guarded(self._move())

    async def _report_lost(self, name: ClusterName) -> None:
        silent_s = self._silent_s(name, self._started_at)
        if silent_s > self._cluster_lost_s:
            self._resyncer.forget(name)
            if shown := self._decide(catalog.lose, cluster=name, silent_s=silent_s, now=now_text()):
                _log.warning("cluster.silent", cluster=name, silent_s=round(silent_s, 1))
                await self._executor.run(shown)

    async def _assess_silent(self, names: list[ClusterName]) -> None:
        """Give up the clusters that have been silent for too long."""
        silent = {name: self._silent_s(name, self._started_at) for name in names}
        lost = [name for name in names if silent[name] > self._cluster_lost_s]
        outage = self._decide(catalog.is_outage, silent=lost)
        if outage:
            self._since = asyncio.get_running_loop().time()
        for name in names:
            silence_s = silent[name] if outage else self._silent_s(name, self._since)
            finding = self._decide(catalog.assess_silent, cluster=name, silent_s=silence_s, outage=outage)
            if finding is None:
                continue
            if finding.status and name not in self._store.given_up:
                # The table is written before the object: from now on no answer opens the fence of its agent.
                self._store.given_up[name] = True
                _log.warning("cluster.given_up", cluster=name)
                # Jobs that were evicted before need not wait for its report any more.
                for ref in self._store.jobs_on(name):
                    self._requeue(ref)
            await self._show(name, finding)

    async def _report_returned(self) -> None:
        """Write onto the clusters that are back that they are. An earlier manager may have given them up."""
        for cluster in self._store.quotas.worker_clusters:
            name = ClusterName(cluster.name)
            speaks = self._silent_s(name, self._started_at) <= self._cluster_lost_s
            is_shown = not cluster.given_up or name in self._store.given_up
            if is_shown or name not in self._last_message_at or not speaks:
                continue
            if self._decide(catalog.is_back, cluster=name):
                await self._show(name, relocation.returned())

    async def _move(self) -> None:
        evictions = self._decide(catalog.move)
        made_from = {decision.key: self._store.version_of(decision.key) for decision in evictions}
        for decision in evictions:
            version = made_from[decision.key]
            try:
                commands = self._decide(
                    catalog.apply_decision, decision=decision, version=version, in_turn=False, now=now_text()
                )
                if not commands:
                    continue
                await self._executor.run(commands)
            except (ConflictError, DecisionError, PermanentError, TransientError) as error:
                _log.info("chain.unmoved", slice=decision.key, error=str(error))
            else:
                _log.info("slice.evicted", slice=decision.key, reason=decision.reason)

    def _on_message(self, name: ClusterName) -> None:
        """Note a message from a cluster: it is back if it has no copy left."""
        with suppress(DecisionError):  # The next message asks again.
            if name in self._store.given_up and self._decide(catalog.is_back, cluster=name):
                del self._store.given_up[name]
                _log.info("cluster.returned", cluster=name)

    async def _show(self, name: ClusterName, finding: Finding) -> None:
        try:
            if shown := self._decide(catalog.show_standing, cluster=name, finding=finding, now=now_text()):
                _log.info("cluster.standing", cluster=name, given_up=finding.status, reason=finding.reason)
                await self._executor.run(shown)
                self._refused.pop(name, None)
                self._failures.forget(name)
        except (ConflictError, DecisionError, TransientError) as error:
            _log.info("cluster.unwritten", cluster=name, error=str(error))
            if self._failures.has_lasted(name, error, now_s=asyncio.get_running_loop().time()):
                self._refused[name] = str(error)
        except PermanentError as error:
            self._refused[name] = str(error)
            _log.warning("cluster.unwritten", cluster=name, error=str(error))

    def _silent_s(self, name: ClusterName, since: float) -> float:
        return asyncio.get_running_loop().time() - max(self._last_message_at.get(name, since), since)


async def _guarded(step: Coroutine[Any, Any, None]) -> None:
    """One part of a round. A decision that raises ends it, and neither the other parts nor the later rounds."""
    try:
        await step
    except DecisionError as error:
        _log.error("fleet.undecided", error=str(error), exc_info=error)
