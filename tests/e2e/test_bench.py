"""The benchmarks that need servers run. Their figures are not looked at."""

import re
import subprocess
import sys

import pytest

from support.image import TOP
from support.missing import skip_or_fail
from support.rabbitmq import SERVER
from support.servers import tools

SMALL: dict[str, tuple[tuple[str, ...], str]] = {
    "bus.py": (("--messages", "50", "--single", "5", "--rounds", "1"), "one at a time"),
    "fleet.py": (
        (
            "--clusters",
            "1",
            "2",
            "--workloads",
            "10",
            "--rate",
            "2",
            "--seconds",
            "2",
            "--idle",
            "1",
            "--idle-jobs",
            "3",
        ),
        "fleet of 2",
    ),
}
"""Options that make those over RabbitMQ short, and a figure."""
REQUESTS = {
    "dispatch": {
        "manager 3 create events 201",
        "manager 1 create workloads 201",
        "manager 1 patch workloads 200",
        "east 1 create jobs 201",
        "east 1 create workloads 201",
        "east 1 patch workloads 200",
        "east 1 patch pods 200",
    },
    "resize from 1 pod to 5": {
        "manager 3 create events 201",
        "manager 1 create workloads 201",
        "manager 2 patch workloads 200",
        "manager 1 patch jobs 200",
        "east 1 create workloads 201",
        "east 1 delete workloads 200",
        "east 2 patch jobs 200",
        "east 4 patch pods 200",
    },
    "shrink from 5 pods to 2": {
        "manager 2 patch workloads 200",
        "manager 1 patch jobs 200",
        "east 1 patch workloads 200",
        "east 2 patch jobs 200",
    },
}
"""What each step costs. Another number, and a conflict, is a change that somebody has to want."""


def run(name: str, *options: str) -> str:
    """What a benchmark prints."""
    command = [sys.executable, str(TOP / "bench" / name), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False)
    # 1: a target was missed.
    assert done.returncode in (0, 1), done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def servers() -> None:
    if not SERVER.exists() or not (tools() / "kube-apiserver").exists():
        skip_or_fail("no RabbitMQ, or no Kubernetes control plane")


@pytest.mark.rabbitmq
@pytest.mark.controlplane
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("servers")
def test_requests_are_counted() -> None:
    shown = run("api_requests.py", "--rounds", "1", "--details")
    assert {step: requests_of(step, shown) for step in REQUESTS} == REQUESTS


def requests_of(step: str, shown: str) -> set[str]:
    """The requests of a step, but for those whose number depends on what comes first: statuses that are mirrored or
    counted together, and reads after something has gone."""
    lines = (line.partition(": ")[2] for line in shown.splitlines() if line.startswith(f"{step}: "))
    return {line for line in lines if not re.search(r"queues/status|jobs/status|workloads/status| get ", line)}


@pytest.mark.rabbitmq
@pytest.mark.controlplane
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("servers")
def test_dispatches_and_resizes_are_measured() -> None:
    shown = run("dispatch.py", "--jobs", "4", "--resizes", "2", "--pods", "10", "--rounds", "1")
    assert "dispatch of 4 jobs at once" in shown
    assert "one job to 10 pods" in shown


@pytest.mark.rabbitmq
@pytest.mark.controlplane
@pytest.mark.timeout(240)
@pytest.mark.usefixtures("servers")
def test_restarts_are_measured() -> None:
    shown = run("restart.py", "--workloads", "20", "--agent-jobs", "5", "--messages", "50", "--rounds", "1")
    assert "manager with" in shown
    assert "50 statuses that waited" in shown
    assert "agent with" in shown


@pytest.mark.rabbitmq
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", SMALL)
def test_it_measures(name: str) -> None:
    if not SERVER.exists():
        skip_or_fail("no RabbitMQ")
    options, figure = SMALL[name]
    assert figure in run(name, *options)
