"""A job that waits says why on every object where a user may look, for as long as it waits."""

from datetime import timedelta
from typing import Any

import pytest

from slicebus.agent.decide.job import waiting, withdrawals
from slicebus.cli.demo.world import World, fleet
from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import EVENTS, RAYCLUSTERS, RAYJOBS, Resource
from slicebus.sandbox.controllers.ray_autoscaler import RayAutoscaler
from slicebus.slices.workload.waiting import SURPLUS, Waiting, shown_on
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
Object = tuple[KubeClient, Resource, str]
QUOTA_CPU = 4
"""For the head with its autoscaler, the submitter and two workers."""


async def shows_of(scenario: Scenario) -> list[Object]:
    """The manager's RayJob, the worker's, and its RayCluster."""
    worker = await scenario.worker()
    child = (await scenario.worker_job())["status"]["rayClusterName"]
    name = scenario.name
    return [(scenario.world.manager, RAYJOBS, name), (worker, RAYJOBS, name), (worker, RAYCLUSTERS, child)]


async def manifests(objects: list[Object]) -> list[Manifest]:
    return [await client.get(resource, name, NAMESPACE) for client, resource, name in objects]


async def shown(objects: list[Object]) -> list[Waiting]:
    """What they show once all of them do."""

    async def look() -> list[Waiting]:
        found = [Waiting.from_manifest(manifest) for manifest in await manifests(objects)]
        return [each for each in found if each] if all(found) else []

    return await eventually(look, "every object shows why it waits")


async def expect_nothing_shown(objects: list[Object]) -> None:
    async def look() -> bool:
        return not any(shown_on(manifest) for manifest in await manifests(objects))

    await eventually(look, "no object shows anything any more")


async def told(scenario: Scenario, reason: str, on: list[Object]) -> list[str]:
    """As `events_of`, once there is one on each of these objects: they are written after what the objects show."""

    async def look() -> list[str]:
        found = await events_of(scenario, reason)
        return found if len(set(found)) >= len(on) else []

    return await eventually(look, f"an Event {reason} on each object")


async def events_of(scenario: Scenario, reason: str) -> list[str]:
    """The Events with a reason on the scenario's objects, on both sides, those that count several once for each."""
    found = []
    for client in (scenario.world.manager, await scenario.worker()):
        for event in (await client.list(EVENTS, namespace=NAMESPACE)).items:
            about = event["involvedObject"]
            if event["reason"] == reason and about["name"].startswith(scenario.name) and about["kind"] != "Workload":
                found += [f"{client.host} {about['kind']}: {event['message']}"] * int(event.get("count") or 1)
    return sorted(found)


async def test_a_lack_of_quota_is_shown_until_it_is_over(bare: World, urls: dict[str, str]) -> None:
    await set_quota(bare, QUOTA_CPU)
    scenario = Scenario(bare, "RayJob", "tune")
    async with fleet(bare, urls):
        await scenario.submit()
        await scenario.expect_pods(running=1)
        first, objects = await scenario.running(), await shows_of(scenario)
        assert not any(map(shown_on, await manifests(objects)))
        await scenario.scale(6)
        waits = await shown(objects)
        generations = [manifest["metadata"]["generation"] for manifest in await manifests(objects)]
        assert [each.wanted["small-group"] for each in waits] == [6] * 3
        assert [each.granted["small-group"] for each in waits] == [1] * 3
        assert {(each.reason, each.since) for each in waits} == {("Pending", waits[0].since)}
        assert all("insufficient" in each.message or "maximum capacity" in each.message for each in waits)
        assert all("cpu in flavor default" in each.would_admit for each in waits)
        events = await told(scenario, "Pending", objects)
        assert len(events) == len(set(events))

    # Both sides start again, and do something else.
    async with fleet(bare, urls):
        other = Scenario(bare, "Job", "other")
        await other.submit()
        await other.expect_pods(running=1)
        await other.scale(2)
        await other.expect_pods(running=1, gated=1)
        assert await shown(objects) == waits
        assert await events_of(scenario, "Pending") == events
        assert [manifest["metadata"]["generation"] for manifest in await manifests(objects)] == generations

        await set_quota(bare, QUOTA_CPU + 6)
        await scenario.expect_pods(running=6)
        await expect_nothing_shown(objects)
        assert first <= await scenario.running()


async def test_a_wish_that_is_taken_back_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawals, "STANDS_S", 1.0)
    await set_quota(world, QUOTA_CPU)
    scenario = Scenario(world, "RayJob", "flaps")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    objects = await shows_of(scenario)
    for _ in range(2):
        await scenario.scale(6)
        await shown(objects)
        await scenario.scale(1)
        await expect_nothing_shown(objects)


async def test_a_smaller_size_that_nobody_carries_out_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the autoscaler on KubeRay deletes only the pods that are named."""
    monkeypatch.setattr(waiting, "_SETTLES", timedelta(seconds=1))
    await set_quota(world, QUOTA_CPU + 1)
    scenario = Scenario(world, "RayJob", "keeps")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    objects = await shows_of(scenario)
    client, _, child = objects[-1]
    path = "/spec/workerGroupSpecs/0/replicas"
    await client.patch(RAYCLUSTERS, child, NAMESPACE, JsonPatch([{"op": "replace", "path": path, "value": 1}]))
    waits = await shown(objects)
    text = "2 pods run that are no longer wanted; with the autoscaler on only it deletes them"
    assert {(each.reason, each.message) for each in waits} == {(SURPLUS, text)}
    assert {each.wanted["small-group"] for each in waits} == {1}
    events = await told(scenario, SURPLUS, objects)
    assert len(events) == len(set(events)) == len(objects)

    await RayAutoscaler(client, child, NAMESPACE).settle()
    await scenario.expect_pods(running=1)
    await expect_nothing_shown(objects)
    await scenario.expect_unfinished(1)
