"""Every benchmark runs. Its figures are not looked at: they need a quiet machine, and many more jobs."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SMALL: dict[str, tuple[tuple[str, ...], str]] = {
    "admission.py": (("--pending", "500", "1000", "--cached", "1000"), "1,000 workloads cached"),
    "journal.py": (
        ("--jobs", "1", "--resizes", "2", "--blocks", "4", "--rounds", "1", "--no-rabbitmq"),
        "recording on the bus in this process",
    ),
    "resync.py": (("--jobs", "20", "--rounds", "1"), "20 jobs that do not differ"),
}


ON_SERVERS = {"api_requests.py", "bus.py", "dispatch.py", "fleet.py", "restart.py"}
"""Those that tests/e2e/test_bench.py runs."""
SHARED = {"broker.py", "copies.py", "figures.py", "light_agents.py", "roles.py", "watches.py"}
"""What benchmarks share."""


def test_every_benchmark_is_known() -> None:
    assert {path.name for path in BENCH.glob("*.py")} == SMALL.keys() | ON_SERVERS | SHARED


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SMALL)
def test_it_measures(name: str) -> None:
    options, figure = SMALL[name]
    command = [sys.executable, str(BENCH / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    # 1: a target was missed.
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert figure in done.stdout
