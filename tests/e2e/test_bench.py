"""The benchmarks that need servers run. Their figures are not looked at."""

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
    assert "dispatch: east 1 create jobs 201" in shown
    assert "resize from 1 pod to 5: east 4 patch pods 200" in shown


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
