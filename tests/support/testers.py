"""Divides the tests among the testers: a file is played by one of them, and what needs a control plane by two.

A control plane takes a minute of processor time to start, and a sixteenth of a core while it waits. So the files that
need one are two groups, of which each goes to one tester, whatever the number of testers. What takes longest begins
first, and the unit tests, whose files take a second, fill what is left at the end.
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_GROUPS = 2
_GROUP = "control plane"
_FIRST = (_GROUP, "tests/simulation/test_seeds.py", "tests/e2e/", "tests/integration/", "tests/simulation/")
_ROOT = Path(__file__).parents[2]
_CONTROL_PLANE = re.compile(r"mark\.(?:controlplane|real)\b|\bcontrol_plane\b")
_ON_BOTH = ("tests/integration/kube/", "tests/integration/ray/")
"""Folders whose fixtures play a test on both API servers."""
_EMBEDDED = re.compile(r"\[(?:.*-)?embedded\b.*\]$")
_REAL = re.compile(r"\[real\b")


class Scheduling(LoadFileScheduling):
    """Gives a tester the tests of a file at once, or of a group."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._numbers: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        """The file of a test, or its group. The files go to the groups in turn."""
        file = str(super()._split_scope(nodeid))
        if not needs_control_plane(nodeid):
            return file
        return f"{_GROUP} {self._numbers.setdefault(file, len(self._numbers)) % _GROUPS + 1}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a tester the file or group that comes first of those that are left."""
        self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
        super()._assign_work_unit(node)


def rank(scope: str) -> int:
    """When a file or group begins: the lowest first."""
    return next((number for number, start in enumerate(_FIRST) if scope.startswith(start)), len(_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """Take the place of xdist's own `--dist loadfile`."""
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def needs_control_plane(nodeid: str) -> bool:
    """Whether a test may need a control plane, by its id: the scheduler knows no marks."""
    file, _, _ = nodeid.partition("::")
    return _REAL.search(nodeid) is not None or (_may_need_one(file) and _EMBEDDED.search(nodeid) is None)


@cache
def _may_need_one(file: str) -> bool:
    return file.startswith(_ON_BOTH) or _CONTROL_PLANE.search((_ROOT / file).read_text()) is not None
