"""Runs with several shards of the manager: trees of quota that go from one to another, and other numbers of shards."""

from collections.abc import Iterator
from random import Random

import msgspec

from simulation.queues import QUEUES
from simulation.schedule import Join, Lose, Moment, Reshard, Scale, Schedule, Submit
from slicebus.proto.messages import Lane
from slicebus.proto.topology import manager_queue

_NEVER_S = 1e5
_DAY = Schedule(
    seed=0,
    standbys=("manager",),
    inventory_s=1e6,
    items=(
        Submit(at_s=0.0, kind="Job", name="a", queue="batch"),
        Scale(at_s=3.0, api="east", pick=0, counts=(3,)),
        Join(at_s=6.0, who="batch", cohort="all"),
        Scale(at_s=6.0, api="east", pick=0, counts=(5,)),
        Join(at_s=14.0, who="batch", cohort="team"),
        Reshard(at_s=20.0, shards=1),
        Scale(at_s=20.0, api="east", pick=0, counts=(2,)),
    ),
)
"""A job's life, while its queue goes to another shard and back, and this one goes to the other."""


def day_of(shards: int) -> Schedule:
    """A short day with so many shards."""
    return msgspec.structs.replace(_DAY, shards=shards)


def sharded(schedule: Schedule, shards: int) -> Schedule:
    """The same run with so many shards, and with what moves trees between them."""
    moments = [item for item in schedule.items if isinstance(item, Moment)]
    others = [item for item in schedule.items if not isinstance(item, Moment)]
    run_s = max((item.at_s for item in moments), default=0.0)
    moves = _moves(Random(f"{schedule.seed}/shards"), run_s, shards, compares=schedule.inventory_s < _NEVER_S)
    items = (*others, *sorted([*moments, *moves], key=lambda item: item.at_s))
    return msgspec.structs.replace(schedule, shards=shards, items=items)


def _moves(random: Random, run_s: float, shards: int, *, compares: bool) -> Iterator[Moment]:
    for _ in range(random.randint(2, 6)):
        cohort = random.choice(("team", "all", ""))
        yield Join(at_s=random.uniform(0, run_s), who=random.choice([*QUEUES]), cohort=cohort)
    for _ in range(random.choice((0, 0, 1, 2))):
        yield Reshard(at_s=random.uniform(0, run_s), shards=random.choice((1, 2, shards + 1)))
    if compares and random.random() < 0.5:
        queue = manager_queue(random.choice(list(Lane)), 1)
        yield Lose(at_s=random.uniform(0, run_s), queue=queue, for_s=random.choice((0.0, 1.0, 5.0)))
