"""A namespace's ResourceQuota refuses pods that have quota: both sides say so, in its own words, until it is mended."""

from collections.abc import AsyncIterator

import pytest

from slicebus.agent.act import pod_refusals
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.sandbox.controllers import ray, ray_expectations
from slicebus.slices.api.resource import Resource
from slicebus.slices.workload.waiting import PODS_REFUSED, Waiting
from support.scenario import FIXED_PODS, NAMESPACE, Scenario, set_quota
from support.waiting import eventually

pytestmark = pytest.mark.real(only=True)
"""Only a real API server has the admission of ResourceQuotas."""

RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For why pods are not made. KubeRay expects a pod whose creation was refused for half a minute."""
    for name in ("_ROUND_S", "_LACKING_S", "_AGAIN_S"):
        monkeypatch.setattr(pod_refusals, name, 0.5)
    for module in (ray, ray_expectations):
        monkeypatch.setattr(module, "CREATE_S", 5.0)


@pytest.fixture
async def limited(world: World) -> AsyncIterator[World]:
    """Two pods may be in the namespace of each worker."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": NAMESPACE},
        "spec": {"hard": {"pods": "2"}},
    }
    for worker in world.workers.values():
        await worker.create(RESOURCE_QUOTAS, manifest)
    await limit(world, 2, used=0)
    yield world
    for worker in world.workers.values():
        await worker.delete(RESOURCE_QUOTAS, "small", NAMESPACE)


async def limit(world: World, pods: int, *, used: int) -> None:
    """So many pods may be in the namespace of each worker. The quota controller, which counts them, does not run."""
    for worker in world.workers.values():
        hard = {"hard": {"pods": str(pods)}}
        body = MergePatch({"status": hard | {"used": {"pods": str(used)}}})
        await worker.patch(RESOURCE_QUOTAS, "small", NAMESPACE, MergePatch({"spec": hard}))
        await worker.patch(RESOURCE_QUOTAS, "small", NAMESPACE, body, subresource="status")


async def shown(scenario: Scenario) -> tuple[Waiting | None, Waiting | None]:
    """On the worker's job and on the manager's."""
    job = await scenario.world.manager.get(scenario.resource, scenario.name, NAMESPACE)
    return Waiting.from_manifest(await scenario.worker_job()), Waiting.from_manifest(job)


async def test_a_submitter_that_is_refused_is_told_too(limited: World) -> None:
    """Its pod comes last, by a Job that KubeRay makes."""
    await set_quota(limited, 20)
    scenario = Scenario(limited, "RayJob", "crowded")
    await scenario.submit()

    async def told() -> bool:
        there, here = await shown(scenario)
        return there is not None and here is not None and there.says_same(here) and there.reason == PODS_REFUSED

    await eventually(told, "both sides say why")
    waiting, _ = await shown(scenario)
    assert waiting is not None
    assert waiting.message.startswith("1 pod cannot be made and holds its quota: exceeded quota: small,")

    await limit(limited, 20, used=2)
    await scenario.expect_pods(running=1)


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
async def test_pods_that_a_resource_quota_refuses_are_told_on_both_sides(limited: World, kind: str) -> None:
    await set_quota(limited, 20)
    scenario = Scenario(limited, kind, "crowded")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(4, settles=False)

    async def told() -> bool:
        there, here = await shown(scenario)
        return there is not None and here is not None and there.says_same(here) and there.reason == PODS_REFUSED

    await eventually(told, "both sides say why")
    _, waiting = await shown(scenario)
    assert waiting is not None
    number = 2 + FIXED_PODS.get(kind, 0)
    assert waiting.message.startswith(f"{number} pods cannot be made and hold their quota: exceeded quota: small,")
    assert "limited: pods=2" in waiting.message
    assert waiting.wanted == waiting.granted
    await scenario.expect_event(PODS_REFUSED, on=limited.manager)

    await limit(limited, 20, used=2)
    await scenario.expect_pods(running=4)

    async def over() -> bool:
        return await shown(scenario) == (None, None)

    await eventually(over, "neither side says so any more")
