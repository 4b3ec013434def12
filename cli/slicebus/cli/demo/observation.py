"""The state of a fleet at one moment, read from the API servers' watches as any client could."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from slicebus.ambient.cancellation import TaskGroup
from slicebus.cli.demo.world import World
from slicebus.cli.live.observation import Observation, PodCount, observe
from slicebus.kube.cache import Cache
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import PODS
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, Manifest
from slicebus.slices.api import kueue
from slicebus.slices.workload.ungate import is_gated


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
        return observe(self._store, self._store.refs(), self._count, ended_slices=True)

    def _count(self, view: JobView) -> PodCount:
        cache = self._pods.get(view.cluster) if view.cluster else None
        pods = cache.all() if cache else ()
        return _count(pod for pod in pods if pod["metadata"]["name"].startswith(f"{view.ref.name}-"))


def _count(pods: Iterable[Manifest]) -> PodCount:
    running = gated = 0
    for pod in pods:
        running += pod.get("status", {}).get("phase") == "Running"
        gated += is_gated(pod)
    return PodCount(running, gated)
