"""Runs the admission cycle whenever something that it decides by has changed.

There is one admitter in the fleet: the manager that holds the lease. What it has admitted is in its cache before it
decides again. An admission whose write got no answer may or may not be there: until the object is seen at another
version, the slice is counted as admitted, and the same write is tried again.
"""

import asyncio

import msgspec
import structlog

from slicebus.kube.cache import Change
from slicebus.kube.times import now_text
from slicebus.manager import verdicts
from slicebus.manager.fleet import WorkerCluster
from slicebus.manager.store import Store, owner_ref
from slicebus.process.executor import Executor
from slicebus.proto.errors import ConflictError, PermanentError, TransientError
from slicebus.slices.admission import Admit, Decision, Snapshot, cycle
from slicebus.slices.placement import Cluster
from slicebus.slices.quota import LocalQueue, ResourceFlavor
from slicebus.slices.workload import Slice, SliceKey

_log = structlog.get_logger()
_CONCURRENT_WRITES = 16
_RETRY_S = 0.2


class _Uncertain(msgspec.Struct, frozen=True):
    """An admission that was sent and not answered."""

    decision: Admit
    resource_version: str


class Admitter:
    """The one that gives quota."""

    def __init__(self, store: Store, executor: Executor) -> None:
        self._store = store
        self._executor = executor
        self._changed = asyncio.Event()
        self._uncertain: dict[SliceKey, _Uncertain] = {}
        for cache in (store.workloads, store.cluster_queues, store.local_queues, store.flavors):
            cache.subscribe(lambda _: self._changed.set())
        store.clusters.subscribe(self._cluster_changed)

    async def run(self) -> None:
        """Decide until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not await self._cycle():
                await asyncio.sleep(_RETRY_S)
                self._changed.set()

    def _cluster_changed(self, change: Change) -> None:
        """A heartbeat changes the object every few seconds, and seldom anything that a placement depends on."""
        old, new = (WorkerCluster.from_manifest(m) if m else None for m in (change.old, change.new))
        if old != new:
            self._changed.set()

    async def _cycle(self) -> bool:
        """One pass; False when something has to be looked at again without a change."""
        self._forget_certain()
        decisions = cycle(self._snapshot()) + [uncertain.decision for uncertain in self._uncertain.values()]
        free = asyncio.Semaphore(_CONCURRENT_WRITES)

        async def carry_out(decision: Decision) -> bool:
            async with free:
                return await self._carry_out(decision)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(carry_out(d), name=f"admit:{d.key}") for d in decisions]
        return all(task.result() for task in tasks)

    async def _carry_out(self, decision: Decision) -> bool:
        slice = self._store.slices.get(decision.key)
        workload = self._store.workloads.get(slice.namespace, slice.name) if slice else None
        ref = owner_ref(workload) if workload else None
        if slice is None or workload is None or ref is None:
            return True
        commands = verdicts.commands(self._store.view(ref), slice, decision, now=now_text())
        try:
            await self._executor.run(commands)
        except ConflictError:
            return False
        except TransientError as error:
            _log.warning("admission.unanswered", slice=decision.key, error=str(error))
            if isinstance(decision, Admit):
                version = workload["metadata"]["resourceVersion"]
                self._uncertain[decision.key] = _Uncertain(decision, version)
            return False
        except PermanentError as error:
            # One object that the server refuses must not end the admission of all others.
            _log.error("admission.refused", slice=decision.key, error=str(error))
            return True
        if isinstance(decision, Admit):
            _log.info("slice.admitted", slice=decision.key, cluster=decision.cluster)
        return True

    def _forget_certain(self) -> None:
        """Once an object has another version, a write that was fenced by the old one can no longer happen."""
        for key, uncertain in list(self._uncertain.items()):
            namespace, _, name = key.partition("/")
            workload = self._store.workloads.get(namespace, name)
            if workload is None or workload["metadata"]["resourceVersion"] != uncertain.resource_version:
                del self._uncertain[key]

    def _snapshot(self) -> Snapshot:
        store = self._store
        local_queues = [LocalQueue.from_manifest(manifest) for manifest in store.local_queues.all()]
        flavors = [ResourceFlavor.from_manifest(manifest) for manifest in store.flavors.all()]
        return Snapshot(
            cluster_queues=store.readable_cluster_queues(),
            local_queues={(queue.namespace, queue.name): queue for queue in local_queues},
            flavors={flavor.name: flavor for flavor in flavors},
            slices=tuple(self._assumed(slice) for slice in store.slices.values()),
            clusters=tuple(
                Cluster(
                    name=cluster.name,
                    accepted=cluster.accepted,
                    cordoned=cluster.cordoned,
                    connected=cluster.connected,
                    weight=cluster.weight,
                )
                for cluster in store.worker_clusters()
            ),
        )

    def _assumed(self, slice: Slice) -> Slice:
        uncertain = self._uncertain.get(slice.key)
        if uncertain is None:
            return slice
        decision = uncertain.decision
        return msgspec.structs.replace(slice, admission=decision.admission, cluster=decision.cluster)
