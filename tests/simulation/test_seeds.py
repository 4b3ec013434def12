"""A set of seeds in which no rule is broken, and the same seed going the same way twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.mutations import MUTATIONS

SEEDS = 60


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation.run", *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.timeout(600)
def test_no_seed_breaks_a_rule() -> None:
    done = simulate("--count", str(SEEDS), "--jobs", "2")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"{SEEDS} seeds" in done.stdout


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_missing_safeguard_is_noticed(mutation: str) -> None:
    done = simulate("--count", "12", "--jobs", "2", "--mutation", mutation)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "rule 1" in done.stdout or "converged" in done.stdout


def test_a_seed_goes_the_same_way_every_time() -> None:
    first, second = simulate("--seed", "3"), simulate("--seed", "3")
    assert first.stdout == second.stdout
    assert "seed 3: fine" in first.stdout
