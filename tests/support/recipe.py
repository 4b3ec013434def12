"""A recipe of CONTRIBUTING.md, carried out on a copy of the checkout."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from support.processes import COMMAND_S

TOP = Path(__file__).parents[2]
ROOTS = ("proto", "core", "agent", "manager", "sandbox", "cli")
_COPIED = (*ROOTS, "tests", "pyproject.toml")


class Edit(NamedTuple):
    """A text that a recipe puts into a file."""

    path: str
    text: str
    after: str = ""
    """What it comes after, the first time that this is there. Without it the text comes to the end of the file, which
    may be new."""


def recipe(title: str) -> str:
    """The section of CONTRIBUTING.md."""
    [section] = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", (TOP / "CONTRIBUTING.md").read_text(), re.M | re.S)
    return str(section)


def unnamed(edits: Iterable[Edit], text: str) -> list[str]:
    """The files of some edits of which a recipe names neither the path nor the folder."""
    paths = sorted({edit.path for edit in edits})
    return [path for path in paths if f"`{path}`" not in text and f"`{Path(path).parent}`" not in text]


class Checkout:
    """A copy of the checkout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            if (TOP / name).is_dir():
                shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(TOP / name, folder / name)

    def edit(self, edits: Iterable[Edit]) -> None:
        """Make these edits."""
        for edit in edits:
            path = self._folder / edit.path
            before = path.read_text() if path.exists() else ""
            assert edit.after in before, f"{edit.path} has no {edit.after!r}"
            head, found, rest = before.partition(edit.after) if edit.after else (before, "", "")
            path.write_text(head + found + edit.text + rest)

    def run(self, *command: str) -> None:
        """Run a Python program of the copy. Fails with what it says."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        environment["PYTHONPATH"] = os.pathsep.join(str(self._folder / root) for root in ROOTS)
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
