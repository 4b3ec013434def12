"""Users who delete Workloads of the manager's cluster, as Kueue lets them.

A slice with quota gives it back when its worker holds nothing of the job, which starts anew then. Nothing is different
in the end.
"""

from collections.abc import Iterator
from random import Random

from simulation.later import with_later
from simulation.lost_copies import delete_one
from simulation.schedule import Moment, Schedule
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import WORKLOADS


class DeleteSlice(Moment):
    """Some Workload of the manager's cluster is deleted."""

    pick: int


def with_deleted_slices(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such users."""
    return with_later(schedule, "deleted slices", _deletes)


async def delete_slice(client: KubeClient, item: DeleteSlice) -> None:
    """Play it."""
    await delete_one(client, (await client.list(WORKLOADS)).items, item.pick)


def _deletes(random: Random, run_s: float) -> Iterator[DeleteSlice]:
    if random.random() > 1 / 6:
        return
    for _ in range(random.randint(1, 6)):
        yield DeleteSlice(at_s=round(random.uniform(0, run_s), 2), pick=random.randrange(12))
