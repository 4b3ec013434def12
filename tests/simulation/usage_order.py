"""ClusterQueues that go by what their LocalQueues have used, with a second LocalQueue each."""

from collections.abc import Iterator
from random import Random

from simulation.later import with_later
from simulation.queues import QUEUES
from simulation.schedule import Moment, Schedule, Submit
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES

_SECOND = "-two"
_NAMES = "efghop"
"""Not the names of the other jobs of a run."""


class ShareByUse(Moment):
    """A ClusterQueue has two LocalQueues from then on, and goes by what they have used."""

    queue: str
    weight: str
    """Of the second one."""


def with_usage_order(schedule: Schedule) -> Schedule:
    """The same run, on one of eight with such a queue, for which more is submitted than it has room for."""
    return with_later(schedule, "usage order", _usage_order)


def cluster_queue_of(local_queue: str) -> str:
    """The ClusterQueue that a LocalQueue of a run names."""
    return local_queue.removesuffix(_SECOND)


async def share(client: KubeClient, item: ShareByUse) -> None:
    """Play it."""
    name = f"{item.queue}{_SECOND}"
    local = {
        "apiVersion": LOCALQUEUES.api_version,
        "kind": LOCALQUEUES.kind,
        "metadata": {"name": name, "namespace": objects.NAMESPACE},
        "spec": {"clusterQueue": item.queue, "fairSharing": {"weight": item.weight}},
    }
    await client.create(LOCALQUEUES, local)
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    await client.patch(CLUSTERQUEUES, item.queue, None, MergePatch({"spec": scope}))


def _usage_order(random: Random, run_s: float) -> Iterator[Moment]:
    if not 1 / 2 < random.random() <= 5 / 8:
        return
    queue, at_s = random.choice([*QUEUES]), round(random.uniform(0, run_s / 4), 2)
    yield ShareByUse(at_s=at_s, queue=queue, weight=random.choice(("1", "2", "500m")))
    for name in _NAMES[: random.randint(3, len(_NAMES))]:
        yield Submit(
            at_s=round(random.uniform(at_s + 0.1, run_s), 2),
            kind=random.choice(("Job", "Job", "RayCluster")),
            name=name,
            size=random.choice((1, 2, 3)),
            ends=random.choice((False, True)),
            autoscales=False,
            queue=random.choice((queue, f"{queue}{_SECOND}")),
            priority=random.choice(("", "low", "high")),
        )
