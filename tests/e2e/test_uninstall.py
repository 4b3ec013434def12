"""The commands of docs/uninstall.md leave no finalizer and no gated pod, whether the manager is still there or not."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.slices.api import api_names
from support.controlplane import Cluster, ControlPlane
from support.documents import to_run
from support.helm import NAMESPACE as SYSTEM_NAMESPACE
from support.installation import apply
from support.previous import checkout_version
from support.processes import COMMAND_S
from support.rabbitmq import RabbitBroker
from support.release import Deployed, Release, add_secret
from support.waiting import KUBECTL_PATIENCE, eventually
from support.wiping import wipe

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane, pytest.mark.helm]

NAMESPACE = objects.NAMESPACE
PAGE = Path(__file__).parents[2] / "docs" / "uninstall.md"
DRAIN, WAIT, FORGET, LEAVE, LEAVE_MANAGER, LET_GO = to_run(PAGE)


class Fleet:
    """A manager and the agent of east, whose job runs two pods and waits for two."""

    def __init__(self, deployed: dict[str, Deployed], helm: Path) -> None:
        self.manager = deployed["manager"].release.cluster
        self.east = deployed["agent"].release.cluster
        self.deployed = deployed
        self._path = f"{helm.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(self, commands: str, cluster: Cluster) -> None:
        """A block of the page, by a user whose kubectl is for that cluster. Helm ends pods with their Deployment."""
        env = {**os.environ, "PATH": self._path, "KUBECONFIG": str(cluster.kubeconfig)}
        ends = cluster is self.east and "helm uninstall" in commands
        if ends:
            self.deployed["agent"].stop()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], env=env, capture_output=True, text=True, timeout=COMMAND_S
        )
        assert done.returncode == 0, f"{commands}{done.stdout}{done.stderr}"

    def pods(self) -> tuple[int, int]:
        """Running and gated pods of the job on east. The Deployments of the charts have pods as well."""
        found = [pod for pod in objects_of(self.east, "pods") if pod["metadata"]["namespace"] == NAMESPACE]
        running = sum(pod["status"]["phase"] == "Running" for pod in found)
        return running, sum(bool(pod["spec"].get("schedulingGates")) for pod in found)

    async def until_pods(self, running: int, gated: int) -> None:
        """Wait for them."""

        async def look() -> bool:
            return self.pods() == (running, gated)

        await eventually(look, f"{running} pods run on east and {gated} wait")


def objects_of(cluster: Cluster, kinds: str, *more: str) -> list[dict[str, Any]]:
    """Objects in all namespaces."""
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", kinds, "-A", "-o", "json", *more))["items"]
    return found


@pytest.fixture
async def fleet(
    helm: Path, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    clusters = {"manager": control_plane.clusters["manager"], "agent": control_plane.clusters["east"]}
    values: dict[str, dict[str, object]] = {
        "manager": {},
        "agent": {"cluster": "east", "managerUser": "manager", "heartbeatSeconds": 1},
    }
    deployed, version = {}, checkout_version()
    try:
        for command, cluster in clusters.items():
            user = "manager" if command == "manager" else "east"
            add_secret(cluster, rabbitmq.url(vhost, user), tmp_path)
            deployed[command] = Deployed(Release(helm, cluster, f"slicebus-{command}"), tmp_path)
            secret = {"amqp": {"existingSecret": {"name": "slicebus-amqp"}}}
            deployed[command].release.install(version.charts, values[command] | secret)
            deployed[command].roll(version.program)
            if command == "manager":
                apply(cluster, objects.worker_cluster("east"))
        made = Fleet(deployed, helm)
        for cluster in clusters.values():
            apply(cluster, objects.namespace(NAMESPACE))
        apply(made.manager, *(manifest for _, manifest in objects.quota(2)), objects.job("sweep"))
        await made.until_pods(1, 0)
        made.east.kubectl("patch", "job", "sweep", "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"parallelism":2}}')
        await made.until_pods(2, 0)
        made.east.kubectl("patch", "job", "sweep", "-n", NAMESPACE, "--type=merge", "-p", '{"spec":{"parallelism":4}}')
        await made.until_pods(2, 2)
        yield made
    finally:
        for each in deployed.values():
            each.stop()
            each.release.uninstall()
        for cluster in clusters.values():
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)
            await ready_again(cluster)


async def ready_again(cluster: Cluster) -> None:
    """The next test finds the namespaces that the page has deleted."""

    async def look() -> bool:
        try:
            apply(cluster, *map(objects.namespace, (SYSTEM_NAMESPACE, NAMESPACE)))
        except RuntimeError:
            return False
        found = json.loads(cluster.kubectl("get", "namespaces", SYSTEM_NAMESPACE, NAMESPACE, "-o", "json"))["items"]
        return all(each["status"]["phase"] == "Active" for each in found)

    await eventually(look, "the namespaces are there")


async def test_what_is_uninstalled_leaves_nothing_behind(fleet: Fleet) -> None:
    """Over 20 s, as the next one: helm and kubectl wait for what they take away, namespaces among it."""
    fleet.run(DRAIN, fleet.manager)
    fleet.run(WAIT, fleet.east)
    assert fleet.pods() == (0, 0)
    fleet.run(FORGET, fleet.manager)
    fleet.run(LEAVE, fleet.east)
    await nothing_is_left_on(fleet.east)
    await nothing_of_the_manager_is_left(fleet, LEAVE_MANAGER)


async def test_a_cluster_whose_manager_is_lost_is_left_by_the_last_step_alone(fleet: Fleet) -> None:
    fleet.deployed["manager"].stop()
    fleet.run(LEAVE, fleet.east)
    await nothing_is_left_on(fleet.east)
    await nothing_of_the_manager_is_left(fleet, "helm uninstall slicebus-manager -n slicebus-system", LET_GO)


async def nothing_is_left_on(east: Cluster) -> None:
    """No pod of ours, gated or not, no object with our label, no policy."""

    async def look() -> bool:
        return not objects_of(
            east, "jobs,workloads,pods", "-l", f"{api_names.ORIGIN_LABEL}={api_names.ORIGIN}"
        ) and not (objects_of(east, "pods", "-l", api_names.MANAGER_UID_LABEL))

    await eventually(look, "nothing of slicebus is left on east")
    gated = [pod for pod in objects_of(east, "pods") if pod["spec"].get("schedulingGates")]
    assert not gated
    for kind in ("validatingadmissionpolicies", "clusterroles", "clusterrolebindings"):
        assert "slicebus" not in east.kubectl("get", kind, "-o", "name")


async def nothing_of_the_manager_is_left(fleet: Fleet, *blocks: str) -> None:
    """Not even a finalizer: the users' namespace can go."""
    for block in blocks:
        if "helm uninstall" in block and "kubectl delete jobs" not in block:
            fleet.deployed["manager"].stop()
        fleet.run(block, fleet.manager)
    fleet.deployed["manager"].stop()
    held = [found for found in objects_of(fleet.manager, "workloads") if found["metadata"].get("finalizers")]
    assert not held
    assert "slicebus" not in fleet.manager.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    fleet.manager.kubectl("delete", "namespace", NAMESPACE, KUBECTL_PATIENCE)
