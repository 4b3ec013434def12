"""Indexed Jobs that can lose pods, or take quota that nobody waits for, while their users resize them and their indexes
succeed. The completions of some follow their pods; of others they stay, as their indexes are shares of the work.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

from simulation.elastic import Least
from simulation.idle_quota import Most
from simulation.indexed import is_indexed
from simulation.later import with_later
from simulation.notices import Agree
from simulation.queues import FLAVORS, QUEUES, policy_of
from simulation.schedule import WORKERS, Moment, Policy, Quota, Schedule, Submit, Succeed
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import JOBS

Manifest = dict[str, Any]
_NAMES, _HIGH = ("ia", "ib", "ic"), ("ja", "jb", "jc")
"""Not the names of the other jobs of a run."""
_SIZES = (3, 4, 6)
_LARGEST = 7
_SOON_S = 6.0
_MOST = (9, 12)
"""No fewer than anybody asks for: a worker's request for more would be refused."""


class Resize(Moment):
    """Some Indexed Job gets another size, where it runs or on the manager."""

    api: str
    pick: int
    count: int
    alone: bool
    """Whether its completions stay: then it has more indexes than pods at a time, or the other way round."""


def with_indexed_sizes(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such Jobs."""
    return with_later(schedule, "indexed sizes", _indexed_sizes)


async def resize(client: KubeClient, item: Resize) -> None:
    """Play it, where there is such a Job."""
    if jobs := [job for job in (await client.list(JOBS)).items if is_indexed(job)]:
        job = jobs[item.pick % len(jobs)]
        same = {"op": "test", "path": "/metadata/uid", "value": job["metadata"]["uid"]}
        fields = ("parallelism",) if item.alone else ("parallelism", "completions")
        body = [same, *({"op": "add", "path": f"/spec/{field}", "value": item.count} for field in fields)]
        await client.patch(JOBS, job["metadata"]["name"], objects.NAMESPACE, JsonPatch(body))


def _indexed_sizes(random: Random, run_s: float) -> Iterator[Moment]:
    if random.random() > 1 / 6:
        return

    def between(begin: float, end: float) -> float:
        return round(random.uniform(begin * run_s, end * run_s), 2)

    for queue in QUEUES:
        yield Policy(at_s=0.0, queue=queue, spec=policy_of(random, never=()))
    narrow, flavor = random.choice([*QUEUES]), random.choice(FLAVORS)
    yield Quota(at_s=0.0, of=narrow, flavor=flavor, cpu=random.choice((4, 6, 9)))

    def queue_of() -> str:
        return narrow if random.random() < 4 / 5 else random.choice([*QUEUES])

    for name in _NAMES[: random.randint(2, len(_NAMES))]:
        size = random.choice(_SIZES)
        yield Submit(
            at_s=between(0, 1 / 6),
            kind=JOBS.kind,
            name=name,
            size=size,
            completions=size,
            indexed=True,
            follow=random.choice(("", "false")),
            queue=queue_of(),
            priority=random.choice(("", "low", "low")),
            least=random.choice((None, *[random.randint(1, size - 1)] * 3)),
            most=random.choice((None, *_MOST)),
            notice=random.choice(("", "", "2s", "8s")),
        )
    for name in _HIGH[: random.randint(1, len(_HIGH))]:
        at_s = between(1 / 6, 1)
        yield Submit(
            at_s=at_s,
            kind=JOBS.kind,
            name=name,
            size=random.choice((3, 4, 6)),
            ends=random.random() < 2 / 3,
            queue=queue_of(),
            priority="high",
        )
        yield from _meanwhile(random, at_s)
    for _ in range(random.randint(0, 3)):
        yield _resize(random, between(1 / 8, 1))
    for _ in range(random.choice((0, 4, 12))):
        yield Succeed(at_s=between(1 / 8, 1), pick=random.randrange(12), count=random.choice((1, 2)))
    for _ in range(random.randint(0, 2)):
        yield Least(at_s=between(0, 1), pick=random.randrange(12), least=random.choice((None, 1, 2)))
    for _ in range(random.randint(0, 2)):
        yield Most(at_s=between(0, 1), pick=random.randrange(12), most=random.choice((*_MOST, None)))
    for _ in range(random.randint(0, 3)):
        yield Agree(at_s=between(1 / 4, 1), worker=random.choice(WORKERS), pick=random.randrange(12))


def _meanwhile(random: Random, at_s: float) -> Iterator[Moment]:
    """What happens while pods are taken for somebody who comes then."""
    for _ in range(random.choice((0, 0, 1, 2))):
        soon_s = round(at_s + random.uniform(0, _SOON_S), 2)
        yield random.choice((_resize(random, soon_s), Succeed(at_s=soon_s, pick=random.randrange(12))))


def _resize(random: Random, at_s: float) -> Resize:
    return Resize(
        at_s=at_s,
        api=random.choice(("manager", *WORKERS)),
        pick=random.randrange(12),
        count=random.randint(1, _LARGEST),
        alone=random.random() < 1 / 4,
    )
