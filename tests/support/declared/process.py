"""Runs a module of this package in a process of its own, since kinds are read once."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from slicebus.slices.jobs.registry import DECLARATIONS

_TESTS = Path(__file__).parents[2]
_SHOWN = 8000


async def run_apart(module: str, argument: Any, *, declared: Path) -> None:
    """Run a module with its argument as JSON, and with the kinds of a file of declarations. Fails with what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"support.declared.{module}", msgspec.json.encode(argument).decode()),
        env=os.environ | {DECLARATIONS: str(declared), "PYTHONPATH": str(_TESTS)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, _error(said.decode())


def _error(said: str) -> str:
    """The last traceback of what a process said, from its begin: notes on where its tasks stand are its end."""
    return said[max(said.rfind("Traceback"), 0) :][:_SHOWN]
