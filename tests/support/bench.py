"""Runs a benchmark as its users do."""

import subprocess
import sys
from pathlib import Path

import msgspec
from figures import Figure

from support.image import TOP

BENCH = TOP / "bench"
WITHOUT_SERVERS = (
    "admission.py",
    "journal.py",
    "ledger.py",
    "memory.py",
    "reclaim.py",
    "resync.py",
    "simulated_runs.py",
)
"""Benchmarks that need nothing of what `make servers` installs."""


def run(name: str, *options: str, within_s: float) -> str:
    """What it prints. Fails where it cannot run, and not where a target is missed."""
    command = [sys.executable, str(BENCH / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)
    # 1: a target was missed.
    assert done.returncode in (0, 1), done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done.stdout


def figures_of(path: Path) -> list[Figure]:
    """What it has written there."""
    return msgspec.json.decode(path.read_bytes(), type=list[Figure])
