"""The state of a fleet at one moment, read from the API servers' watches as any client could."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from slicebus.ambient.cancellation import TaskGroup
from slicebus.cli.demo.world import World
from slicebus.kube.cache import Cache
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import PODS
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import ClusterName, Manifest
from slicebus.slices.api import kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import format_amount
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice


class SeenCluster(msgspec.Struct, frozen=True):
    """A worker cluster."""

    name: str
    connected: bool
    running: int
    gated: int


class SeenQuota(msgspec.Struct, frozen=True):
    """One resource of a flavor in a ClusterQueue; amounts as quantities, and the share that is used."""

    queue: str
    flavor: str
    resource: str
    used: str
    nominal: str
    share: float


class SeenSlice(msgspec.Struct, frozen=True):
    """One slice of a chain."""

    name: str
    counts: str
    state: str
    """`Admitted`, `Pending`, or the reason why it is finished."""
    message: str = ""


class SeenJob(msgspec.Struct, frozen=True):
    """One job: where it runs, its pods there, and its chain, oldest slice first."""

    kind: str
    name: str
    cluster: str
    running: int
    gated: int
    slices: tuple[SeenSlice, ...]


class Observation(msgspec.Struct, frozen=True):
    """A fleet at one moment."""

    clusters: tuple[SeenCluster, ...]
    quotas: tuple[SeenQuota, ...]
    jobs: tuple[SeenJob, ...]

    def job(self, name: str) -> SeenJob | None:
        """The job of that name."""
        return next((job for job in self.jobs if job.name == name), None)


class Observer:
    """Keeps caches of everything that the demo shows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = ManagerStore()
        self._pods: dict[ClusterName, Cache] = {name: Cache() for name in world.workers}
        self._changed = asyncio.Event()
        for cache in (*(cache for _, cache in self._store.caches()), *self._pods.values()):
            cache.subscribe(lambda _: self._changed.set())

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch until the context is left."""
        async with TaskGroup() as group:
            manager = self._world.manager
            reflectors = [Reflector(manager, resource, cache) for resource, cache in self._store.caches()]
            reflectors += [
                Reflector(client, PODS, self._pods[name], labels=kueue.POD_SET_LABEL)
                for name, client in self._world.workers.items()
            ]
            tasks = [group.create_task(reflector.run(), name="observe") for reflector in reflectors]
            for _, cache in self._store.caches():
                await cache.synced.wait()
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def until(self, seen: Callable[[Observation], bool]) -> None:
        """Return when the fleet is in the wanted state."""
        while not seen(self.look()):
            self._changed.clear()
            await self._changed.wait()

    def look(self) -> Observation:
        """The fleet now."""
        return Observation(clusters=tuple(self._clusters()), quotas=tuple(self._quotas()), jobs=tuple(self._jobs()))

    def _clusters(self) -> Iterable[SeenCluster]:
        for manifest in sorted(self._store.clusters.all(), key=lambda cluster: str(cluster["metadata"]["name"])):
            cluster = WorkerCluster.from_manifest(manifest)
            cache = self._pods.get(ClusterName(cluster.name))
            running, gated = _count(cache.all() if cache else ())
            yield SeenCluster(name=cluster.name, connected=cluster.connected, running=running, gated=gated)

    def _quotas(self) -> Iterable[SeenQuota]:
        usage = self._store.quotas.ledger.holdings.totals
        for queue in map(ClusterQueue.from_manifest, self._store.cluster_queues.all()):
            for (flavor, resource), nominal in queue.nominal.items():
                used = usage.get(queue.name, {}).get((flavor, resource), 0)
                yield SeenQuota(
                    queue=queue.name,
                    flavor=flavor,
                    resource=resource,
                    used=format_amount(resource, used),
                    nominal=format_amount(resource, nominal),
                    share=used / nominal if nominal else 0.0,
                )

    def _jobs(self) -> Iterable[SeenJob]:
        for ref in sorted(set(self._store.refs())):
            view = self._store.view(ref)
            cache = self._pods.get(view.cluster) if view.cluster else None
            pods = (pod for pod in (cache.all() if cache else ()) if pod["metadata"]["name"].startswith(f"{ref.name}-"))
            running, gated = _count(pods)
            yield SeenJob(
                kind=ref.kind,
                name=ref.name,
                cluster=view.cluster or "",
                running=running,
                gated=gated,
                slices=tuple(map(_seen, view.slices)),
            )


def _count(pods: Iterable[Manifest]) -> tuple[int, int]:
    """Running and gated pods."""
    running = gated = 0
    for pod in pods:
        running += pod.get("status", {}).get("phase") == "Running"
        gated += is_gated(pod)
    return running, gated


def _seen(slice: Slice) -> SeenSlice:
    counts = " ".join(f"{name}={count}" for name, count in slice.counts.items())
    if slice.finished:
        return SeenSlice(slice.name, counts, str(slice.conditions[Condition.FINISHED].get("reason", "Finished")))
    if slice.admitted:
        return SeenSlice(slice.name, counts, "Admitted")
    waiting = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    return SeenSlice(slice.name, counts, "Pending", str(waiting.get("message", "")))
