"""What an image has: the wheel, and beside it what docker/requirements.lock names and nothing else."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.processes import COMMAND_S

TOP = Path(__file__).parents[2]
_COPIED = ("proto", "core", "agent", "manager", "sandbox", "cli", "pyproject.toml", "README.md", "LICENSE")
"""What the wheel for users is built from. Images leave the sandbox out."""


class NoIndexError(Exception):
    """No package index can be reached."""


def build_wheel(folder: Path) -> Path:
    """The wheel for users, built in a folder."""
    source = folder / "source"
    source.mkdir()
    for name in _COPIED:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copyfile
        copy(TOP / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=COMMAND_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install_image(folder: Path, role: str = "agent") -> Path:
    """What the first stage of a role's Dockerfile makes, without Docker, in a folder in place of the root; its
    `slicebus` command. Raises NoIndexError."""
    source = folder / "src"
    source.mkdir()
    for instruction, rest in build_stage(role):
        if instruction == "COPY":
            *names, target = rest.split()
            for name in names:
                _copy(TOP / name, source / target)
        elif instruction == "RUN":
            _run(re.sub(r"(?<![\w.])/(opt|wheel)\b", rf"{folder}/\1", rest), source)
    return folder / "opt" / "slicebus" / "bin" / "slicebus"


def build_stage(role: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile's first stage, each with the rest of its line."""
    text = (TOP / "docker" / f"{role}.Dockerfile").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    stages = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    for line in lines[stages[0] + 1 : stages[1]]:
        instruction, _, rest = line.partition(" ")
        yield instruction, rest


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        return
    target.mkdir(exist_ok=True)
    shutil.copy(source, target)


def _run(command: str, folder: Path) -> None:
    # The checkout must not be found by the installed interpreter.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    if "NewConnectionError" in done.stderr or "NameResolutionError" in done.stderr:
        raise NoIndexError
    if done.returncode:
        raise RuntimeError(done.stderr)
