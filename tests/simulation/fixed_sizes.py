"""Jobs without the elastic annotation: they are left alone, or run at a fixed size."""

from collections.abc import Iterable, Iterator
from random import Random

import msgspec

from simulation.schedule import Moment, Seed, Submit


def runs_fixed(seed: Seed) -> bool:
    """On one run of four."""
    return Random(f"{seed}/fixed sizes").random() < 0.25


def with_fixed(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that every second job is of a fixed size where those are run, if no autoscaler owns its size."""
    random, some = Random(f"{seed}/fixed jobs"), runs_fixed(seed)
    for item in moments:
        if some and isinstance(item, Submit) and random.random() < 0.5:
            yield msgspec.structs.replace(item, fixed=item.kind == "Job" or not item.autoscales)
        else:
            yield item
