"""Jobs are admitted with what their cluster adds to pods: defaults of LimitRanges, overheads of RuntimeClasses."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.resources import JOBS, LIMITRANGES, RUNTIMECLASSES, WORKERCLUSTERS
from slicebus.slices.api import api_names
from slicebus.slices.workload.workload import FlavorName
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
CPU = FlavorName("default"), "cpu"
KATA = "kata-test"


async def told(world: World) -> None:
    """Wait until every worker's agent has told of both."""

    def has_told(cluster: Manifest) -> bool:
        status = cluster.get("status") or {}
        return status.get("containerDefaults", {}).get(NAMESPACE) == {"cpu": "2"} and status.get(
            "podOverheads", {}
        ).get(KATA) == {"cpu": "500m"}

    async def look() -> bool:
        return all(map(has_told, (await world.manager.list(WORKERCLUSTERS)).items))

    await eventually(look, "every agent has told what its cluster adds")


@pytest.fixture
async def adding(world: World) -> AsyncIterator[World]:
    """Workers whose containers request 2 cores by default, and whose pods of a RuntimeClass take half a core more."""
    limits = {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}
    for worker in world.workers.values():
        await worker.create(LIMITRANGES, a("v1", "LimitRange", "defaults", namespace=NAMESPACE) | {"spec": limits})
        overhead = {"handler": "kata", "overhead": {"podFixed": {"cpu": "500m"}}}
        await worker.create(RUNTIMECLASSES, a("node.k8s.io/v1", "RuntimeClass", KATA) | overhead)
    yield world
    for worker in world.workers.values():
        await worker.delete(LIMITRANGES, "defaults", NAMESPACE)
        await worker.delete(RUNTIMECLASSES, KATA)


def a(api_version: str, kind: str, name: str, **metadata: str) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name} | metadata}


async def submitted(world: World, name: str, **spec: Any) -> Scenario:
    """A Job of one core and a container that requests nothing."""
    manifest = elastic("Job", name)
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"].append({"name": "helper", "image": pod["containers"][0]["image"]})
    pod |= spec
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def expect_admitted(scenario: Scenario, cpu: int) -> None:
    """It runs with so much, which it was admitted with: nothing had to be corrected."""
    await scenario.expect_pods(running=1)
    [slice] = [slice for slice in await scenario.chain() if slice.admitted]
    assert (slice.admitted_usage[CPU], slice.usage[CPU]) == (cpu, cpu)
    assert api_names.CHARGED_MORE_CONDITION not in slice.conditions


@pytest.mark.real
async def test_a_job_is_admitted_with_what_its_cluster_adds(adding: World) -> None:
    await set_quota(adding, 5)
    await told(adding)
    job = await submitted(adding, "defaulted")
    await expect_admitted(job, 3000)
    await job.scale(2)
    await job.expect_pods(running=1, gated=1)


@pytest.mark.real
async def test_a_job_is_admitted_with_the_overhead_of_its_runtime(adding: World) -> None:
    await set_quota(adding, 4)
    await told(adding)
    job = await submitted(adding, "kata", runtimeClassName=KATA)
    await expect_admitted(job, 3500)
