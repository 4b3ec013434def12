"""Granted pods that are there and do not run: the manager's user reads why, in Kubernetes' own words, until they run.

Who says it, and when: the manager's job (`slicebus.dev/waiting`), one Event on it, and `slicebus explain`, within 15 s
of the pod.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import EVENTS, JOBS, NODES, PODS
from slicebus.proto.messages import PodProblem
from slicebus.sandbox.controllers.pods import EXIT_CODE_ANNOTATION, NOWHERE
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING, Waiting
from support.installation import run_cli
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import PATIENCE_S, eventually

Manifest = dict[str, Any]
WITHIN_S = 15.0
"""The docs say so. Ten of them pass before anything is said; a busy machine takes some more."""
MISSING = {"nodeSelector": {"example.com/disk": "fast"}}


async def submitted(world: World, name: str, *, annotations: dict[str, str] | None = None, **pod: Any) -> Scenario:
    """A Job; `pod` is more of its pods' spec."""
    manifest = elastic("Job", name)
    template = manifest["spec"]["template"]
    template["spec"] |= pod
    template.setdefault("metadata", {})["annotations"] = annotations or {}
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


def with_image(image: str) -> dict[str, Any]:
    [container] = elastic("Job", "any")["spec"]["template"]["spec"]["containers"]
    return {"containers": [container | {"image": image}]}


async def shown(scenario: Scenario) -> Waiting | None:
    """On the manager's job."""
    return Waiting.from_manifest(await scenario.world.manager.get(scenario.resource, scenario.name, NAMESPACE))


async def told(scenario: Scenario, reason: str, *, within_s: float = PATIENCE_S) -> PodProblem:
    """Why the pods of its one pod set do not run, once the manager's job says so."""

    async def look() -> PodProblem | None:
        waiting = await shown(scenario)
        problem = waiting.pods.get("main") if waiting is not None else None
        return problem if problem is not None and problem.reason == reason else None

    problem = await eventually(look, f"the manager's job says {reason}", within_s=within_s)
    assert problem is not None
    return problem


async def expect_one_event(scenario: Scenario, message: str) -> None:
    """One Event about it on the manager's job, which comes a moment after the annotation."""

    async def look() -> list[str]:
        return await _events_of(scenario)

    assert await eventually(look, f"{scenario.name} has an Event") == [message]


async def _events_of(scenario: Scenario) -> list[str]:
    """Their messages, those that count several once for each."""
    events = (await scenario.world.manager.list(EVENTS, namespace=NAMESPACE)).items
    about = [
        event
        for event in events
        if event["reason"] == PODS_NOT_RUNNING and event["involvedObject"]["name"] == scenario.name
    ]
    return [event["message"] for event in about for _ in range(int(event.get("count") or 1))]


async def expect_over(scenario: Scenario) -> None:
    async def look() -> bool:
        worker_says = Waiting.from_manifest(await scenario.worker_job())
        return (await shown(scenario), worker_says) == (None, None)

    await eventually(look, "neither side says so any more")


@pytest.mark.real
async def test_a_pod_that_fits_no_node_says_so_until_there_is_one(world: World, kubeconfig: Path) -> None:
    """It takes over 20 s: what is only starting says nothing for ten."""
    await set_quota(world, 20)
    scenario = await submitted(world, "picky", **MISSING)
    worker = await scenario.worker()

    async def is_seen() -> bool:
        conditions = [one for pod in await scenario.pods() for one in pod.get("status", {}).get("conditions") or ()]
        return any((one["type"], one.get("reason")) == ("PodScheduled", "Unschedulable") for one in conditions)

    await eventually(is_seen, "the scheduler has tried")
    problem = await told(scenario, "Unschedulable", within_s=2 * WITHIN_S)
    assert "nodes are available" in problem.message
    assert "didn't match Pod's node affinity/selector" in problem.message
    assert not any(pod["metadata"]["name"] in problem.message for pod in await scenario.pods())

    waiting = await shown(scenario)
    assert waiting is not None
    assert (waiting.reason, waiting.in_brief) == (PODS_NOT_RUNNING, f"Unschedulable: {problem.message}")
    explained = await asyncio.to_thread(run_cli, "explain", "team-a/picky", env={"KUBECONFIG": str(kubeconfig)})
    assert "pods of main do not run: Unschedulable: " in " ".join(explained.stdout.split())

    await scenario.scale(3)
    await scenario.expect_unfinished(3)
    assert await told(scenario, "Unschedulable") == problem, "two more of the same are no news"
    await expect_one_event(scenario, f"pods of main do not run: Unschedulable: {problem.message}")

    name = (await worker.list(NODES)).items[0]["metadata"]["name"]
    labels = {"metadata": {"labels": {"example.com/disk": "fast"}}}
    await worker.patch(NODES, name, None, MergePatch(labels))
    try:
        await scenario.expect_pods(running=3)
        await expect_over(scenario)
    finally:
        await worker.patch(NODES, name, None, MergePatch({"metadata": {"labels": {"example.com/disk": None}}}))


async def test_an_image_that_cannot_be_pulled_is_named_until_it_is_another(world: World) -> None:
    """It takes over 20 s: what is only starting says nothing for ten."""
    await set_quota(world, 20)
    image = f"{NOWHERE}/trainer:9"
    scenario = await submitted(world, "typo", **with_image(image))
    problem = await told(scenario, "ImagePullBackOff")
    assert problem.message.startswith(f"image {image} of container ")
    assert problem.message.endswith(f"cannot be pulled: {image}: no such host")
    await expect_one_event(scenario, f"pods of main do not run: ImagePullBackOff: {problem.message}")
    [pod] = await scenario.pods()
    mended = {"spec": {"containers": [pod["spec"]["containers"][0] | {"image": objects.IMAGE}]}}
    await (await scenario.worker()).patch(PODS, pod["metadata"]["name"], NAMESPACE, MergePatch(mended))
    await scenario.expect_pods(running=1)
    await expect_over(scenario)


async def test_a_container_that_ends_again_and_again_says_how(world: World) -> None:
    """It takes over 10 s: what is only starting says nothing for ten."""
    await set_quota(world, 20)
    scenario = await submitted(world, "crashes", annotations={EXIT_CODE_ANNOTATION: "3"})
    problem = await told(scenario, "CrashLoopBackOff")
    assert problem.message.endswith(" ends again and again: last with exit code 3, Error")


async def test_a_gate_of_somebody_else_is_named(world: World) -> None:
    """It takes over 10 s: what is only starting says nothing for ten."""
    await set_quota(world, 20)
    scenario = await submitted(world, "held", schedulingGates=[{"name": "example.com/approval"}])
    problem = await told(scenario, "SchedulingGated")
    assert problem.message == "held by a gate that is not of slicebus: example.com/approval"
