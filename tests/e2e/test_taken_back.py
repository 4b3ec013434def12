"""Ray's autoscaler v2 gives gated pods up after some minutes, and asks again at once: the job keeps its place."""

import asyncio

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, EVENTS, JOBS, PODS, WORKLOADPRIORITYCLASSES
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import kueue
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.ungate import is_gated
from support import roles
from support.ray_provider import RayProvider
from support.scenario import NAMESPACE, Scenario, elastic, set_quota, straggler

EAST = ClusterName("east")
GROUP = "small-group"


async def provider_of(scenario: Scenario) -> RayProvider:
    """Ray's own provider, on the cluster where the job runs."""
    return RayProvider(await scenario.worker(), scenario.name, NAMESPACE)


async def give_up_and_ask_again(scenario: Scenario, provider: RayProvider, workers: int) -> None:
    """The gated pods are named and deleted, and made again."""
    gated = [pod["metadata"]["name"] for pod in await scenario.pods() if is_gated(pod)]
    await provider.terminate(gated)
    await scenario.expect_pods(running=1)
    await provider.launch(GROUP, workers - 1)
    await scenario.expect_pods(running=1, gated=workers - 1)


async def test_it_keeps_its_place_in_the_queue(bare_east: World, urls: dict[str, str]) -> None:
    await set_quota(bare_east, 4)
    async with roles.manager(bare_east, urls), roles.agent(bare_east, urls, EAST):
        tune, later = Scenario(bare_east, "RayCluster", "tune"), Scenario(bare_east, "Job", "later")
        await tune.submit()
        await tune.expect_pods(running=1)
        first = await tune.running()
        provider = await provider_of(tune)
        await provider.launch(GROUP, 4)
        _, waits = await tune.expect_unfinished(1, 5)
        await asyncio.sleep(1)  # An age is in whole seconds.
        await bare_east.manager.create(JOBS, objects.job("later", parallelism=3))
        await later.expect_unfinished(3)
        await tune.expect_pods(running=1, gated=4)
        for _ in range(3):
            await give_up_and_ask_again(tune, provider, 5)
        assert [slice.key for slice in await tune.expect_unfinished(1, 5)][1:] == [waits.key]

        await set_quota(bare_east, 6)
        await tune.expect_pods(running=5)
        assert first <= await tune.running()
        assert not [slice for slice in await later.chain() if slice.admission]


async def test_its_victims_are_evicted_once(bare_east: World, urls: dict[str, str]) -> None:
    high = {"apiVersion": WORKLOADPRIORITYCLASSES.api_version, "kind": WORKLOADPRIORITYCLASSES.kind}
    await set_quota(bare_east, 5)
    manager, worker = bare_east.manager, bare_east.workers[EAST]
    await bare_east.ensure(manager, WORKLOADPRIORITYCLASSES, high | {"metadata": {"name": "high"}, "value": 100})
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    await manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))
    async with roles.manager(bare_east, urls), roles.agent(bare_east, urls, EAST):
        victim, tune = Scenario(bare_east, "Job", "victim"), Scenario(bare_east, "RayCluster", "tune")
        await manager.create(JOBS, objects.job("victim", parallelism=3))
        await victim.expect_pods(running=3)
        job = elastic("RayCluster", "tune")
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "high"
        await manager.create(tune.resource, job)
        await tune.expect_pods(running=1)
        left = await worker.create(PODS, straggler(await victim.worker_job()))

        provider = await provider_of(tune)
        await provider.launch(GROUP, 3)
        await victim.expect_event(f"EvictedDueTo{EvictionReason.PREEMPTED}", on=manager)
        await tune.expect_pods(running=1, gated=3)
        await give_up_and_ask_again(tune, provider, 4)
        # The quota comes free while the autoscaler wants it no more.
        await provider.terminate([pod["metadata"]["name"] for pod in await tune.pods() if is_gated(pod)])
        await tune.expect_pods(running=1)
        await worker.delete(PODS, left["metadata"]["name"], NAMESPACE)
        await tune.expect_unfinished(4)
        await provider.launch(GROUP, 3)
        await tune.expect_pods(running=4)
        events = (await manager.list(EVENTS, namespace=NAMESPACE)).items
        evicted = [
            event
            for event in events
            if (event["reason"], event["involvedObject"]["kind"]) == (f"EvictedDueTo{EvictionReason.PREEMPTED}", "Job")
        ]
        assert [event.get("count", 1) for event in evicted] == [1]
