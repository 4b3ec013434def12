"""The demo's scenario: acts, each with its changes and the state that ends it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from slicebus.cli.demo import objects
from slicebus.cli.demo.observation import Observer
from slicebus.cli.demo.world import World
from slicebus.cli.live.observation import Observation, PodCount
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOBS, RAYCLUSTERS
from slicebus.proto.errors import NotFoundError, UnavailableError
from slicebus.proto.messages import ClusterName
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler

QUOTA_CPU = 12
"""It holds the sweep's 5 cores, and the train's 5 and its head. Three more do not fit until both have shrunk to 3."""
_JOBS = {"sweep": JOBS, "train": RAYCLUSTERS, "backfill": JOBS}
_ACT_S = 60.0
"""On real clusters images have to be pulled; here an act takes a fraction of a second."""


class Images(msgspec.Struct, frozen=True):
    """The images that real kubelets run. A Job's has to have `sleep`; Ray's has to be Ray."""

    job: str = objects.IMAGE
    ray: str = objects.RAY_IMAGE


class Act(msgspec.Struct, frozen=True):
    """One step of the scenario."""

    text: str
    do: Callable[[World, Observation], Awaitable[None]]
    seen: Callable[[Observation], bool]
    """Whether the act has ended."""


async def play(act: Act, world: World, observer: Observer) -> None:
    """Run an act, and return when it has ended. Raises UnavailableError when it does not."""
    await act.do(world, observer.look())
    try:
        async with asyncio.timeout(_ACT_S):
            await observer.until(act.seen)
    except TimeoutError:
        raise UnavailableError(f"after {_ACT_S:.0f} s this has not come through: {act.text}") from None


def acts(images: Images) -> list[Act]:
    """The acts of the scenario."""
    return [
        Act(
            "Somebody submits a Job and a RayCluster on the manager, with one worker each",
            lambda world, _: _submit(world, images),
            lambda seen: _running(seen, "sweep", 1) and _running(seen, "train", 2),
        ),
        Act(
            "On the worker cluster a user sets the Job's parallelism from 1 to 5",
            lambda world, seen: _set_parallelism(_worker(world, seen, "sweep"), "sweep", 5),
            lambda seen: _running(seen, "sweep", 5),
        ),
        Act(
            "Ray's autoscaler, on the worker cluster, wants 5 workers instead of 1",
            lambda world, seen: _set_replicas(_worker(world, seen, "train"), "train", 5),
            lambda seen: _running(seen, "train", 6),
        ),
        Act(
            "Another Job starts with one pod",
            lambda world, _: _create(world, objects.job("backfill", image=images.job)),
            lambda seen: _running(seen, "backfill", 1),
        ),
        Act(
            "It wants 4, but there is no quota for 3 more: its new slice waits, and its extra pods are gated",
            lambda world, seen: _set_parallelism(_worker(world, seen, "backfill"), "backfill", 4),
            lambda seen: _waits(seen, "backfill") and _gated(seen, "backfill", 3),
        ),
        Act(
            "The first Job shrinks from 5 to 3: the same slice, with fewer pods. The waiting one needs a little more",
            lambda world, seen: _set_parallelism(_worker(world, seen, "sweep"), "sweep", 3),
            lambda seen: _running(seen, "sweep", 3) and _waits(seen, "backfill"),
        ),
        Act(
            "The RayCluster shrinks from 5 to 3: now the waiting slice is admitted, and its pods run",
            lambda world, seen: _set_replicas(_worker(world, seen, "train"), "train", 3),
            lambda seen: _running(seen, "train", 4) and _running(seen, "backfill", 4),
        ),
    ]


async def clean_up(world: World, observer: Observer) -> None:
    """Delete the scenario's jobs, and no others. They are gone everywhere when it returns.

    A job is seen until its worker holds nothing of it.
    """
    ending = Act(
        "The jobs are deleted",
        lambda world, _: _delete_jobs(world),
        lambda seen: not any(map(seen.job, _JOBS)),
    )
    await play(ending, world, observer)


async def _submit(world: World, images: Images) -> None:
    for resource, manifest in objects.quota(QUOTA_CPU):
        await world.ensure(world.manager, resource, manifest)
    await _create(world, objects.job("sweep", image=images.job))
    await world.manager.create(RAYCLUSTERS, objects.ray_cluster("train", image=images.ray))


async def _create(world: World, job: objects.Manifest) -> None:
    await world.manager.create(JOBS, job)


async def _delete_jobs(world: World) -> None:
    for name, resource in _JOBS.items():
        with suppress(NotFoundError):
            await world.manager.delete(resource, name, objects.NAMESPACE)


async def _set_parallelism(client: KubeClient, name: str, count: int) -> None:
    await client.patch(JOBS, name, objects.NAMESPACE, MergePatch({"spec": {"parallelism": count}}))


async def _set_replicas(client: KubeClient, name: str, count: int) -> None:
    autoscaler = RayAutoscaler(client, name, objects.NAMESPACE)
    await autoscaler.scale(count)
    await autoscaler.settle()


def _worker(world: World, seen: Observation, name: str) -> KubeClient:
    job = seen.job(name)
    assert job is not None, f"{name} was seen before"
    return world.workers[ClusterName(job.cluster)]


def _running(seen: Observation, name: str, count: int) -> bool:
    job = seen.job(name)
    return job is not None and job.pods == PodCount(running=count)


def _gated(seen: Observation, name: str, count: int) -> bool:
    job = seen.job(name)
    return job is not None and job.pods.gated == count


def _waits(seen: Observation, name: str) -> bool:
    job = seen.job(name)
    return job is not None and any(slice.state == "Pending" and slice.message for slice in job.slices)
