"""A user of elastic Jobs: creates them on the manager's cluster, and resizes them."""

import asyncio
import time
from typing import Any

from watched import Pods

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS

_LOOKS_S = 0.2


class User:
    """Makes changes, and waits for what comes of each."""

    def __init__(self, world: World, pods: Pods) -> None:
        self._world = world
        self._pods = pods

    async def create(self, *jobs: str, cpu: str = "1") -> None:
        """At once; returns when the pod of each may run."""
        await asyncio.gather(*(self._world.manager.create(JOBS, manifest_of(job, cpu)) for job in jobs))
        await asyncio.gather(*(self._pods.until_free(job, 1) for job in jobs))

    async def resize(self, job: str, count: int) -> float:
        """On the worker: the seconds until so many pods may run, and no others are there."""
        return await self._resize(self._world.workers[self._pods.place[job]], job, count)

    async def resize_on_manager(self, job: str, count: int) -> float:
        """The same, by the manager's Job."""
        return await self._resize(self._world.manager, job, count)

    async def all_ready(self) -> None:
        """Wait until the manager's Jobs show that all their pods are ready."""
        while True:
            page = await self._world.manager.list(JOBS, namespace=objects.NAMESPACE)
            if all(job.get("status", {}).get("ready") == job["spec"]["parallelism"] for job in page.items):
                return
            await asyncio.sleep(_LOOKS_S)

    async def _resize(self, client: KubeClient, job: str, count: int) -> float:
        began = time.perf_counter()
        await client.patch(JOBS, job, objects.NAMESPACE, MergePatch({"spec": {"parallelism": count}}))
        return await self._pods.until_free(job, count) - began


def manifest_of(name: str, cpu: str = "1") -> dict[str, Any]:
    """A Job of one pod."""
    job = objects.job(name)
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return job
