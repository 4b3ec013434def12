"""Users who submit several jobs at once, and want another size of each before the first one runs."""

from collections.abc import Iterator
from random import Random

from simulation.queues import QUEUES
from simulation.schedule import Moment, Scale, Seed, Submit

_KINDS = ("Job", "Job", "RayCluster")
_NAMES = "klmnop"
"""Not those of the other jobs of a run."""
_THOUGHT_OVER_S = 4.0


def bursts_of(seed: Seed, run_s: float) -> Iterator[Moment]:
    """One or two, which share their names."""
    random = Random(f"{seed}/bursts")
    for _ in range(random.choice((1, 1, 2))):
        at_s, queue = random.uniform(0, run_s), random.choice(list(QUEUES))
        for name in _NAMES:
            kind, size = random.choice(_KINDS), random.choice((1, 2, 3))
            yield Submit(at_s=round(at_s, 2), kind=kind, name=name, size=size, autoscales=False, queue=queue)
        for _ in range(2 * len(_NAMES)):
            later_s = random.uniform(0.1, _THOUGHT_OVER_S)
            counts = (random.choice((1, 2, 3)),)
            yield Scale(at_s=round(at_s + later_s, 2), api="manager", pick=random.randrange(12), counts=counts)
