"""The benchmarks that need servers run. Their figures are not looked at."""

import re
from pathlib import Path

import pytest
from all import NEEDS, QUICK

from support.bench import WITHOUT_SERVERS, figures_of, run
from support.kueue import binary_and_definitions
from support.missing import skip_or_fail
from support.rabbitmq_releases import releases
from support.tools import tools

pytestmark = [pytest.mark.soak, pytest.mark.rabbitmq, pytest.mark.controlplane]
_OPTIONS = {"api_requests.py": ("--details",)}
REQUESTS = {
    "dispatch": {
        "manager 3 create events 201",
        "manager 1 create workloads 201",
        "manager 1 patch workloads 200",
        "east 1 create jobs 201",
        "east 1 create workloads 201",
        "east 1 patch pods 200",
    },
    "resize from 1 pod to 5": {
        "manager 3 create events 201",
        "manager 1 create workloads 201",
        "manager 2 patch workloads 200",
        "east 1 create workloads 201",
        "east 1 delete workloads 200",
        "east 2 patch jobs 200",
        "east 4 patch pods 200",
    },
    "shrink from 5 pods to 2": {
        "manager 3 patch workloads 200",
        "east 1 patch workloads 200",
        "east 2 patch jobs 200",
    },
    "eviction": {
        "manager 5 create events 201",
        "manager 3 patch workloads 200",
        "east 1 create events 201",
        "east 1 patch jobs 200",
    },
    "RayCluster from 1 worker to 5": {
        "manager 3 create events 201",
        "manager 1 create workloads 201",
        "manager 2 patch workloads 200",
        "east 1 create workloads 201",
        "east 1 delete workloads 200",
        "east 2 patch rayclusters 200",
        "east 4 patch pods 200",
    },
    "end": {
        "manager 3 patch workloads 200",
        "manager 1 patch jobs 200",
        "east 1 delete jobs 200",
        "east 1 delete workloads 200",
        "east 1 patch configmaps 200",
    },
    "start after a shrink by hand": {
        "manager 5 create events 201",
        "manager 1 create workloads 201",
        "manager 4 patch workloads 200",
        "manager 2 patch jobs 200",
        "east 1 create jobs 201",
        "east 1 create workloads 201",
        "east 1 patch workloads 200",
        "east 2 patch jobs 200",
        "east 3 patch pods 200",
    },
    "start after a shrink by preemption": {
        "manager 6 create events 201",
        "manager 2 create workloads 201",
        "manager 4 patch workloads 200",
        "manager 3 patch jobs 200",
        "east 1 create events 201",
        "east 1 create jobs 201",
        "east 1 create workloads 201",
        "east 1 patch workloads 200",
        "east 2 patch jobs 200",
        "east 3 patch pods 200",
    },
}
"""What each step costs. Another number is a change that somebody has to want."""
_STATUSES = ("queues/status", "jobs/status", "rayclusters/status", "workloads/status")
_MIRRORED = (*_STATUSES, "patch events", " get ", " 404", " 409")
VARIES = {"eviction": "manager . patch jobs"}
"""On the job, why it waits is said twice where the next admission cycle comes late."""


@pytest.mark.parametrize("name", [name for name in QUICK if name not in WITHOUT_SERVERS])
def test_it_measures(name: str, tmp_path: Path) -> None:
    if not releases() or not (tools() / "kube-apiserver").exists():
        skip_or_fail("no RabbitMQ, or no Kubernetes control plane")
    if name in NEEDS:
        binary_and_definitions()
    path = tmp_path / "figures.json"
    shown = run(name, *QUICK[name], *_OPTIONS.get(name, ()), "--json", str(path), within_s=390)
    found = figures_of(path)
    assert found
    assert all(figure.name in shown for figure in found)
    if name == "api_requests.py":
        assert {step: requests_of(step, shown) for step in REQUESTS} == REQUESTS


def requests_of(step: str, shown: str) -> set[str]:
    """The requests of a step, but for those whose number depends on what comes first: statuses that are mirrored or
    counted together, counts of Events, what is asked after something has gone, and conflicts with the controllers."""
    of_this_step = [VARIES[step]] if step in VARIES else []
    lines = (line.partition(": ")[2] for line in shown.splitlines() if line.startswith(f"{step}: "))
    asked = (line for line in lines if re.match(r"(manager|east) \d", line))
    left_out = re.compile("|".join([*_MIRRORED, *of_this_step]))
    return {line for line in asked if not left_out.search(line)}
