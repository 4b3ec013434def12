"""What an image has: the wheel, and beside it what docker/requirements.lock names and nothing else."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).parents[2]
_COPIED = ("proto", "core", "agent", "manager", "sandbox", "cli", "pyproject.toml", "README.md", "LICENSE")
"""What the Dockerfiles copy."""


class NoIndexError(Exception):
    """No package index can be reached."""


def build_wheel(folder: Path) -> Path:
    """The wheel, built in a folder from what the Dockerfiles copy."""
    source = folder / "source"
    source.mkdir()
    for name in _COPIED:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copyfile
        copy(TOP / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_image(folder: Path) -> Path:
    """A virtual environment made as in the Dockerfiles; its `slicebus` command. Raises NoIndexError."""
    environment = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, capture_output=True, timeout=60)
    _pip_install(environment, "--require-hashes", "--requirement", str(TOP / "docker" / "requirements.lock"))
    _pip_install(environment, "--no-deps", "--no-index", str(build_wheel(folder)))
    return environment / "bin" / "slicebus"


def _pip_install(environment: Path, *arguments: str) -> None:
    command: Sequence[str] = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *arguments]
    # The checkout must not be found by the installed interpreter.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    if "NewConnectionError" in done.stderr or "NameResolutionError" in done.stderr:
        raise NoIndexError
    if done.returncode:
        raise RuntimeError(done.stderr)
