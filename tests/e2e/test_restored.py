"""The manager's etcd is restored from an older backup: the manager finds out by itself what runs by now."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, real_world
from slicebus.kube.resources import JOBS, PODS, WORKERCLUSTERS, WORKLOADS
from slicebus.proto.errors import NotFoundError
from slicebus.proto.messages import ClusterName
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs, QuotaWatch
from support.rabbitmq import RabbitBroker
from support.scenario import NAMESPACE, set_quota
from support.tools import tools
from support.waiting import eventually
from support.wiping import wipe

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

QUOTA = 12


@pytest.fixture
def own_plane(control_plane: ControlPlane, tmp_path: Path) -> ControlPlane:
    """A manager's cluster with an etcd of its own, beside the workers of all tests."""
    plane = ControlPlane(tmp_path, tools(), names=("manager",))
    plane.start()
    return plane


@pytest.fixture
async def world(own_plane: ControlPlane, control_plane: ControlPlane) -> AsyncIterator[World]:
    workers = {ClusterName("east"): control_plane.clusters["east"].kubeconfig}
    try:
        async with real_world(own_plane.clusters["manager"].kubeconfig, workers, ray_stand_in=False) as made:
            await made.manager.create(WORKERCLUSTERS, objects.worker_cluster("east"))
            yield made
            await wipe(*made.workers.values())
    finally:
        own_plane.stop()


@pytest.fixture
async def fleet(
    world: World,
    own_plane: ControlPlane,
    control_plane: ControlPlane,
    rabbitmq: RabbitBroker,
    vhost: str,
    tmp_path: Path,
) -> AsyncIterator[Fleet]:
    made = Fleet(tmp_path)
    kubeconfig = own_plane.clusters["manager"].kubeconfig
    made.add("manager", "manager", url=rabbitmq.url(vhost, "manager"), kubeconfig=kubeconfig)
    east = control_plane.clusters["east"].kubeconfig
    made.add("east", "agent", url=rabbitmq.url(vhost, "east"), kubeconfig=east, SLICEBUS_CLUSTER="east")
    async with made.kept():
        await made.ready()
        yield made


async def running(world: World, name: str) -> set[str]:
    """UIDs of the pods of a job on east that run."""
    found = (await world.workers[ClusterName("east")].list(PODS, namespace=NAMESPACE)).items
    mine = (pod for pod in found if pod["metadata"]["labels"].get("job-name") == name)
    return {pod["metadata"]["uid"] for pod in mine if pod["status"].get("phase") == "Running"}


async def test_a_manager_that_is_an_hour_older_learns_what_runs(
    fleet: Fleet, world: World, own_plane: ControlPlane, tmp_path: Path
) -> None:
    """Over half a minute: etcd and an API server are started three times."""
    east = world.workers[ClusterName("east")]
    await set_quota(world, QUOTA)
    jobs = Jobs(world, ["kept", "shrunk", "grown", "deleted"])
    await jobs.submit()
    await jobs.resize("shrunk", 3)
    await jobs.agreed()
    own_plane.save(tmp_path / "backup")
    await fleet.ready()

    await jobs.resize("shrunk", 1)
    await jobs.resize("grown", 3)
    await world.manager.delete(JOBS, "deleted", NAMESPACE)
    was_on = jobs.cluster.pop("deleted"), jobs.wanted.pop("deleted")
    await jobs.agreed()
    await world.manager.create(JOBS, objects.job("created"))

    async def created_runs() -> bool:
        return len(await running(world, "created")) == 1

    await eventually(created_runs, "the job that the backup does not have runs")
    before = {name: await running(world, name) for name in ("kept", "shrunk", "grown")}

    quota = QuotaWatch(world, QUOTA)
    async with quota.watching():
        own_plane.restore(tmp_path / "backup")
        await fleet.ready()
        jobs.cluster["deleted"], jobs.wanted["deleted"] = was_on

        await jobs.agreed()
    assert not quota.violations
    assert {name: await running(world, name) for name in before} == before, "no pod was started again"
    with pytest.raises(NotFoundError):
        await east.get(JOBS, "created", NAMESPACE)
    held = (await world.manager.get(WORKERCLUSTERS, "east"))["status"]
    assert "heldDeletes" not in held
    names = {
        workload["metadata"]["ownerReferences"][0]["name"] for workload in (await world.manager.list(WORKLOADS)).items
    }
    assert "created" not in names
