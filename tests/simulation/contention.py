"""A run on which more is wanted than there is: jobs of low priority are there first, and those of high come later."""

from collections.abc import Iterator
from random import Random

from simulation.queues import FLAVORS, QUEUES, policy_of
from simulation.schedule import MANY_CORES, Moment, Policy, Quota, Seed, Submit

_KINDS = ("Job", "Job", "RayCluster", "RayJob")
_NAMES = "cdefgh"
"""Not those of the other jobs of a run."""


def cores_of(seed: Seed) -> int:
    """How many cores each node has: on every second run so few that not every job has room on each cluster."""
    return Random(f"{seed}/cores").choice((MANY_CORES, MANY_CORES, 4, 8))


def contention_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """On every second run."""
    random = Random(f"{seed}/rush")
    if random.random() < 0.5:
        return
    for queue in QUEUES:
        yield Policy(at_s=0.0, queue=queue, spec=policy_of(random, never=()))
        yield Quota(at_s=0.0, of=queue, flavor=random.choice(FLAVORS), cpu=random.choice((0, 1, 2)))
    for number, name in enumerate(_NAMES):
        is_late = number >= len(_NAMES) // 2
        yield Submit(
            at_s=round(random.uniform(run_s / 2, run_s) if is_late else random.uniform(0, run_s / 3), 2),
            kind=random.choice(_KINDS),
            name=name,
            size=random.choice((1, 2, 4)),
            queue=random.choice(list(QUEUES)),
            priority="high" if is_late else random.choice(("", "low")),
        )
