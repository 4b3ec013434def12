"""The shell blocks of the documents, as a reader runs them one after the other on a fleet."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slicebus.cli.demo.world import World
from support.documents import TOP, to_run
from support.examples import only_east_takes_jobs
from support.kubeconfig import join_kubeconfigs, write_kubeconfig
from support.processes import COMMAND_S
from support.scenario import Scenario
from support.waiting import eventually

PAGES = (
    "docs/getting-started.md",
    "docs/commands.md",
    "examples/README.md",
    "docs/ray.md",
    "docs/schedulers.md",
    "docs/operations.md",
)
RAY_JOBS = (("RayCluster", "train"), ("RayJob", "tune"))
"""Those that docs/ray.md looks at."""


@pytest.fixture
def reader(world: World, kubectl: None, tmp_path: Path) -> dict[str, str]:
    """The variables of somebody with a context for each cluster; the manager's is the current one."""
    clients = {"manager": world.manager} | {str(name): client for name, client in world.workers.items()}
    made = {name: write_kubeconfig(tmp_path / name, client.host) for name, client in clients.items()}
    contexts = join_kubeconfigs(tmp_path / "contexts", made)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"KUBECONFIG": str(contexts), "PATH": path, "COLUMNS": "200"}


async def run(block: str, reader: dict[str, str]) -> None:
    """Run a block until it comes through: what a command asks for comes a moment after the one before it."""
    told = ""

    async def comes_through() -> bool:
        nonlocal told
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=TOP,
            env=reader,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        told = done.stdout + done.stderr
        return done.returncode == 0

    try:
        await eventually(comes_through, "the block comes through")
    except AssertionError as error:
        raise AssertionError(f"{block}\n{told}") from error


async def test_a_reader_runs_every_block(world: World, reader: dict[str, str]) -> None:
    """Twenty calls of `slicebus` and as many of kubectl, each a process: half a minute."""
    await eventually(lambda: only_east_takes_jobs(world), "only east takes jobs")
    for page in PAGES:
        if page == "docs/ray.md":
            for kind, name in RAY_JOBS:
                await Scenario(world, kind, name).submit()
        for block in to_run(TOP / page):
            await run(block, reader)
    assert await Scenario(world, "Job", "example-job").cluster() == "east"
