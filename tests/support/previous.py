"""The version before this one, from the repository's history: its charts, and its roles with today's dependencies."""

import subprocess
import sys
from pathlib import Path

import msgspec

from support.image import TOP
from support.missing import skip_or_fail
from support.processes import COMMAND_S

PREVIOUS = "90b11ba"
"""The newest commit that somebody may run when the next release comes. It moves with each release."""
_ROOTS = ("proto", "core", "agent", "manager", "sandbox", "cli")


class Version(msgspec.Struct, frozen=True):
    """What an operator has of a version."""

    charts: Path
    program: Path
    """Its `slicebus`."""


def checkout_version() -> Version:
    """This one."""
    return Version(TOP / "charts", Path(sys.executable).with_name("slicebus"))


def previous_version(folder: Path) -> Version:
    """The one before, unpacked in a folder."""
    done = subprocess.run(["git", "archive", PREVIOUS], cwd=TOP, capture_output=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        skip_or_fail(f"no history: the checkout does not have the commit {PREVIOUS}")
    source = folder / "previous"
    source.mkdir()
    subprocess.run(["tar", "--extract", "--directory", source], input=done.stdout, timeout=COMMAND_S, check=True)
    program = folder / "slicebus"
    # What comes first on the path wins in a namespace package: nothing of the checkout is imported.
    path = ":".join(str(source / root) for root in _ROOTS)
    run = f"PYTHONPATH={path} exec {sys.executable} -P -c 'from slicebus.cli.main import main; main()' \"$@\""
    program.write_text(f"#!/bin/sh\n{run}\n")
    program.chmod(0o755)
    return Version(source / "charts", program)
