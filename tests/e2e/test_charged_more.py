"""Pods request more where they run than their templates say, or run without a grant: their quota is charged for it."""

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import NAMESPACES, PODS, WORKERCLUSTERS
from slicebus.sandbox.apiserver.pod_admission import NO_GATES_ANNOTATION, SIDECAR_ANNOTATION
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import FlavorName
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

CPU = FlavorName("default"), "cpu"


async def annotate(world: World, annotation: str, value: str | None) -> None:
    """Change the webhooks of every worker's namespace."""
    body = MergePatch({"metadata": {"annotations": {annotation: value}}})
    for worker in world.workers.values():
        await worker.patch(NAMESPACES, NAMESPACE, "", body)


async def expect_charge(scenario: Scenario, cpu: int, *, reason: str | None) -> None:
    """Wait until the job's newest slice with quota is charged so much, and says why."""

    async def look() -> bool:
        held = [slice for slice in await scenario.chain() if slice.admitted]
        if not held:
            return False
        condition = held[-1].conditions.get(api_names.CHARGED_MORE_CONDITION, {})
        shown = condition["reason"] if condition.get("status") == "True" else None
        return (held[-1].usage.get(CPU), shown) == (cpu, reason)

    await eventually(look, f"{scenario.name} is charged {cpu}, {reason}")


async def test_an_injected_sidecar_is_charged_for_when_it_is_seen_and_before_the_next_slice(world: World) -> None:
    await set_quota(world, 5)
    await annotate(world, SIDECAR_ANNOTATION, "500m")
    first, second = Scenario(world, "Job", "first"), Scenario(world, "Job", "second")
    await first.submit()
    await first.expect_pods(running=1)
    await expect_charge(first, 1500, reason="PodsRequestMore")
    message = await first.expect_event("ChargedMore", on=world.manager)
    assert "1500m cpu" in message

    await first.scale(3)
    await first.expect_pods(running=3)
    await expect_charge(first, 4500, reason=None)

    await second.submit()
    await second.expect_unfinished(1)
    assert all(slice.admission is None for slice in await second.chain())
    await first.scale(2)
    await second.expect_pods(running=1)


async def test_pods_without_their_gate_are_charged_for(world: World) -> None:
    await set_quota(world, 2)
    job = Scenario(world, "Job", "loose")
    await job.submit()
    await job.expect_pods(running=1)
    await annotate(world, NO_GATES_ANNOTATION, "true")
    await job.scale(5)
    await job.expect_pods(running=5)
    await expect_charge(job, 5000, reason="PodsBeyondGrant")

    await annotate(world, NO_GATES_ANNOTATION, None)
    await job.scale(1)
    await expect_charge(job, 1000, reason=None)


async def test_what_is_injected_takes_room(world: World) -> None:
    await set_quota(world, 50)
    await annotate(world, SIDECAR_ANNOTATION, "10")
    job = Scenario(world, "Job", "roomy")
    await job.submit()
    await job.expect_pods(running=1)
    await job.scale(4)
    await job.expect_pods(running=4)
    cluster = await job.cluster()

    async def look() -> bool:
        status = (await world.manager.get(WORKERCLUSTERS, cluster))["status"]
        return bool(status["room"].startswith("default 20/64 cpu"))

    await eventually(look, "of 64 cores four pods of eleven leave 20")


async def test_a_resize_in_place_is_charged_for(world: World) -> None:
    await set_quota(world, 5)
    job = Scenario(world, "Job", "resized")
    await job.submit()
    await job.expect_pods(running=1)
    [pod], worker = await job.pods(), await job.worker()
    status = {"name": pod["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": "3"}}}
    body = MergePatch({"status": {"containerStatuses": [status]}})
    await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")
    await expect_charge(job, 3000, reason="PodsRequestMore")
