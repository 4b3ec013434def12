"""Tenants of workers who delete the Workloads of jobs there, where a role lets them.

While one is missing none of its pods may start, and it comes again from the manager. Nothing is different in the end.
A job that was deleted there itself is left alone: without its Workload nobody but a comparison notices its end then.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from slicebus.agent.state.annotations import annotation
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.slices.api import api_names

Manifest = dict[str, Any]


class DeleteWorkload(Moment):
    """Some Workload of a worker is deleted."""

    cluster: str
    pick: int


def with_lost_copies(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such tenants."""
    return with_later(schedule, "lost copies", _deletes)


async def delete_workload(client: KubeClient, item: DeleteWorkload) -> None:
    """Play it."""
    jobs = {job["metadata"]["uid"] for of in JOB_RESOURCES.values() for job in (await client.list(of)).items}
    copies = (await client.list(WORKLOADS)).items
    of_jobs = [copy for copy in copies if annotation(copy, api_names.JOB_UID_ANNOTATION) in jobs]
    await delete_one(client, of_jobs, item.pick)


async def delete_one(client: KubeClient, workloads: Sequence[Manifest], pick: int) -> None:
    """Delete one of these Workloads, if there is any."""
    if workloads:
        metadata = workloads[pick % len(workloads)]["metadata"]
        await client.delete(WORKLOADS, metadata["name"], metadata["namespace"], uid=metadata["uid"])


def _deletes(random: Random, run_s: float) -> Iterator[DeleteWorkload]:
    if random.random() > 1 / 6:
        return
    for _ in range(random.randint(1, 8)):
        at_s = round(random.uniform(0, run_s), 2)
        yield DeleteWorkload(at_s=at_s, cluster=random.choice(WORKERS), pick=random.randrange(12))
