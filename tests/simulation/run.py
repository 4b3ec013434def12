"""Runs seeds: one again and again, a set of them, or on and on.

make sim            runs seed after seed until it is stopped or one fails
make sim SEED=7     repeats one, with everything that happened in it
"""

import argparse
import hashlib
import itertools
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from time import perf_counter

import msgspec
import structlog

from simulation.faults import Faults
from simulation.fleet import Fleet
from simulation.loop import run
from simulation.mutations import MUTATIONS, mutated
from simulation.rules import Violation
from simulation.users import Day

STORMY = Faults(lost=0.02, unanswered=0.02, twice=0.05, late=0.03, slow_s=0.2, cut=0.005, expired=0.05, crash=0.003)
_ACTIONS, _RESTARTS = 25, 2
_SHOWN = 60


class Outcome(msgspec.Struct, frozen=True):
    """One seed, played: what was wrong, if anything; what happened; how many changes were checked."""

    seed: int
    problem: str
    trace: list[str]
    checked: int
    virtual_s: float

    @property
    def digest(self) -> str:
        """The same for two runs that went the same way."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


def play(seed: int, mutation: str | None = None) -> Outcome:
    """Play one seed to its end, on the product as it is or without one of its safeguards."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    fleets: list[Fleet] = []

    async def main() -> None:
        fleets.append(Fleet(seed))
        await fleets[0].run(Day(faults=STORMY, actions=_ACTIONS, restarts=_RESTARTS).play)

    problem = ""
    try:
        with mutated(mutation):
            run(main())
    except Violation as violation:
        problem = str(violation)
    except Exception as error:  # noqa: BLE001 whatever ends a fleet is its outcome
        problem = "".join(traceback.format_exception(error))
    fleet = fleets[0]
    return Outcome(
        seed=seed,
        problem=str(fleet.rules.broken or problem),
        trace=fleet.trace,
        checked=fleet.rules.checked,
        virtual_s=fleet.ended_s,
    )


def outcomes(seeds: Iterable[int], jobs: int, mutation: str | None) -> Iterator[Outcome]:
    """Outcomes of seeds, in their order."""
    with ProcessPoolExecutor(jobs) as pool:
        remaining = iter(seeds)
        while batch := list(itertools.islice(remaining, 4 * jobs)):
            yield from pool.map(partial(play, mutation=mutation), batch)


def main() -> int:
    """Run seeds; 1 when one fails."""
    parser = argparse.ArgumentParser(description="Play a fleet's days from seeds.")
    parser.add_argument("--seed", type=int, help="play this one, and show what happened")
    parser.add_argument("--count", type=int, help="play so many; without it, on and on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--mutation", choices=MUTATIONS, help="without this safeguard")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0: sets of names have an order of their own in every process")
    if options.seed is not None:
        outcome = play(options.seed, options.mutation)
        report(outcome, outcome.trace)
        return bool(outcome.problem)
    began, checked, virtual_s = perf_counter(), 0, 0.0
    count = options.count
    seeds = itertools.count(options.first) if count is None else range(options.first, options.first + count)
    for number, outcome in enumerate(outcomes(seeds, options.jobs, options.mutation), start=1):
        checked, virtual_s = checked + outcome.checked, virtual_s + outcome.virtual_s
        if outcome.problem:
            report(outcome, outcome.trace[-_SHOWN:])
            return 1
        if number % 20 == 0 or number == count:
            an_hour = number / (perf_counter() - began) * 3600
            print(
                f"{number} seeds, {checked} changes checked, {virtual_s / 3600:.0f} h of fleet, {an_hour:.0f} an hour"
            )
    return 0


def report(outcome: Outcome, shown: list[str]) -> None:
    """What happened in a seed."""
    print("\n".join(shown))
    print(f"seed {outcome.seed}: {outcome.problem or 'fine'} ({outcome.digest})")
    if outcome.problem:
        print(f"again: make sim SEED={outcome.seed}")


if __name__ == "__main__":
    sys.exit(main())
