"""`make soak`: it begins nothing when its time is over, names what it played, and repeats what failed."""

from collections.abc import Callable
from itertools import islice

import pytest

from simulation.soak import Ended, Play, marked_tests, plays, soak
from simulation.tally import Forecasts


def minutes_of(count: int) -> Callable[[], float]:
    """The time that is left, where each play takes a minute."""
    left = [float(number) for number in range(count - 3, -1, -1)]
    return lambda: left.pop(0)


def test_it_plays_until_its_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak(plays(7), lambda _: Ended(0, (), Forecasts(30, 20)), seconds_left=minutes_of(4)) == 0
    assert capsys.readouterr().out.partition("== played\n")[2].splitlines() == [
        "seeds 7 to 106: fine",
        "seeds with one writer 107 to 126: fine",
        "seeds with two shards 127 to 146: fine",
        "50 crashes in the run of seed 147: fine",
        "120 forecasts on 80 snapshots compared, 0 differed",
    ]


def test_the_properties_leave_time_for_the_seeds() -> None:
    assert marked_tests(3, minutes=60.0).variables == {"PROPERTY_MINUTES": "20.0"}


def test_a_failure_names_the_command_that_repeats_it(capsys: pytest.CaptureFixture[str]) -> None:
    def run(play: Play) -> Ended:
        return Ended(1, ("make sim SEED=9",)) if "seeds 7" in play.name else Ended(0)

    assert soak(islice(plays(7), 2), run, seconds_left=lambda: 1.0) == 1
    assert capsys.readouterr().out.endswith("== failed; to repeat it:\nmake sim SEED=9\n")


def test_what_ends_without_a_seed_is_repeated_whole(capsys: pytest.CaptureFixture[str]) -> None:
    play = Play("seeds", ("simulation", "--count", "1"))
    assert soak(iter([play]), lambda _: Ended(2), seconds_left=lambda: 1.0) == 1
    assert capsys.readouterr().out.endswith("-m simulation --count 1\n")


def test_what_a_play_says_of_forecasts_is_read_again() -> None:
    said = Forecasts(1169, 509, 1)
    assert Forecasts.of(f"20 seeds, 1 failed, 5 changes checked, {said}, 900 an hour") == said
    assert Forecasts.of("== seeds 0 to 99") is None
