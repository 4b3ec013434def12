"""Ray clusters have two groups, some with several hosts a replica, and either is scaled, or both at once. Their bounds
are edited while they run."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.schedule import Moment, Rebound, Scale, Seed, Submit

_REPLICAS = (0, 1, 1, 2)
_HOSTS = (1, 1, 2, 3)
_MOST_REPLICAS = 3
_LEAST = (0, 0, 1, 2)
_MOST = (10, 15, 20)


def with_groups(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that Ray clusters have a second group. One resize of three is another of that group, and beside one
    of three the second group is resized too: it may grow while the pods of the first are going."""
    random = Random(f"{seed}/groups")
    for item in moments:
        match item:
            case Submit() if item.kind != "Job":
                yield msgspec.structs.replace(item, second=random.choice(_REPLICAS), hosts=random.choice(_HOSTS))
            case Scale():
                of, count = random.randrange(3), random.randint(0, _MOST_REPLICAS)
                second = msgspec.structs.replace(item, group=1, counts=(count,) * len(item.counts))
                yield second if of == 1 else item
                if of == 2:
                    yield second
            case _:
                yield item


def rebounds_of(seed: Seed, run_s: float) -> Iterator[Rebound]:
    """On every second run. The most is never below what runs: with the autoscaler on KubeRay would delete nothing."""
    random = Random(f"{seed}/bounds")
    if random.random() < 0.5:
        return
    for _ in range(random.randint(1, 4)):
        yield Rebound(
            at_s=round(random.uniform(2, run_s), 2),
            kind=random.choice(("RayCluster", "RayCluster", "RayJob")),
            pick=random.randrange(12),
            least=random.choice(_LEAST),
            most=random.choice(_MOST),
        )
