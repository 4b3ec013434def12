"""Users who suspend jobs: on the manager, where that is obeyed until they resume them, and on a worker, where it is
undone."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from simulation.jobs import is_sized_where_it_runs, patch_at_last
from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES

Manifest = dict[str, Any]
_FOR_S = (0.2, 3.0, 30.0)


class Suspend(Moment):
    """Some job is suspended; on the manager for a while, on a worker until the agent undoes it."""

    api: str
    pick: int
    for_s: float


def with_suspensions(schedule: Schedule) -> Schedule:
    """The same run, on one of five with such users."""
    return with_later(schedule, "suspensions", _suspensions)


async def suspend(client: KubeClient, item: Suspend) -> None:
    """Play it."""
    found = [job for resource in JOB_RESOURCES.values() for job in (await client.list(resource)).items]
    jobs = [job for job in found if item.api not in WORKERS or is_sized_where_it_runs(job)]
    if not jobs:
        return
    job = jobs[item.pick % len(jobs)]
    metadata = job["metadata"]
    same = {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}
    body = JsonPatch([same, _suspend_is(True)])
    await client.patch(JOB_RESOURCES[job["kind"]], metadata["name"], metadata["namespace"], body)
    if item.api not in WORKERS:
        await asyncio.sleep(item.for_s)
        await patch_at_last(client, job, _suspend_is(False))


def _suspend_is(value: bool) -> Manifest:
    return {"op": "add", "path": "/spec/suspend", "value": value}


def _suspensions(random: Random, run_s: float) -> Iterator[Suspend]:
    if random.random() > 1 / 5:
        return
    for _ in range(random.randint(1, 5)):
        at_s, api = round(random.uniform(0, run_s), 2), random.choice(("manager", "manager", *WORKERS))
        yield Suspend(at_s=at_s, api=api, pick=random.randrange(12), for_s=random.choice(_FOR_S))
