"""What came into the simulation after seeds had been played. It draws from streams of its own, and nothing else that a
seed draws is different for it. The seeds that failed before fail with what they had then."""

from collections.abc import Callable, Iterable
from random import Random

from simulation.schedule import Item, Moment, Schedule

OLD = range(100_000, 2_000_000)
"""The seeds that failed before."""

Draw = Callable[[Random, float], Iterable[Moment]]
"""Draws what happens in a run of so many seconds."""


def with_later(schedule: Schedule, name: str, draw: Draw) -> Schedule:
    """The same run, with what is drawn from the stream of this name."""
    moments = [item for item in schedule.items if isinstance(item, Moment)]
    run_s = max((item.at_s for item in moments), default=0.0)
    drawn = () if schedule.seed in OLD else tuple(draw(Random(f"{schedule.seed}/{name}"), run_s))
    if not drawn:
        return schedule
    all_along: list[Item] = [item for item in schedule.items if not isinstance(item, Moment)]
    return schedule.with_items((*all_along, *sorted([*moments, *drawn], key=lambda item: item.at_s)))
