"""Both roles are killed while a job loses pods: whoever starts again carries it on, and the job has everything back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.test_reclaimed import expect_note, submit_high, submit_low
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, PODS, WORKERCLUSTERS, Resource
from slicebus.proto.errors import NotFoundError
from support import finalizers
from support.controlplane import ControlPlane
from support.installation import Role
from support.scenario import NAMESPACE, Scenario, expect_used
from support.waiting import eventually

pytestmark = pytest.mark.real(only=True)
SHORT_LEASE = {"SLICEBUS_LEASE_SECONDS": "6", "SLICEBUS_LEASE_RENEW_SECONDS": "1", "SLICEBUS_HEARTBEAT_SECONDS": "1"}
"""Whoever is killed does not give it back."""


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: they are processes here."""
    return bare_east


@pytest.fixture
async def roles(
    world: World, urls: Mapping[str, str], control_plane: ControlPlane, tmp_path: Path
) -> AsyncIterator[Mapping[str, Role]]:
    """The manager and the agent of east, started."""
    await world.ensure(world.manager, WORKERCLUSTERS, objects.worker_cluster("east"))
    more = {"manager": {}, "east": {"SLICEBUS_CLUSTER": "east", "SLICEBUS_MANAGER_USER": "manager"}}
    made = {}
    for name, variables in more.items():
        access = {"AMQP_URL": urls[name], "KUBECONFIG": str(control_plane.clusters[name].kubeconfig)}
        command = "manager" if name == "manager" else "agent"
        made[name] = Role(name, command, access | SHORT_LEASE | variables, log=tmp_path / f"{name}.log")
    try:
        await start(made)
        yield made
    finally:
        for role in made.values():
            role.kill()


async def start(roles: Mapping[str, Role]) -> None:
    """Start both, and wait until they work."""
    for role in roles.values():
        role.launch()
    for name, role in roles.items():

        async def is_ready(role: Role = role) -> bool:
            return await asyncio.to_thread(role.is_ready)

        await eventually(is_ready, f"{name} is ready")


async def each_pod(low: Scenario, change: Callable[[KubeClient, Resource, str], Awaitable[None]]) -> None:
    """Let no pod of a job end, or let them end again."""
    east = await low.worker()
    for pod in await low.pods():
        with suppress(NotFoundError):
            await change(east, PODS, pod["metadata"]["name"])


async def expect_job(low: Scenario, **spec: Any) -> None:
    async def look() -> bool:
        return spec.items() <= (await low.worker_job())["spec"].items()

    await eventually(look, f"the job on the worker has {spec}")


@pytest.mark.parametrize("moment", ["before the agent hears of it", "while pods end"])
async def test_both_are_killed_in_the_middle(world: World, roles: Mapping[str, Role], moment: str) -> None:
    """Over 20 s: the Leases of those that were killed have to pass."""
    low = await submit_low(world, "Job")
    began = await low.running()
    await each_pod(low, finalizers.hold)
    if moment == "before the agent hears of it":
        roles["east"].kill()
    high = await submit_high(world)
    await expect_note(low, to={"main": 4}, done=False)
    if moment == "while pods end":
        await expect_job(low, parallelism=4)
    await expect_used(world, "8")
    for role in roles.values():
        role.kill()
    if moment == "while pods end":
        await each_pod(low, finalizers.let_go)
    await start(roles)
    if moment == "before the agent hears of it":
        await expect_job(low, parallelism=4)
        await expect_used(world, "8")
        await each_pod(low, finalizers.let_go)
    await high.expect_pods(running=4)
    await low.expect_pods(running=4)
    assert await low.running() < began, "no pod was made anew"
    await low.expect_unfinished(4, 8)

    await world.manager.delete(JOBS, "high", NAMESPACE)
    await low.expect_pods(running=8)
    await low.expect_unfinished(8)
    assert not any(slice.evicted for slice in await low.chain())
