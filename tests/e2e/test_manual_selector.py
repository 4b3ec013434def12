"""Jobs with `manualSelector`: they run, and their pods are found whatever the selector says."""

from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.resources import JOBS
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota

SELECTORS: dict[str, dict[str, str]] = {
    "labels of its user": {"app": "demo"},
    "labels of another Job": {"controller-uid": "of-another", "batch.kubernetes.io/job-name": "another"},
}


async def submitted(world: World, name: str, labels: dict[str, str]) -> Scenario:
    manifest: dict[str, Any] = objects.job(name)
    manifest["spec"] |= {"manualSelector": True, "selector": {"matchLabels": labels}}
    template = manifest["spec"]["template"]
    template["metadata"] = (template.get("metadata") or {}) | {"labels": {"team": "a"} | labels}
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


@pytest.mark.real
@pytest.mark.parametrize("labels", SELECTORS.values(), ids=SELECTORS.keys())
async def test_two_jobs_with_one_selector_run_and_resize(world: World, labels: dict[str, str]) -> None:
    """Each has its own pods, whose labels are those of its user."""
    await set_quota(world, 10)
    first, second = [await submitted(world, name, labels) for name in ("mine", "yours")]
    await first.expect_pods(running=1)
    await second.expect_pods(running=1)
    await first.scale(3)
    await first.expect_pods(running=3)
    await second.expect_pods(running=1)
    await expect_used(world, "4")
    assert {pod["metadata"]["labels"]["team"] for pod in await first.pods()} == {"a"}
    job = await world.manager.get(JOBS, "mine", NAMESPACE)
    assert job["spec"]["selector"] == {"matchLabels": labels}
    await world.manager.delete(JOBS, "mine", NAMESPACE)
    await world.manager.delete(JOBS, "yours", NAMESPACE)
    await first.expect_nothing_left()
