"""Jobs whose pods claim devices are charged by the resource of their DeviceClasses, and wait for what cannot be
counted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.conftest import clusters_of
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, fleet
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, RESOURCECLAIMTEMPLATES, WORKERCLUSTERS
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.slices.workload.device_claims import DeviceClassMapping
from support.scenario import NAMESPACE, Scenario, elastic
from support.waiting import eventually

Manifest = dict[str, Any]
GPU, CLASS = "example.com/gpu", "gpu.example.com"
MAPPINGS = (DeviceClassMapping(GPU, (CLASS,)),)


@pytest.fixture
async def counting(parts: str, urls: dict[str, str], request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A fleet whose manager counts devices, with a quota of 9 cores and 4 devices."""
    decisions = ManagerDecisionSettings(device_class_mappings=MAPPINGS)
    async with clusters_of(parts, request) as world, fleet(world, urls, decisions=decisions):
        for resource, manifest in objects.quota(9):
            if resource == CLUSTERQUEUES:
                [group] = manifest["spec"]["resourceGroups"]
                group["coveredResources"].append(GPU)
                group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": "4"})
            await world.ensure(world.manager, resource, manifest)
        for name in world.workers:
            # Nodes do not say how many devices a class has.
            body = MergePatch({"spec": {"flavorCapacity": {objects.FLAVOR: "Unlimited"}}})
            await world.manager.patch(WORKERCLUSTERS, name, None, body)
        yield world


def template(name: str, count: int, device_class: str = CLASS) -> Manifest:
    request = {"name": "gpus", "exactly": {"deviceClassName": device_class, "count": count}}
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"spec": {"devices": {"requests": [request]}}}
    kind = RESOURCECLAIMTEMPLATES.kind
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


async def submitted(world: World, name: str, claim: str) -> Scenario:
    """A Job whose pods have one claim each."""
    manifest = elastic("Job", name)
    pod = manifest["spec"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": claim}]
    pod["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    await world.manager.create(JOBS, manifest)
    return Scenario(world, "Job", name)


async def test_a_resize_is_charged_by_devices_and_waits_for_them(counting: World) -> None:
    await counting.manager.create(RESOURCECLAIMTEMPLATES, template("two", 2))
    job = await submitted(counting, "train", "two")
    await job.expect_pods(running=1)
    assert [slice.usage[objects.FLAVOR, GPU] for slice in await job.chain() if slice.admitted] == [2]
    await job.scale(2)
    await job.expect_pods(running=2)
    await job.scale(3)
    await job.expect_pods(running=2, gated=1)
    # What was counted stays: claims are in use, and their template is not.
    await counting.manager.delete(RESOURCECLAIMTEMPLATES, "two", NAMESPACE)
    await job.scale(1)
    await job.expect_pods(running=1)
    await job.scale(2)
    await job.expect_pods(running=2)
    assert [slice.usage[objects.FLAVOR, GPU] for slice in await job.chain() if slice.admitted] == [4]


@pytest.mark.real
async def test_a_job_waits_for_the_template_of_its_claim(counting: World) -> None:
    """No driver has devices on real servers, so its pods wait there."""
    job = await submitted(counting, "early", "one")
    text = await job.expect_event("DeviceClaimsNotCharged", on=counting.manager)
    assert "there is no ResourceClaimTemplate one for claim gpus" in text
    assert await job.chain() == []
    await counting.manager.create(RESOURCECLAIMTEMPLATES, template("one", 1))

    async def is_admitted() -> bool:
        return [slice.usage.get((objects.FLAVOR, GPU)) for slice in await job.chain()] == [1]

    await eventually(is_admitted, "it is charged for one device")
    await counting.manager.delete(JOBS, "early", NAMESPACE)
    await counting.manager.delete(RESOURCECLAIMTEMPLATES, "one", NAMESPACE)
    await job.expect_nothing_left()


async def test_a_class_without_a_resource_is_refused_by_name(counting: World) -> None:
    await counting.manager.create(RESOURCECLAIMTEMPLATES, template("fpga", 1, "fpga.example.com"))
    job = await submitted(counting, "other", "fpga")
    text = await job.expect_event("DeviceClaimsNotCharged", on=counting.manager)
    assert "DeviceClass fpga.example.com of ResourceClaimTemplate fpga is not mapped" in text
    assert await job.chain() == []
