"""What `make recordings` writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.record import BESIDE_KUEUE
from support.processes import COMMAND_S


def record(name: str, folder: Path) -> bytes:
    folder.mkdir()
    command = [sys.executable, "-m", "simulation.record", name, "--to", str(folder)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, check=True, timeout=COMMAND_S)
    [file] = folder.iterdir()
    assert file.name == f"{name}.jsonl.gz"
    return file.read_bytes()


@pytest.mark.parametrize("name", ["eviction", BESIDE_KUEUE])
def test_a_scenario_is_recorded_the_same_every_time(name: str, tmp_path: Path) -> None:
    assert record(name, tmp_path / "first") == record(name, tmp_path / "second")
