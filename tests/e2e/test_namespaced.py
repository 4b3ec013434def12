"""An agent in namespaced mode, with the rights of its chart: its jobs run, and nothing elsewhere is touched or read."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, PODS
from slicebus.proto.errors import ForbiddenError
from support.controlplane import Cluster, ControlPlane
from support.installation import apply
from support.previous import checkout_version
from support.rabbitmq import RabbitBroker
from support.release import Deployed, Release, add_secret
from support.waiting import eventually
from support.wiping import wipe

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane, pytest.mark.helm]

HERE, ELSEWHERE = objects.NAMESPACE, "team-elsewhere"
SECRET = {"amqp": {"existingSecret": {"name": "slicebus-amqp"}}}


@pytest.fixture
async def deployed(
    helm: Path, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[dict[str, Deployed]]:
    """A manager, and the agent of east in one namespace."""
    clusters = {"manager": control_plane.clusters["manager"], "agent": control_plane.clusters["east"]}
    values: dict[str, dict[str, Any]] = {
        "manager": {},
        "agent": {"cluster": "east", "managerUser": "manager", "heartbeatSeconds": 1, "namespaces": [HERE]},
    }
    made, version = {}, checkout_version()
    try:
        for command, cluster in clusters.items():
            user = "manager" if command == "manager" else "east"
            add_secret(cluster, rabbitmq.url(vhost, user), tmp_path)
            apply(cluster, *map(objects.namespace, (HERE, ELSEWHERE)))
            made[command] = Deployed(Release(helm, cluster, f"slicebus-{command}"), tmp_path)
            made[command].release.install(version.charts, values[command] | SECRET)
            made[command].roll(version.program)
            if command == "manager":
                apply(cluster, objects.worker_cluster("east"), *(manifest for _, manifest in objects.quota(8)))
        yield made
    finally:
        for each in made.values():
            each.stop()
            each.release.uninstall()
        for cluster in clusters.values():
            cluster.kubectl("delete", "namespace", ELSEWHERE, "--wait=false", "--ignore-not-found")
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)


def running(east: Cluster) -> int:
    """Running pods of the job."""
    found = json.loads(east.kubectl("get", "pods", "-n", HERE, "-o", "json"))["items"]
    return sum(pod["status"]["phase"] == "Running" for pod in found)


async def test_an_agent_works_in_its_namespaces_only(deployed: dict[str, Deployed], tmp_path: Path) -> None:
    manager, east = (deployed[command].release.cluster for command in ("manager", "agent"))
    apply(manager, objects.job("sweep"))

    async def runs(size: int) -> None:
        async def look() -> bool:
            return running(east) == size

        await eventually(look, f"{size} pods run")

    await runs(1)
    east.kubectl("patch", "job", "sweep", "-n", HERE, "--type=merge", "-p", '{"spec":{"parallelism":3}}')
    await runs(3)
    local = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "batch"}}
    outside = objects.job("outside")
    outside["metadata"]["namespace"] = ELSEWHERE
    apply(manager, local | {"metadata": {"name": objects.QUEUE, "namespace": ELSEWHERE}}, outside)

    async def refused() -> bool:
        found = json.loads(manager.kubectl("get", "workloads", "-n", ELSEWHERE, "-o", "json"))["items"]
        conditions = [each for workload in found for each in workload.get("status", {}).get("conditions", ())]
        return any(
            each["type"] == "slicebus.dev/Dispatched" and f'in the namespace "{ELSEWHERE}"' in each["message"]
            for each in conditions
        )

    await eventually(refused, "the Workload says that its cluster refuses it")
    assert "outside" not in east.kubectl("get", "jobs", "-n", ELSEWHERE, "-o", "name")
    done = deployed["agent"].role.doctor() if deployed["agent"].role else None
    assert done is not None
    assert "✓ permissions" in done.stdout, done.stdout
    async with await KubeClient.from_kubeconfig(tmp_path / "agent-1.kubeconfig") as client:
        assert (await client.list(PODS, namespace=HERE)).items
        for resource in (PODS, JOBS):
            for namespace in (ELSEWHERE, None):
                with pytest.raises(ForbiddenError):
                    await client.list(resource, namespace=namespace)
