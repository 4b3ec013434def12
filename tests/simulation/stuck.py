"""Pods that do not get ready for a while, and how long the manager waits for them."""

import asyncio
from collections.abc import Iterator
from random import Random

from simulation.schedule import NO_LIMIT, WORKERS, Patience, Seed, Stick
from slicebus.sandbox.controllers.pods import PodRunner

_STICKS_S = (30.0, 70.0)


def patience_of(seed: Seed) -> Patience:
    """On one run of three there is a limit."""
    random = Random(f"{seed}/patience")
    if random.random() < 2 / 3:
        return NO_LIMIT
    return Patience(random.choice((None, 25.0, 40.0)), random.choice((None, 40.0)), random.choice((None, 15.0)))


def sticks_of(seed: Seed, run_s: float) -> Iterator[Stick]:
    """Where there is a limit; a few also where there is none."""
    random, patience = Random(f"{seed}/sticks"), patience_of(seed)
    for _ in range(random.choice((1, 2, 3)) if patience != NO_LIMIT else random.choice((0, 0, 0, 1))):
        at_s = round(random.uniform(1, run_s), 2)
        yield Stick(at_s=at_s, cluster=random.choice(WORKERS), for_s=random.choice(_STICKS_S))


async def stick(runner: PodRunner, item: Stick) -> None:
    """Play it. What runs goes on."""
    runner.starts = False
    try:
        await asyncio.sleep(item.for_s)
    finally:
        runner.starts = True
