"""The whole round trip of a TrainJob on embedded servers, in a process that has the kind by its entry point."""

import asyncio
from typing import Any

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet, running
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, CRDS, PODS, WORKLOADS
from slicebus.slices.api import kueue
from slicebus.slices.workload.workload import Slice
from support.scenario import NAMESPACE, Scenario, set_quota
from support.train_job.cluster import DEFINITION, TrainJobController
from support.train_job.kind import POD_SET, TrainJob
from support.waiting import eventually

Manifest = dict[str, Any]


class TrainScenario(Scenario):
    """One TrainJob in a world."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, TrainJob.resource.kind, name)

    async def submit(self, *, replicas: int = 1, annotations: dict[str, str] | None = None) -> None:
        manifest = objects.job(self.name)
        template = {"metadata": {"annotations": annotations or {}}, "spec": manifest["spec"]["template"]["spec"]}
        spec = {"replicas": replicas, "managedBy": kueue.MANAGED_BY_MULTIKUEUE, "template": template}
        named = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        await self.world.manager.create(self.resource, manifest | named | {"spec": spec})

    async def scale(self, workers: int) -> None:
        body = MergePatch({"spec": {"replicas": workers}})
        await (await self.worker()).patch(self.resource, self.name, NAMESPACE, body)

    def workers_of(self, slice: Slice) -> int:
        return slice.counts[POD_SET]

    async def expect_nothing_on_the_worker(self) -> None:
        worker = await self.worker()

        async def cleaned() -> bool:
            lists = [await worker.list(resource, namespace=NAMESPACE) for resource in (self.resource, WORKLOADS, PODS)]
            return not any(page.items for page in lists)

        await eventually(cleaned, f"the worker has nothing left of {self.name}")


async def resized_evicted_and_deleted(world: World) -> None:
    scenario = TrainScenario(world, "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [first] = await scenario.expect_unfinished(1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    [second] = await scenario.expect_unfinished(3)
    assert second.replaces == first.key
    await scenario.scale(2)
    await scenario.expect_pods(running=2)
    await scenario.expect_unfinished(2)

    await stop(world, "HoldAndDrain")
    await scenario.expect_event("EvictedDueToClusterQueueStopped", on=world.manager)
    await scenario.expect_pods(running=0)
    assert (await world.manager.get(scenario.resource, scenario.name, NAMESPACE))["spec"]["suspend"] is True
    await stop(world, "None")
    await scenario.expect_pods(running=1)
    [back] = await scenario.expect_unfinished(1)
    assert back.chain == first.chain

    await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()


async def finished(world: World) -> None:
    scenario = TrainScenario(world, "short")
    await scenario.submit(replicas=2, annotations={"slicebus.dev/run-seconds": "0.2"})

    async def complete() -> bool:
        job = await world.manager.get(scenario.resource, scenario.name, NAMESPACE)
        return any(entry["type"] == "Complete" for entry in job.get("status", {}).get("conditions", ()))

    await eventually(complete, "the manager's TrainJob is complete")
    await scenario.expect_nothing_on_the_worker()
    [slice] = await scenario.chain()
    assert slice.conditions["Finished"]["reason"] == "Succeeded"


async def stop(world: World, policy: str) -> None:
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": policy}}))


async def main() -> None:
    names = ("east", "west")
    async with embedded_world(names) as world:
        for client in (world.manager, *world.workers.values()):
            await client.create(CRDS, DEFINITION)
        controllers = [TrainJobController(worker).run() for worker in world.workers.values()]
        urls = {role: f"memory://{role}@train-job" for role in ("manager", *names)}
        async with running(*controllers), fleet(world, urls):
            await set_quota(world, 20)
            await resized_evicted_and_deleted(world)
            await finished(world)


if __name__ == "__main__":
    asyncio.run(main())
