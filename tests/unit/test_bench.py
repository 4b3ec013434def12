"""Every benchmark runs. Its figures are not looked at: they need a quiet machine, and many more jobs."""

from pathlib import Path

import msgspec
import pytest
from all import SCRIPTS, Result, Script

from support.bench import BENCH, figures_of, run

HERE = [script for script in SCRIPTS if not script.on_servers]
"""tests/e2e/test_bench.py runs the others."""
SHARED = {
    "all.py",
    "bare.py",
    "broker.py",
    "copies.py",
    "figures.py",
    "installation.py",
    "light_agents.py",
    "recorders.py",
    "roles.py",
    "watched.py",
}
"""No benchmarks."""


def test_every_benchmark_is_known() -> None:
    assert {path.name for path in BENCH.glob("*.py")} == {script.name for script in SCRIPTS} | SHARED


@pytest.mark.timeout(120)
@pytest.mark.parametrize("script", HERE, ids=lambda script: script.name)
def test_it_measures(script: Script, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    shown = run(script.name, *script.quick, "--json", str(path), within_s=110)
    found = figures_of(path)
    assert found
    assert all(figure.name in shown for figure in found)


@pytest.mark.timeout(120)
def test_figures_are_put_together(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    shown = run("all.py", "--quick", "--only", "resync.py", "--json", str(path), within_s=110)
    found = msgspec.json.decode(path.read_bytes(), type=list[Result])
    assert "resync: inventory on the wire of 20 jobs" in shown
    assert {result.name.partition(":")[0] for result in found} == {"resync"}
    assert found[0].machine.cores > 0
    assert found[0].met is True
