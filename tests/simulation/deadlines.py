"""RayJobs that are past their deadline: KubeRay ends them while pods of theirs run on."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.later import OLD
from simulation.schedule import Moment, Seed, Submit

_DEADLINES_S = (2, 6, 15)


def with_deadlines(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that on one run of five every second RayJob has a deadline."""
    random = Random(f"{seed}/deadlines")
    some = seed not in OLD and random.random() < 0.2
    for item in moments:
        if some and isinstance(item, Submit) and item.kind == "RayJob" and random.random() < 0.5:
            yield msgspec.structs.replace(item, deadline_s=random.choice(_DEADLINES_S))
        else:
            yield item
