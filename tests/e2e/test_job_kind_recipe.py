"""The recipe "add a job kind", carried out: a package beside slicebus brings one by an entry point."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DIST_INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: train-job\nVersion: 1.0\n",
    "entry_points.txt": "[slicebus.job_kinds]\ntrain = support.train_job.kind:TrainJob\n",
}


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process beside whose slicebus the package is installed."""
    metadata = tmp_path / "train_job-1.0.dist-info"
    metadata.mkdir()
    for name, text in DIST_INFO.items():
        (metadata / name).write_text(text)
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(TESTS)))}


async def test_a_job_kind_from_another_package_makes_the_whole_round_trip(installed: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.train_job.round_trip"),
        env=installed,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()[-4000:]
