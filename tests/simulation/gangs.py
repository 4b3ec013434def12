"""Jobs that choose a gang scheduler, whose objects the workers' API servers serve."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.later import OLD
from simulation.schedule import Item, Moment, Schedule, Seed, Submit
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS
from slicebus.sandbox import schedulers
from slicebus.slices.schedulers.kai import QUEUES

SCHEDULER = "kai"
PROFILES = '[{"name": "default"}, {"name": "kai", "queue": "research"}]'
"""Of every agent on such a run."""
_QUEUE = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": "research"}, "spec": {}}
_GROUP = "scheduling.run.ai"


def has_gangs(seed: Seed) -> bool:
    """On one run of three."""
    return Random(f"{seed}/has gangs").random() < 1 / 3


def with_gangs(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that every second job is a gang, on runs with gangs."""
    random, some = Random(f"{seed}/gangs"), has_gangs(seed)
    for item in moments:
        if some and isinstance(item, Submit) and random.random() < 0.5:
            yield msgspec.structs.replace(item, gang=True)
        else:
            yield item


def with_elastic_gangs(schedule: Schedule) -> Schedule:
    """The same run, but that every second job with a least size is a gang, on runs with gangs."""
    if not schedule.gangs or schedule.seed in OLD:
        return schedule
    random = Random(f"{schedule.seed}/elastic gangs")
    return schedule.with_items(tuple(_perhaps_gang(item, random) for item in schedule.items))


def _perhaps_gang(item: Item, random: Random) -> Item:
    if isinstance(item, Submit) and item.least is not None and random.random() < 0.5:
        return msgspec.structs.replace(item, gang=True)
    return item


async def install(client: KubeClient) -> None:
    """Make the scheduler's definitions on a worker, and the queue of all jobs."""
    for definition in custom_resource_definitions(schedulers.__name__):
        if definition["spec"]["group"] == _GROUP:
            await client.create(CRDS, definition)
    await client.create(QUEUES, _QUEUE)
