"""The same properties for kinds by declaration, also for those that cannot be suspended.

Kinds are read once, so they are played in a process that has the declarations by their variable.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slicebus.slices.jobs.registry import DECLARATIONS
from unit.slices.jobs.declared import ENTRIES

TESTS = Path(__file__).parents[2]
PROPERTIES = Path(__file__).parent / "test_nothing_raises.py"


def _played(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    file = folder / "kinds.yaml"
    file.write_text(yaml.safe_dump(list(ENTRIES.values())))
    command = (sys.executable, "-m", "pytest", str(PROPERTIES), "-p", "no:cacheprovider", "-q", *options)
    environment = os.environ | {DECLARATIONS: str(file)} | variables
    return subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=False)


def test_no_decision_about_a_declared_kind_raises(tmp_path: Path) -> None:
    done = _played(tmp_path, PROPERTY_EXAMPLES="10")
    assert done.returncode == 0, done.stdout[-6000:]
    assert "5 passed" in done.stdout


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_decision_about_a_declared_kind_raises_for_an_hour(tmp_path: Path) -> None:
    done = _played(tmp_path, "-m", "soak")
    assert done.returncode == 0, done.stdout[-6000:]
