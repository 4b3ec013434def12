"""Runs seeds: one again and again, a set of them, or on and on.

make sim            runs seed after seed until it is stopped, and says how many an hour
make sim SEED=7     repeats one, with everything that happened in it; a failure is thinned to what it needs
"""

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from time import perf_counter
from typing import TypeVar

from simulation.beside_kueue import DAY
from simulation.mutations import MUTATIONS
from simulation.noticed import detections, searches
from simulation.outcome import Outcome, play, play_seed
from simulation.processes import outcomes
from simulation.schedule import SHORT, TROUBLES, Crash, Schedule
from simulation.seeds import schedule_of
from simulation.shard_moves import day_of
from simulation.shrink import shrunk
from simulation.soak import REPEATED_BY
from simulation.tally import Tally
from slicebus.manager.state.settings import AdmissionModeName

Run = TypeVar("Run", int, Schedule)
"""A seed, or what is made of one."""
EVERY = "every"
_SHOWN = 40
_SHRINK_TRIES = 300
_TOLD = 20


def main() -> int:
    """Run seeds; 1 when one has failed, or a missing safeguard is not noticed."""
    options = _options()
    if options.mutations is not None:
        return _search(options)
    if options.crashes:
        return _everywhere(_short(options) if options.seed is None else calm(schedule_of(options.seed)), options)
    if options.seed is not None:
        outcome = play_seed(options.seed, options.mutation, **_fields(options))
        report(outcome, outcome.trace, options)
        return bool(outcome.problem)
    return _all(partial(play_seed, mutation=options.mutation, **_fields(options)), _chosen(options), options)


def _search(options: argparse.Namespace) -> int:
    missed = 0
    for detection in detections(searches(options.mutations, options.first), options.jobs):
        print(detection, flush=True)
        missed += detection.seed is None
    return bool(missed)


def _short(options: argparse.Namespace) -> Schedule:
    if options.shards:
        return day_of(options.shards)
    return DAY if options.beside_kueue else SHORT


def _fields(options: argparse.Namespace) -> dict[str, int | None]:
    """What is to be otherwise than a seed says."""
    return {"admission_writers": options.writers, "shards": options.shards}


def _chosen(options: argparse.Namespace) -> Iterable[int]:
    if options.count is None:
        return options.seeds or itertools.count(options.first)
    return itertools.chain(range(options.first, options.first + options.count), options.seeds)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Play a fleet's days from seeds.")
    parser.add_argument("--seed", type=int, help="play this one, and show what happened")
    parser.add_argument(
        "--crashes",
        nargs="?",
        const=EVERY,
        metavar="ROLE:EFFECT",
        help="play the seed, or a short day, with a crash before each effect; before that one only; with --count before"
        " so many of them",
    )
    parser.add_argument(
        "--every", type=int, default=1, help="with --crashes: before one effect of so many, from --first on"
    )
    parser.add_argument("--beside-kueue", action="store_true", help="with --crashes: a short day beside a Kueue")
    parser.add_argument("--count", type=int, help="play so many; without it, on and on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--seeds", type=_numbers, default=[], metavar="N,N", help="play these: after the --count, or alone"
    )
    parser.add_argument("--mutation", choices=MUTATIONS, help="without this safeguard")
    parser.add_argument(
        "--mutations",
        nargs="?",
        const="",
        metavar="NAME:SEED,...",
        help="which seed from --first on notices that a safeguard is missing, for each; for these from there on",
    )
    parser.add_argument("--digests", action="store_true", help="show of each seed how it went")
    parser.add_argument("--writers", type=int, help="how many decisions of the admission are written at once")
    parser.add_argument("--shards", type=int, help="how many shards the manager has")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--until-failure", action="store_true", help="end with the first seed that fails")
    parser.add_argument("--shrink", action=argparse.BooleanOptionalAction, default=True, help="thin a failure")
    options = parser.parse_args()
    if options.every != 1 and not options.crashes:
        parser.error("--every goes with --crashes")
    if options.beside_kueue and (not options.crashes or options.seed is not None):
        parser.error("--beside-kueue goes with --crashes, and without a seed")
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0: sets of names have an order of their own in every process")
    return options


