"""Thins the schedule of a failure: what is left is needed for it."""

from collections.abc import Callable, Iterator

import msgspec

from simulation.schedule import Item, Schedule

Fails = Callable[[Schedule], bool]


def shrunk(schedule: Schedule, fails: Fails, *, most: int) -> Schedule:
    """The smallest schedule found within so many tries that still fails (delta debugging, Zeller 1999).

    First halves are left out, then ever smaller parts, until no single item can be spared.
    """
    tries = iter(range(most))
    schedule = _thinned(schedule, fails, tries)
    for simpler in _simpler(schedule):
        if next(tries, None) is not None and fails(simpler):
            schedule = simpler
    return schedule


def _thinned(schedule: Schedule, fails: Fails, tries: Iterator[int]) -> Schedule:
    size = (len(schedule.items) + 1) // 2
    while size:
        spared = False
        for rest in _without_parts(schedule.items, size):
            if next(tries, None) is None:
                return schedule
            if fails(thinner := schedule.with_items(rest)):
                schedule, spared = thinner, True
                break
        if not spared:
            size //= 2
        size = min(size, (len(schedule.items) + 1) // 2)
    return schedule


def _without_parts(items: tuple[Item, ...], size: int) -> Iterator[tuple[Item, ...]]:
    """The items without each part of that size. The last first: what comes late is the least needed."""
    for start in reversed(range(0, len(items), size)):
        yield items[:start] + items[start + size :]


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.standbys:
        yield msgspec.structs.replace(schedule, standbys=())
