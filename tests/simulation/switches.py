"""Users who switch Ray's autoscaler of a job on the manager, or give its replicas another number of hosts, for a while.

A running cluster keeps what it was made with; one that waits is made by what its job says when it is admitted. Nothing
else is different in the end.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, Literal

from simulation.jobs import CLUSTER_SPEC, cluster_spec_of, patch_at_last
from simulation.later import with_later
from simulation.schedule import Moment, Schedule
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.slices.jobs.ray import groups

Manifest = dict[str, Any]
_KINDS = ("RayCluster", "RayJob", "RayService")


class Switch(Moment):
    """Some Ray job of the manager has its autoscaler switched, or another number of hosts for each replica."""

    kind: str
    pick: int
    what: Literal["autoscaler", "hosts"]
    for_s: float


def with_switches(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such users."""
    return with_later(schedule, "switches", _switches)


async def switch(client: KubeClient, item: Switch) -> None:
    """Play it."""
    jobs = (await client.list(JOB_RESOURCES[item.kind])).items
    if not jobs:
        return
    job = jobs[item.pick % len(jobs)]
    path, spec = CLUSTER_SPEC[item.kind], cluster_spec_of(job["spec"])
    if item.what == "autoscaler":
        field, before = f"{path}/enableInTreeAutoscaling", bool(spec.get("enableInTreeAutoscaling"))
        value: object = not before
    else:
        field, before = f"{path}/workerGroupSpecs/0/numOfHosts", groups(spec)[0].get("numOfHosts", 1)
        value = before % 2 + 1
    body = JsonPatch([{"op": "add", "path": field, "value": value}])
    await client.patch(JOB_RESOURCES[item.kind], job["metadata"]["name"], objects.NAMESPACE, body)
    await asyncio.sleep(item.for_s)
    await patch_at_last(client, job, {"op": "add", "path": field, "value": before})


def _switches(random: Random, run_s: float) -> Iterator[Switch]:
    if random.random() > 1 / 6:
        return
    for _ in range(random.randint(1, 5)):
        yield Switch(
            at_s=round(random.uniform(1, max(2.0, run_s)), 2),
            kind=random.choice(_KINDS),
            pick=random.randrange(12),
            what=random.choice(("autoscaler", "hosts")),
            for_s=random.choice((0.2, 3.0, 30.0)),
        )
