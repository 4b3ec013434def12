"""Consumes what each accepted cluster's agent publishes, from queues of its own.

A cluster that sends without end fills its own queues, which the broker bounds, and waits for its own turns: it delays
no other one (docs/decisions/0065). What comes from a cluster that is not accepted goes to the queues of strangers.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import structlog

from slicebus.ambient.backoff import Backoff
from slicebus.bus.contract import Bus
from slicebus.kube.cache import Change
from slicebus.manager.act.inbox import ManagerInbox
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import Sender
from slicebus.proto.errors import PermanentError, TransientError
from slicebus.proto.messages import ClusterName, Lane
from slicebus.proto.topology import cluster_queue, cluster_topology

_log = structlog.get_logger()
KEPT_BYTES = 64 * 1024
"""What is kept of an agent's message, at most (`most_bytes` of its type). Heartbeats are larger, and two of a cluster
wait at most."""
_PREFETCH = 32
"""Messages of each lane of a cluster that this process holds, at most."""
_LEAST_PREFETCH = 8
"""The same in the largest fleet. With fewer a lane would stand still for some messages that hang."""
_AT_ONCE = 8
"""So many clusters get their queues at once: a manager that begins has all of them to make."""
_LOOKS_S = 0.5
"""The pause between looks whether the queues of a cluster that is accepted no more are empty."""
_AGAIN = Backoff(first_s=0.5, most_s=30.0)


class ClusterLanes:
    """Makes and consumes the queues of every cluster that is accepted, and unbinds those of others."""

    def __init__(
        self,
        bus: Bus,
        store: ManagerStore,
        inbox: ManagerInbox,
        resyncer: Resyncer,
        *,
        most_prefetch: int,
        held_bytes: int,
    ) -> None:
        """`held_bytes`: of the messages of all clusters together, which get equal shares of it."""
        self._bus = bus
        self._store = store
        self._inbox = inbox
        self._resyncer = resyncer
        self._most_prefetch = most_prefetch
        self._held_bytes = held_bytes
        self._bound: dict[ClusterName, asyncio.Event] = {}
        """The clusters that have a task, each with what wakes that when its WorkerCluster changes."""
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._changed = asyncio.Event()
        store.clusters.subscribe(self._follow)

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Begin a task for each cluster that there is, and that comes, until cancelled."""
        while True:
            self._changed.clear()
            for name in self._names():
                if name not in self._bound:
                    self._bound[name] = asyncio.Event()
                    group.create_task(self._serve(name, self._bound[name]), name=f"cluster:{name}")
            await self._changed.wait()

    def _prefetch(self) -> int:
        """The prefetch of a lane of a cluster that begins now. Those that began with fewer clusters keep theirs: a
        consumer that ends gives its messages back, and each may come back only so many times."""
        share = self._held_bytes // (len(self._bound) * len(Lane) * KEPT_BYTES)
        return min(self._most_prefetch, _PREFETCH, max(_LEAST_PREFETCH, share))

    def _names(self) -> Iterator[ClusterName]:
        return (ClusterName(cluster["metadata"]["name"]) for cluster in self._store.clusters.all())

    def _follow(self, change: Change) -> None:
        name = ClusterName((change.new or change.old or {})["metadata"]["name"])
        is_new = name not in self._bound
        if is_new or _is_accepted(change.old) != _is_accepted(change.new):
            self._changed.set() if is_new else self._bound[name].set()

    def _is_wanted(self, name: ClusterName) -> bool:
        return _is_accepted(self._store.clusters.get(None, name))

    async def _serve(self, name: ClusterName, changed: asyncio.Event) -> None:
        """Consume the queues of one cluster while it is accepted. They are made anew where they have gone, and the
        cluster is then asked for what lay in them."""
        failures = 0
        while True:
            changed.clear()
            try:
                if self._is_wanted(name):
                    await self._consume(name, changed)
                else:
                    async with self._room:
                        await self._bus.unbind(cluster_topology(name).bindings)
                    await changed.wait()
                failures = 0
            except (PermanentError, TransientError) as error:
                # What lay in queues that have gone is asked for.
                failures += 1
                _log.warning("cluster.queues.awaited", cluster=name, error=str(error))
                self._resyncer.forget(name)
                await asyncio.sleep(_AGAIN.pause_s(failures))

    async def _consume(self, name: ClusterName, changed: asyncio.Event) -> None:
        """Make the queues, and consume them until the cluster is accepted no more, and nothing is left in them: that is
        refused as a stranger's. Somebody may delete the queues then, and deletes none that has a consumer: RabbitMQ
        3.10 may close the whole connection of one."""
        async with self._room:
            await self._bus.declare(cluster_topology(name))
        running = self._inbox.run_cluster(name, prefetch=self._prefetch())
        consuming = asyncio.create_task(running, name=f"inbox:{name}")
        ending = asyncio.create_task(self._until_unwanted(name, changed), name=f"ending:{name}")
        try:
            await asyncio.wait((consuming, ending), return_when=asyncio.FIRST_COMPLETED)
            (consuming if consuming.done() else ending).result()
        finally:
            consuming.cancel()
            ending.cancel()
            await asyncio.gather(consuming, ending, return_exceptions=True)

    async def _until_unwanted(self, name: ClusterName, changed: asyncio.Event) -> None:
        """Return when a cluster is accepted no more and its queues are empty. It may be accepted again before."""
        while True:
            if self._is_wanted(name):
                await changed.wait()
            elif await self._is_drained(name):
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOKS_S):
                        await changed.wait()
            if changed.is_set():
                changed.clear()
                if self._is_wanted(name):
                    await self._bus.declare(cluster_topology(name))

    async def _is_drained(self, name: ClusterName) -> bool:
        await self._bus.unbind(cluster_topology(name).bindings)
        depths = [await self._bus.depth(cluster_queue(name, lane)) for lane in Lane]
        return not any(depth.ready for depth in depths)


def _is_accepted(cluster: dict[str, object] | None) -> bool:
    return cluster is not None and Sender.from_manifest(cluster).accepted
