"""`helm upgrade` and `helm rollback` of the manager and an agent, in either order, with the version before: a job goes
on being resized, and none of its pods is started again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from support.controlplane import Cluster, ControlPlane
from support.installation import apply, run_cli
from support.previous import Version, checkout_version, previous_version
from support.rabbitmq import RabbitBroker
from support.release import Deployed, Release, add_secret
from support.waiting import eventually
from support.wiping import wipe

pytestmark = [
    pytest.mark.soak,
    pytest.mark.rabbitmq,
    pytest.mark.controlplane,
    pytest.mark.helm,
]

NAMESPACE = objects.NAMESPACE
VALUES: dict[str, dict[str, Any]] = {
    "manager": {},
    "agent": {"cluster": "east", "managerUser": "manager", "heartbeatSeconds": 1},
}
SECRET = {"amqp": {"existingSecret": {"name": "slicebus-amqp"}}}


class Fleet:
    """A manager and the agent of east, by Helm."""

    def __init__(self, deployed: dict[str, Deployed], east: Cluster, url: str) -> None:
        self.deployed = deployed
        self.url = url
        self._east = east

    def install(self, name: str, version: Version) -> None:
        """Install one of them."""
        self.deployed[name].release.install(version.charts, VALUES[name] | SECRET)
        self.deployed[name].roll(version.program)

    def upgrade(self, name: str, version: Version) -> None:
        """To another version, by a rolling update."""
        self.deployed[name].release.upgrade(version.charts, VALUES[name] | SECRET)
        self.deployed[name].roll(version.program)

    def rollback(self, name: str, version: Version) -> None:
        """To the revision before, which was of that version."""
        self.deployed[name].release.rollback()
        self.deployed[name].roll(version.program)

    def pods(self) -> dict[str, bool]:
        """The job's pods, and whether each runs."""
        found = json.loads(self._east.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json"))["items"]
        return {pod["metadata"]["uid"]: pod["status"]["phase"] == "Running" for pod in found}

    async def resize(self, size: int) -> None:
        """On the worker. No pod of the smaller of both sizes is another one afterwards."""
        before = set(self.pods())
        patch = json.dumps({"spec": {"parallelism": size}})
        self._east.kubectl("patch", "job", "sweep", "-n", NAMESPACE, "--type=merge", "-p", patch)
        await self.runs(size)
        after = set(self.pods())
        assert before <= after or after <= before, "a pod was started again"

    async def runs(self, size: int) -> None:
        """Wait until so many pods run, and no other is there."""

        async def look() -> bool:
            return list(self.pods().values()) == [True] * size

        try:
            await eventually(look, f"{size} pods run")
        except AssertionError as error:
            for name, each in self.deployed.items():
                error.add_note(f"{name}: {each.log_tail()}")
            raise


@pytest.fixture
async def fleet(
    helm: Path, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path
) -> AsyncIterator[Fleet]:
    manager, east = control_plane.clusters["manager"], control_plane.clusters["east"]
    # The agent of the version before declares its queues: rights are narrowed after the agents are upgraded.
    rabbitmq.broaden(vhost, "east")
    deployed = {}
    for command, cluster, user in (("manager", manager, "manager"), ("agent", east, "east")):
        add_secret(cluster, rabbitmq.url(vhost, user), tmp_path)
        deployed[command] = Deployed(Release(helm, cluster, f"slicebus-{command}"), tmp_path)
    try:
        yield Fleet(deployed, east, rabbitmq.url(vhost, "manager"))
    finally:
        for each in deployed.values():
            each.stop()
            each.release.uninstall()
        for cluster in (manager, east):
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)


@pytest.mark.parametrize("order", [("manager", "agent"), ("agent", "manager")], ids=" then ".join)
async def test_a_job_is_resized_through_an_upgrade_and_a_rollback(
    fleet: Fleet, control_plane: ControlPlane, order: tuple[str, str], tmp_path: Path
) -> None:
    old, new = previous_version(tmp_path), checkout_version()
    manager, east = control_plane.clusters["manager"], control_plane.clusters["east"]
    fleet.install("manager", old)
    apply(manager, objects.worker_cluster("east"))
    fleet.install("agent", old)
    for cluster in (manager, east):
        apply(cluster, objects.namespace(NAMESPACE))
    apply(manager, *(manifest for _, manifest in objects.quota(8)), objects.job("sweep"))
    await fleet.runs(1)
    await fleet.resize(2)
    first, second = order
    fleet.upgrade(first, new)
    await fleet.resize(4)
    fleet.upgrade(second, new)
    await fleet.resize(3)
    fleet.rollback(first, old)
    await fleet.resize(5)
    fleet.rollback(second, old)
    await fleet.resize(2)
    letters = run_cli("dead", "list", env={"AMQP_URL": fleet.url})
    assert (letters.stdout, letters.stderr) == ("", "no dead letters\n")
