"""A RayCluster whose replicas are several hosts: they are granted and start whole."""

from slicebus.cli.demo.world import World
from slicebus.slices.api import api_names
from slicebus.slices.workload.ungate import is_gated
from support.scenario import Scenario, elastic, set_quota
from support.waiting import eventually

HOSTS = 4
HEAD_CPU = 1


async def test_a_scale_up_in_part_grants_whole_replicas(world: World) -> None:
    await set_quota(world, HEAD_CPU + 10)
    scenario, manifest = Scenario(world, "RayCluster", "hosts"), elastic("RayCluster", "hosts")
    manifest["metadata"]["annotations"][api_names.PARTIAL_SCALE_UP_ANNOTATION] = "true"
    manifest["spec"]["workerGroupSpecs"][0]["numOfHosts"] = HOSTS
    await world.manager.create(scenario.resource, manifest)
    await scenario.expect_pods(running=4)
    first = {pod["metadata"]["uid"] for pod in await scenario.pods()}

    await scenario.scale(4)
    await scenario.expect_pods(running=8, gated=8)
    assert first <= {pod["metadata"]["uid"] for pod in await scenario.pods() if not is_gated(pod)}

    async def granted() -> bool:
        sizes = [
            (scenario.workers_of(s), s.granted.get("small-group")) for s in await scenario.chain() if not s.finished
        ]
        return sizes == [(16, 8), (16, None)]

    await eventually(granted, "a slice of 16 that was granted 8, and one that waits for the rest")
    await set_quota(world, HEAD_CPU + 15)
    await scenario.expect_pods(running=12, gated=4)
    await set_quota(world, HEAD_CPU + 16)
    await scenario.expect_pods(running=16)
    assert first <= {pod["metadata"]["uid"] for pod in await scenario.pods()}
