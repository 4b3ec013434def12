"""Runs the tests of the mark `soak`, and fleets on real servers, then plays fresh seeds in every way until a given time
is over.

make soak MINUTES=60             names what it played, and of each failure the command that repeats it
make soak SOAK='--first 5000'    the seeds from there on

The properties of `unit/properties` are of the mark, and played for a third of the time: the seeds shall have one too.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from simulation.tally import Forecasts

TESTS = Path(__file__).parents[1]
REPEATED_BY = "again: "
"""A play names the command that repeats a failure on a line that begins so."""


class Play(msgspec.Struct, frozen=True):
    """A command that takes minutes, and its name in the summary."""

    name: str
    arguments: tuple[str, ...]
    variables: Mapping[str, str] = {}
    """Of its environment, unless they are set there."""

    @property
    def command(self) -> list[str]:
        """The whole of it."""
        return [sys.executable, "-m", *self.arguments]


class Ended(msgspec.Struct, frozen=True):
    """A play that has ended."""

    status: int
    repeated_by: tuple[str, ...] = ()
    """The commands that repeat what failed in it."""
    forecasts: Forecasts = Forecasts()
    """Those that its runs have compared."""


Run = Callable[[Play], Ended]


def marked_tests(processes: int, *, minutes: float) -> Play:
    """The tests of the mark, in a soak of so many minutes."""
    how = ("--numprocesses", str(processes), "--dist", "loadfile")
    variables = {"PROPERTY_MINUTES": str(minutes / 3)}
    return Play("tests of the mark soak", ("pytest", str(TESTS), "-m", "soak", *how), variables)


def fleets(processes: int) -> Play:
    """The tests of fleets on real servers: `make test` runs most of them embedded alone."""
    how = ("--numprocesses", str(processes), "--dist", "loadfile")
    return Play("tests of fleets on real servers", ("pytest", str(TESTS / "e2e"), "--real", *how))


def plays(first: int) -> Iterator[Play]:
    """Fresh seeds from that one on, without end: each way to play takes its turn."""
    while True:
        for name, count, options in (
            ("seeds", 100, ()),
            ("seeds with one writer", 20, ("--writers", "1")),
            ("seeds with two shards", 20, ("--shards", "2")),
        ):
            chosen = ("--first", str(first), "--count", str(count))
            yield Play(f"{name} {first} to {first + count - 1}", ("simulation", *chosen, *options))
            first += count
        sweep = ("--seed", str(first), "--crashes", "--count", "50")
        yield Play(f"50 crashes in the run of seed {first}", ("simulation", *sweep))
        first += 1


def soak(todo: Iterator[Play], run: Run, *, seconds_left: Callable[[], float]) -> int:
    """Run one after the other, at least the first three, and begin none when the time is over; 1 if any has failed."""
    played, failed, forecasts = [], [], Forecasts()
    for number, play in enumerate(todo):
        if number >= 3 and seconds_left() <= 0:
            break
        print(f"== {play.name}", flush=True)
        ended = run(play)
        forecasts += ended.forecasts
        played.append(f"{play.name}: {'failed' if ended.status else 'fine'}")
        if ended.status:
            failed += ended.repeated_by or [" ".join(play.command)]
    print("== played", *played, str(forecasts), sep="\n")
    if failed:
        print("== failed; to repeat it:", *failed, sep="\n")
    return bool(failed)


def _run(play: Play) -> Ended:
    """As a process whose output is shown while it comes."""
    environment = {**play.variables, **os.environ}
    if play.arguments[0] == "simulation":
        # The order of sets has to be the same in every process that plays a seed.
        environment["PYTHONHASHSEED"] = "0"
    commands, forecasts = [], Forecasts()
    with subprocess.Popen(play.command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(REPEATED_BY):
                commands.append(line.removeprefix(REPEATED_BY).strip())
            forecasts = Forecasts.of(line) or forecasts
    return Ended(process.returncode, tuple(commands), forecasts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak for so many minutes."""
    parser = argparse.ArgumentParser(description="Play until the time is over.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first of the fresh seeds")
    parser.add_argument("--testers", type=int, default=2, help="how many processes run the tests")
    options = parser.parse_args(arguments)
    ends_at = time.monotonic() + options.minutes * 60
    of_tests = [marked_tests(options.testers, minutes=options.minutes), fleets(options.testers)]
    todo = itertools.chain(of_tests, plays(options.first))
    return soak(todo, _run, seconds_left=lambda: ends_at - time.monotonic())


if __name__ == "__main__":
    sys.exit(main())
