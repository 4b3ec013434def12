"""Measures how fast runs of the simulation pass: simulated seconds for each second of processor time.

    python bench/simulated_runs.py [--first 0] [--seeds 60]

So many seeds, from the first on, are played one after the other, each in a process of its own, and counted by what they
have: all kinds of faults and users, or a few. What a process takes to begin is not counted. The rate of a run depends
on how much happens in it, so it is the sum of all runs that counts, and the processor time of a run.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import figures
from figures import Figure

# The simulation is of the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation.outcome import play_seed
from simulation.processes import outcomes
from simulation.seeds import has_everything


class Run(NamedTuple):
    """A run that was played."""

    seed: int
    virtual_s: float
    processor_s: float


def timed(seed: int) -> Run:
    """Play a seed."""
    began_s = time.process_time()
    virtual_s = play_seed(seed).virtual_s
    return Run(seed, virtual_s, time.process_time() - began_s)


def measured(name: str, runs: Iterable[Run]) -> list[Figure]:
    """The figures of some runs."""
    runs = list(runs)
    processor_s = [run.processor_s for run in runs]
    rate = sum(run.virtual_s for run in runs) / sum(processor_s)
    return [
        Figure.of(f"runs with {name}: simulated in a second of processor time", rate, "s"),
        Figure.of(f"runs with {name}: processor time of one", statistics.mean(processor_s), "s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=60)
    figures.add_argument(parser)
    given = parser.parse_args()
    runs = list(outcomes(timed, range(given.first, given.first + given.seeds), 1))
    return figures.report(
        [
            *measured("a few kinds", (run for run in runs if not has_everything(run.seed))),
            *measured("all kinds", (run for run in runs if has_everything(run.seed))),
        ],
        json=given.json,
    )


if __name__ == "__main__":
    sys.exit(main())
