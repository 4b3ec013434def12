"""As a user has it: charts on real API servers, roles as processes of what an image has with the charts' rights, the
quota and the job of examples/, everything by kubectl."""

import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.proto.topology import words
from support.controlplane import Cluster, ControlPlane
from support.examples import EXAMPLES
from support.helm import NAMESPACE as SYSTEM_NAMESPACE
from support.installation import Role, apply, install, kubeconfig_of, run_cli, uninstall
from support.rabbitmq import RabbitBroker
from support.waiting import KUBECTL_PATIENCE, PATIENCE_S
from support.wiping import wipe

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.controlplane,
    pytest.mark.helm,
    pytest.mark.index,
]

NAMESPACE = objects.NAMESPACE
JOB = "example-job"


class Fleet:
    """A manager, and an agent for east."""

    def __init__(self, manager: Cluster, east: Cluster, roles: dict[str, Role], journal_url: str) -> None:
        self.manager = manager
        self.east = east
        self.roles = roles
        self.journal_url = journal_url

    def is_connected(self) -> bool:
        """As `kubectl get workerclusters` shows it."""
        row = self.manager.kubectl("get", "workerclusters", "--no-headers").split()
        return row[:3] == ["east", "true", "True"]

    def pods(self) -> tuple[int, int]:
        """Running and gated pods of the job."""
        found = json.loads(self.east.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        running = sum(pod["status"]["phase"] == "Running" for pod in found)
        return running, sum(bool(pod["spec"].get("schedulingGates")) for pod in found)


@pytest.fixture
async def fleet(
    helm: Path, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, image: Path, tmp_path: Path
) -> AsyncIterator[Fleet]:
    manager, east = control_plane.clusters["manager"], control_plane.clusters["east"]
    values: dict[str, dict[str, object]] = {
        "manager": {},
        "agent": {"cluster": "east", "managerUser": "manager", "heartbeatSeconds": 1},
    }
    users = {"manager": "manager", "agent": "east"}
    roles = {}
    for command, cluster in (("manager", manager), ("agent", east)):
        chart = f"slicebus-{command}"
        address = tmp_path / f"{users[command]}.env"
        address.write_text(f"url={rabbitmq.url(vhost, users[command])}\n")
        variables = install(helm, chart, cluster, values[command], address=address)
        variables["KUBECONFIG"] = str(kubeconfig_of(cluster, chart, tmp_path / chart))
        roles[command] = Role(chart, command, variables, log=tmp_path / f"{chart}.log", program=image)
    try:
        yield Fleet(manager, east, roles, rabbitmq.url(vhost, "manager"))
    finally:
        for role in roles.values():
            role.kill()
        for command, cluster in (("manager", manager), ("agent", east)):
            # The API server is shared, and the chart's policies would hold for the next test's agent.
            uninstall(helm, f"slicebus-{command}", cluster, values[command])
        for cluster in (manager, east):
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)


def test_a_resize_on_the_worker_comes_through(fleet: Fleet, image: Path, tmp_path: Path) -> None:
    """Over 20 s: every step is a process of kubectl, helm or slicebus, and the first installs what an image has."""
    apply(fleet.manager, objects.worker_cluster("east"))
    for role in fleet.roles.values():
        role.start()
        assert role.probe("/healthz") == "ok\n"
    until(lambda: fleet.is_connected(), "east is connected", fleet)
    for cluster in (fleet.manager, fleet.east):
        apply(cluster, objects.namespace(NAMESPACE))
    for example in ("quota.yaml", "job.yaml"):
        fleet.manager.kubectl("apply", "-f", str(EXAMPLES / example))
    until(lambda: fleet.pods() == (1, 0), "one pod runs on east", fleet)
    fleet.east.kubectl("patch", "job", JOB, "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"parallelism":5}}')
    until(lambda: fleet.pods() == (5, 0), "five pods run on east", fleet)
    fleet.east.kubectl("patch", "job", JOB, "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"parallelism":3}}')
    until(lambda: fleet.pods() == (3, 0), "three pods run on east", fleet)

    table = fleet.manager.kubectl("get", "workloads", "-n", NAMESPACE)
    assert table.count(f"job-{JOB}-") == 2, table
    described = fleet.manager.kubectl("describe", "job", JOB, "-n", NAMESPACE)
    assert "CreatedWorkload" in described
    assert "runs on cluster east" in described

    for name, role in fleet.roles.items():
        done = role.doctor()
        assert done.returncode == 0, done.stdout
        assert "✗" not in done.stdout, f"{name}: {done.stdout}"

    until(lambda: has_metrics(fleet.roles["manager"]), "the manager's metrics count it all", fleet)

    exported = tmp_path / "journal.jsonl"
    journal = partial(run_cli, "journal", env={"AMQP_URL": fleet.journal_url}, program=image)
    done = journal("export", "--no-decisions", str(exported))
    assert done.returncode == 0, done.stderr
    types = {words(json.loads(line)["routing_key"])[1] for line in exported.read_text().splitlines()}
    # An inventory is asked for where a heartbeat comes before the manager has taken a hello.
    assert types - {"resync"} == {
        "hello", "heartbeat", "terms", "inventory", "scale-request", "workload-spec", "relabel", "applied", "status"
    }  # fmt: skip
    tailed = journal("tail", "--no-follow", "--type", "scale-request")
    assert "main=1 -> main=5 (parallelism changed)" in tailed.stdout
    assert "main=5 -> main=3 (parallelism changed)" in tailed.stdout

    fleet.manager.kubectl("delete", "job", JOB, "-n", NAMESPACE, KUBECTL_PATIENCE)
    until(lambda: fleet.pods() == (0, 0), "no pod is left on east", fleet)
    for name, role in fleet.roles.items():
        assert role.terminate() == 0, f"{name}: {role.log()[-5:]}"


def has_metrics(manager: Role) -> bool:
    """Two resizes and two Workloads were counted, and three cores are used."""
    lines = manager.probe("/metrics").splitlines()
    expected = {
        'slicebus_resize_seconds_count{cluster="east"}': " 2.0",
        "kueue_admitted_workloads_total{": " 2.0",
        "kueue_cluster_queue_resource_usage{": " 3.0",
    }
    return all(any(line.startswith(name) and line.endswith(end) for line in lines) for name, end in expected.items())


def test_the_doctor_says_what_is_missing(fleet: Fleet) -> None:
    fleet.east.kubectl("delete", "clusterrolebinding", f"slicebus-agent.{SYSTEM_NAMESPACE}")
    done = fleet.roles["agent"].doctor()
    assert done.returncode == 1
    assert "✗ topology     exchange slicebus.up is missing" in done.stdout
    assert "✗ permissions  not allowed: " in done.stdout
    assert "patch pods" in done.stdout
    assert "→ bind the ClusterRole of the chart slicebus-agent" in done.stdout


def until(look: Callable[[], bool], what: str, fleet: Fleet) -> None:
    """Wait as a user does, with kubectl again and again."""
    ends_at = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > ends_at:
            logs = {name: role.log()[-10:] for name, role in fleet.roles.items()}
            pytest.fail(f"not within {PATIENCE_S:.0f} s: {what}; pods {fleet.pods()}; {json.dumps(logs, indent=1)}")
        time.sleep(0.1)
