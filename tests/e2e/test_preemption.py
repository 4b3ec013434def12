"""A resize that has no room takes it from a job of lower priority. Kueue's conformance point 15."""

import pytest

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, WORKLOADPRIORITYCLASSES
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import kueue
from slicebus.slices.api.kueue import Condition, EvictionReason
from support import roles
from support.scenario import Scenario, elastic, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
HIGH = {
    "apiVersion": WORKLOADPRIORITYCLASSES.api_version,
    "kind": WORKLOADPRIORITYCLASSES.kind,
    "metadata": {"name": "high"},
    "value": 100,
}


@pytest.fixture
def world(bare_east: World) -> World:
    """Clusters without roles: a test starts and stops them."""
    return bare_east


async def allow_preemption(world: World) -> None:
    """Jobs of higher priority take the room of others."""
    await world.ensure(world.manager, WORKLOADPRIORITYCLASSES, HIGH)
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))


@pytest.mark.parametrize("kind", [pytest.param("Job", marks=pytest.mark.real), "RayCluster"])
async def test_a_resize_preempts_a_job_of_lower_priority_which_comes_back(
    world: World, urls: dict[str, str], kind: str
) -> None:
    await set_quota(world, 7 if kind == "RayCluster" else 6)
    await allow_preemption(world)
    async with roles.manager(world, urls), roles.agent(world, urls, EAST):
        low, high = Scenario(world, kind, "low"), Scenario(world, kind, "high")
        await low.submit()
        await low.expect_pods(running=1)
        await low.scale(4)
        await low.expect_pods(running=4)
        job = elastic(kind, "high")
        job["metadata"].setdefault("labels", {})[kueue.PRIORITY_CLASS_LABEL] = "high"
        await world.manager.create(high.resource, job)
        await high.expect_pods(running=1)
        [first] = await high.expect_unfinished(1)

        await high.scale(4)
        preempted = await low.expect_event(f"EvictedDueTo{EvictionReason.PREEMPTED}", on=world.manager)
        [new] = [slice for slice in await high.chain() if slice.key != first.key]
        assert preempted == (
            f"Preempted to accommodate a workload (UID: {new.uid}, JobUID: {new.job_uid}) due to prioritization in the "
            f"ClusterQueue; preemptor path: /{objects.CLUSTER_QUEUE}; preemptee path: /{objects.CLUSTER_QUEUE}"
        )
        await high.expect_pods(running=4)
        await high.expect_unfinished(4)

        # It comes back at its spec's size, in the room that is left, with the same slice.
        await low.expect_pods(running=1)
        await low.expect_unfinished(1)
        assert not any(slice.evicted for slice in await high.chain())

        async def is_back() -> bool:
            [slice] = [slice for slice in await low.chain() if not slice.finished]
            said = slice.conditions[Condition.PREEMPTED]
            return slice.admitted and (said["status"], said["reason"]) == ("False", "QuotaReserved")

        await eventually(is_back, "the preempted job is admitted again")