def _all(play_one: Callable[[Run], Outcome], runs: Iterable[Run], options: argparse.Namespace) -> int:
    """Play one after the other and report each that fails."""
    began, tally = perf_counter(), Tally()
    for outcome in outcomes(play_one, runs, options.jobs):
        tally.add(outcome)
        if options.digests:
            print(f"seed {outcome.seed}: {outcome.digest}")
        if outcome.problem:
            report(outcome, outcome.trace[-_SHOWN:], options)
            if options.until_failure:
                break
        if tally.played % _TOLD == 0:
            print(tally.text(perf_counter() - began), flush=True)
    print(tally.text(perf_counter() - began))
    return bool(tally.failed)


def _everywhere(schedule: Schedule, options: argparse.Namespace) -> int:
    """A run in which nothing else goes wrong, with a crash before each effect that it has without one, or before some
    of them."""
    play_one = _player(options)
    if options.crashes != EVERY:
        role, _, effect = options.crashes.partition(":")
        runs = [with_crash(schedule, role, int(effect))]
    else:
        runs = list(every_crash(schedule, play_one(schedule)))[options.first :: options.every]
        if options.count is not None:
            runs = Random(schedule.seed).sample(runs, min(options.count, len(runs)))
    return _all(play_one, runs, options)


def _player(options: argparse.Namespace) -> Callable[[Schedule], Outcome]:
    admission = AdmissionModeName.KUEUE if options.beside_kueue else AdmissionModeName.BUILTIN
    return partial(play, mutation=options.mutation, admission=admission)


def calm(schedule: Schedule) -> Schedule:
    """The same run with users only."""
    users = [item for item in schedule.items if not isinstance(item, TROUBLES)]
    return schedule.with_items(tuple(users))


def every_crash(schedule: Schedule, outcome: Outcome) -> Iterator[Schedule]:
    """The run with a crash before each effect that it had, one at a time."""
    for role, count in outcome.effects.items():
        for effect in range(1, count + 1):
            yield with_crash(schedule, role, effect)


def with_crash(schedule: Schedule, role: str, effect: int) -> Schedule:
    """The run with a crash of a role before that effect."""
    return schedule.with_items((Crash(role=role, effect=effect), *schedule.items))


def report(outcome: Outcome, shown: list[str], options: argparse.Namespace) -> None:
    """What happened in a seed, and of a failure what it needs."""
    print("\n".join(shown))
    print(f"seed {outcome.seed}: {outcome.problem or 'fine'} ({outcome.digest})")
    if not outcome.problem:
        return
    if outcome.schedule != schedule_of(outcome.seed):
        print(outcome.schedule)
    if options.shrink:
        play_one = _player(options)
        left = shrunk(outcome.schedule, lambda thinner: play_one(thinner).kind == outcome.kind, most=_SHRINK_TRIES)
        print(f"of {len(outcome.schedule.items)} items {len(left.items)} are needed:\n{left}")
        last = play_one(left)
        print("\n".join(last.trace[-_SHOWN:]))
        print(last.problem)
    print(f"{REPEATED_BY}{repeats(outcome, options)}")


def repeats(outcome: Outcome, options: argparse.Namespace) -> str:
    """The command that plays a run once more."""
    how = [f"--{name} {value}" for name in ("writers", "shards") if (value := getattr(options, name))]
    how += [f'--mutation "{options.mutation}"'] if options.mutation else []
    if options.crashes:
        crash = next(item for item in outcome.schedule.items if isinstance(item, Crash))
        how += [f"--crashes {crash.role}:{crash.effect}", *(["--beside-kueue"] if options.beside_kueue else [])]
    seed = [] if options.crashes and options.seed is None else [f"SEED={outcome.seed}"]
    return " ".join(["make sim", *seed, *([f"SIM='{' '.join(how)}'"] if how else [])])


if __name__ == "__main__":
    sys.exit(main())
