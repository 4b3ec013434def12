"""Ray's definitions are missing, come, and are removed: that stops Ray's jobs, and nothing is taken as deleted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.ambient.backoff import Backoff
from slicebus.cli.demo.world import World, fleet
from slicebus.kube import informers, reflector
from slicebus.kube.client import KubeClient
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, RAYCLUSTERS, RAYJOBS, RAYSERVICES, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.decide.messages import message_handlers
from slicebus.sandbox.controllers import crds as ray_crds
from slicebus.slices.api.api_names import HELD_CONDITION
from support.definitions import until_usable
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
RAY = (RAYCLUSTERS, RAYJOBS, RAYSERVICES)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """For definitions. What was refused is not tried again by the clock: it has to be their coming."""
    for module in (informers, reflector):
        monkeypatch.setattr(module, "_BACKOFF", Backoff(first_s=0.2, most_s=1.0))
    monkeypatch.setattr(message_handlers, "_RETRY_REFUSED_S", 3600.0)


@pytest.fixture
async def bare(bare: World) -> AsyncIterator[World]:
    """Clusters without roles, with Ray's definitions again afterwards."""
    yield bare
    for client in (bare.manager, *bare.workers.values()):
        await install(client)


async def remove(*clients: KubeClient) -> None:
    """Take Ray's definitions away, and with them every object of theirs."""
    for client in clients:
        for resource in RAY:
            await client.delete(CRDS, resource.definition)
    for client in clients:

        async def gone(client: KubeClient = client) -> bool:
            return not any([await client.serves(resource) for resource in RAY])

        await eventually(gone, "Ray's definitions are gone")


async def install(*clients: KubeClient) -> None:
    """Bring Ray's definitions where they are not."""
    for client in clients:
        if await client.serves(RAYJOBS):
            continue
        for definition in custom_resource_definitions(ray_crds.__name__):
            await client.create(CRDS, definition)
        await until_usable(client, *RAY)


async def running(world: World, kind: str, name: str, workers: int) -> Scenario:
    """A job that has grown to so many workers."""
    scenario = Scenario(world, kind, name)
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(workers)
    await scenario.expect_pods(running=workers)
    return scenario


async def dispatched(scenario: Scenario) -> Manifest | None:
    """Why the job's slice is not with its worker."""
    page = await scenario.world.manager.list(WORKLOADS, namespace=NAMESPACE)
    found = [w for w in page.items if w["metadata"]["ownerReferences"][0]["name"] == scenario.name]
    conditions = [entry for w in found for entry in w.get("status", {}).get("conditions", ())]
    return next((c for c in conditions if c["type"] == "slicebus.dev/Dispatched" and c["status"] == "False"), None)


async def refused(scenario: Scenario) -> bool:
    found = await dispatched(scenario)
    return found is not None and found["reason"] == "KindNotServed"


async def held_for(world: World) -> str:
    """What a Workload says whose job went with its definition; empty before."""
    workloads = (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items
    conditions = [entry for workload in workloads for entry in workload.get("status", {}).get("conditions", ())]
    found = [entry for entry in conditions if (entry["type"], entry["reason"]) == (HELD_CONDITION, "KindNotServed")]
    return found[0]["message"] if found else ""


@pytest.mark.real
async def test_the_manager_takes_a_kind_when_its_definition_comes_and_deletes_nothing_when_it_goes(
    bare: World, urls: dict[str, str]
) -> None:
    await remove(bare.manager)
    async with fleet(bare, urls):
        await set_quota(bare, 20)
        batch = await running(bare, "Job", "batch", 3)
        await install(bare.manager)
        ray = await running(bare, "RayCluster", "ray", 2)
        before = await ray.worker_job()

        await remove(bare.manager)
        await batch.scale(5)
        await batch.expect_pods(running=5)
        assert (await ray.worker_job())["metadata"]["uid"] == before["metadata"]["uid"]
        message = await eventually(lambda: held_for(bare), "its Workload says why it runs on")
        assert "its kind is not served: the definition rayclusters.ray.io is " in message  # being removed, or missing

        await install(bare.manager)
        name = await ray.cluster()

        async def held() -> bool:
            status = (await bare.manager.get(WORKERCLUSTERS, name)).get("status", {})
            return any(c["type"] == "DeletesHeld" and c["status"] == "True" for c in status.get("conditions", ()))

        await eventually(held, "somebody is asked what went with the definition")
        after = await ray.worker_job()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert "deletionTimestamp" not in after["metadata"]
        await ray.expect_pods(running=2)
        await running(bare, "RayCluster", "another", 2)


@pytest.mark.real
async def test_a_worker_without_the_definition_refuses_and_one_that_loses_it_gets_its_jobs_anew(
    bare: World, urls: dict[str, str]
) -> None:
    """Over 20 s on real servers, which describe their APIs anew whenever a definition comes or goes."""
    workers = tuple(bare.workers.values())
    await remove(*workers)
    async with fleet(bare, urls):
        await set_quota(bare, 20)
        ray = Scenario(bare, "RayCluster", "ray")
        await ray.submit()
        await eventually(lambda: refused(ray), "the worker refuses, and says why")
        found = await dispatched(ray)
        assert found is not None
        assert "it does not serve RayCluster: the definition rayclusters.ray.io is missing" in found["message"]
        await ray.expect_event("KindNotServed", on=bare.manager)
        batch = await running(bare, "Job", "batch", 2)

        await install(*workers)
        await eventually(ray.worker_job, "the worker has the job at once")
        await ray.expect_pods(running=1)
        before = await bare.manager.get(RAYCLUSTERS, "ray", NAMESPACE)

        await remove(*workers)
        await eventually(lambda: refused(ray), "the worker has lost it, and says why")
        await batch.scale(4)
        await batch.expect_pods(running=4)
        assert (await bare.manager.get(RAYCLUSTERS, "ray", NAMESPACE))["metadata"]["uid"] == before["metadata"]["uid"]

        await install(*workers)
        await ray.expect_pods(running=1)
        assert (await bare.manager.get(RAYCLUSTERS, "ray", NAMESPACE))["metadata"]["uid"] == before["metadata"]["uid"]
