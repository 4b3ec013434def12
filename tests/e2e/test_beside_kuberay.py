"""Clusters of Ray that a real KubeRay runs lose workers to a job of higher priority, and have them back.

They run where `KUBERAY_BINARY` names an operator, as in `make test-peers`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e import test_reclaimed, test_reclaimed_autoscaler
from e2e.conftest import wiped_world
from e2e.test_reclaimed import EAST, submit_high
from e2e.test_reclaimed_autoscaler import Acts, Submit, by_nobody, expect_most
from slicebus.cli.demo.world import World
from slicebus.kube.resources import JOBS, RAYCLUSTERS
from support import roles
from support.controlplane import ControlPlane
from support.kuberay import KubeRay, binary_and_definitions
from support.scenario import NAMESPACE, Scenario

pytestmark = pytest.mark.real(only=True)


@pytest.fixture
async def world(parts: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Real clusters without roles, of which east has the operator."""
    binary_and_definitions()
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    kuberay = KubeRay(control_plane.clusters["east"], tmp_path, namespace=NAMESPACE, replica_labels=False)
    async with wiped_world(control_plane, ray_stand_in=False) as made:
        await asyncio.to_thread(kuberay.start)
        try:
            yield made
        finally:
            kuberay.stop()


async def submit_by_user(world: World) -> Scenario:
    return await test_reclaimed.submit_low(world, "RayCluster")


async def by_ray(low: Scenario) -> None:
    await expect_most(low, 4, capped=True)
    await test_reclaimed_autoscaler.by_ray(low)


@pytest.mark.parametrize(
    ("submit", "acts"),
    [
        (submit_by_user, by_nobody),
        (test_reclaimed_autoscaler.submit_low, by_ray),
        (test_reclaimed_autoscaler.submit_low, by_nobody),
    ],
    ids=["without an autoscaler", "Ray acts", "Ray does not"],
)
async def test_a_cluster_loses_workers_and_has_them_back(
    world: World, urls: dict[str, str], submit: Submit, acts: Acts
) -> None:
    patience_s = 60.0 if acts is by_ray else 1.0
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, autoscaler_shrink_s=patience_s):
        low = await submit(world)
        began = await low.running()
        high = await submit_high(world)
        await acts(low)
        await high.expect_pods(running=4)
        await low.expect_pods(running=4)
        kept = await low.running()
        assert kept < began
        await low.expect_unfinished(4, 8)
        await world.manager.delete(JOBS, "high", NAMESPACE)
        await low.expect_pods(running=8)
        assert kept < await low.running()
        cluster = await (await low.worker()).get(RAYCLUSTERS, "low", NAMESPACE)
        assert cluster["spec"]["workerGroupSpecs"][0]["replicas"] == 8
