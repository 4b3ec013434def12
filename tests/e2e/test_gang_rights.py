"""What lets an agent make the objects of gangs, on real API servers: the chart's rights and policies, and webhooks."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.test_gang_backends import expect_no_place, submitted, usable, waiting_of
from slicebus.agent.act import schedulers
from slicebus.agent.decide.job import gangs
from slicebus.ambient.backoff import Backoff
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube import informers
from slicebus.kube.client import KubeClient
from slicebus.proto.messages import ClusterName
from support import installation, roles
from support.controlplane import ControlPlane
from support.scenario import Scenario, set_quota
from support.schedulers import BACKENDS, GROVE, KAI, VOLCANO, Backend, install, made_for, open_queue, profiles, remove
from support.waiting import eventually
from support.webhooks import WEBHOOKS, webhook

pytestmark = [pytest.mark.helm, pytest.mark.real(only=True)]
"""An embedded API server has no RBAC."""

Manifest = dict[str, Any]
EAST = ClusterName("east")
CHART = "slicebus-agent"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For its rights, and for what it may not read."""
    monkeypatch.setattr(schedulers, "_ROUND_S", 0.5)
    monkeypatch.setattr(informers, "_BACKOFF", Backoff(first_s=0.2, most_s=1.0))


@pytest.fixture
async def world(bare: World) -> AsyncIterator[World]:
    """Clusters without roles; east has every definition, and open queues."""
    east = bare.workers[EAST]
    await install(east, *BACKENDS)
    for backend in BACKENDS:
        await open_queue(east, backend)
    await set_quota(bare, 20)
    yield bare
    await remove(east, *BACKENDS)


@pytest.mark.parametrize("namespaces", [[], [objects.NAMESPACE]], ids=["everywhere", "in namespaces"])
async def test_jobs_run_with_the_rights_of_the_chart_and_outlast_them(
    world: World,
    urls: dict[str, str],
    helm: Path,
    control_plane: ControlPlane,
    tmp_path: Path,
    namespaces: list[str],
) -> None:
    east, address = control_plane.clusters[EAST], tmp_path / "east.env"
    address.write_text(f"url={urls[EAST]}\n")

    def values(*backends: Backend) -> dict[str, Any]:
        enabled = {"schedulers": json.loads(profiles(*backends)), "namespaces": namespaces}
        return {"cluster": EAST, "managerUser": "manager"} | enabled

    async def apply(*backends: Backend) -> str:
        given = values(*backends)
        variables = await asyncio.to_thread(installation.install, helm, CHART, east, given, address=address)
        return variables["SLICEBUS_SCHEDULERS"]

    settings = {"schedulers": await apply(*BACKENDS), "namespaces": ",".join(namespaces)}
    try:
        kubeconfig = installation.kubeconfig_of(east, CHART, tmp_path / "account")
        async with (
            await KubeClient.from_kubeconfig(kubeconfig) as account,
            roles.manager(world, urls),
            roles.agent(world, urls, EAST, client=account, **settings),
        ):
            jobs = {
                backend: await submitted(world, backend, f"by-{backend.name}", parallelism=2) for backend in BACKENDS
            }
            for backend, scenario in jobs.items():
                await scenario.expect_pods(running=2)
                assert len(await made_for(world.workers[EAST], backend, scenario.name)) == 1

            await apply(VOLCANO, GROVE)
            await usable(world, EAST, "volcano", "grove")
            waits = await submitted(world, KAI, "waits")
            await expect_no_place(waits, "has no scheduler backend kai")
            before = await jobs[KAI].running()
            other = await submitted(world, GROVE, "other")
            await other.expect_pods(running=1)

            await apply(*BACKENDS)
            await waits.expect_pods(running=1)
            assert await jobs[KAI].running() == before
    finally:
        await asyncio.to_thread(installation.uninstall, helm, CHART, east, values(*BACKENDS))


async def test_a_webhook_that_is_down_holds_up_its_own_jobs(
    world: World, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangs, "_TRIED_AGAIN_S", 1.0)
    east = world.workers[EAST]
    async with roles.manager(world, urls), roles.agent(world, urls, EAST, schedulers=profiles(KAI)):
        runs = await submitted(world, KAI, "runs", parallelism=3)
        await runs.expect_pods(running=3)
        # As that of a scheduler which does not run: it has to agree to every PodGroup of KAI's.
        await east.create(WEBHOOKS, webhook("down", KAI.makes.group, "podgroups", url="https://127.0.0.1:1/"))
        try:
            waits = await submitted(world, KAI, "waits")

            async def is_refused() -> bool:
                found = await waiting_of(waits)
                return all(
                    each is not None
                    and each.reason == "SchedulingObjectRefused"
                    and 'failed calling webhook "podgroups.example.dev"' in each.message
                    for each in found
                )

            await eventually(is_refused, "both sides say which webhook is down")
            other = Scenario(world, "Job", "other")
            await other.submit()
            await other.expect_pods(running=1)
            await runs.scale(2)
            await runs.expect_pods(running=2)
            await runs.expect_unfinished(2)
            [pod_group] = await made_for(east, KAI, "runs")
            assert pod_group["spec"]["minMember"] == 3
        finally:
            await east.delete(WEBHOOKS, "down")
        await waits.expect_pods(running=1)

        async def is_lowered() -> bool:
            return [each["spec"]["minMember"] for each in await made_for(east, KAI, "runs")] == [2]

        await eventually(is_lowered, "the minimum follows")
