"""The whole round trip of a job of a declared kind, in a process that has the declarations by their variable.

Its argument is a `Parts` as JSON.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet, real_world, running
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, CRDS, JOBS, LEASES, WORKLOADPRIORITYCLASSES
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.proto.messages import ClusterName
from slicebus.runtime.leadership import LEFT_OUT_ANNOTATION
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.jobs.suspension import can_suspend
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice
from support.declared.cluster import GROUPS, JOBSETS, GroupController, JobSetController, definitions, undefine
from support.declared.scenario import SIZE, STATUS, DeclaredScenario
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.waiting import eventually
from support.wiping import wipe, wipe_resource

Manifest = dict[str, Any]

_HIGH: Manifest = {
    "apiVersion": kueue.API_VERSION,
    "kind": WORKLOADPRIORITYCLASSES.kind,
    "metadata": {"name": "high"},
    "value": 1000,
}
_GROUP = "leaderworkerset.sigs.k8s.io/group-key"


class Parts(msgspec.Struct):
    """What a round trip runs on."""

    kind: str
    manager: str | None = None
    """The kubeconfig of the manager's cluster; None for embedded servers."""
    workers: dict[str, str] = {}
    urls: dict[str, str] = {}
    """The broker's address of each role."""
    left_out: list[str] = []
    """What the roles have to say of the kinds that they leave out."""


async def resized_both_ways(scenario: DeclaredScenario) -> Slice:
    """Grown on the worker, where the pods wait for quota; shrunk there; resized from the manager. Its first slice."""
    world = scenario.world
    await set_quota(world, 2 * scenario.pods_of_one)
    await scenario.submit()
    await scenario.expect(running=1)
    [first] = await scenario.expect_unfinished(1)
    await scenario.scale(3)
    await scenario.expect(running=1, gated=2)
    await scenario.expect_unfinished(1, 3)
    await set_quota(world, 20)
    await scenario.expect(running=3)
    [second] = await scenario.expect_unfinished(3)
    assert second.replaces == first.key
    await scenario.scale(2)
    await scenario.expect(running=2)
    await scenario.expect_unfinished(2)
    await scenario.scale_on_the_manager(4)
    await scenario.expect(running=4)
    await scenario.expect_unfinished(4)
    await scenario.scale_on_the_manager(2)
    await scenario.expect(running=2)
    await scenario.expect_unfinished(2)
    await scenario.expect_no_pod_of_the_manager_runs()
    if scenario.kind != "LeaderWorkerSet":
        await scenario.expect_status_of_the_worker(*STATUS[scenario.kind])
    return first


async def drained(scenario: DeclaredScenario, first: Slice) -> None:
    """It leaves its worker, or is suspended there, gives its quota back, and comes back at the size of its spec."""
    world = scenario.world
    await scenario.scale(3)
    await scenario.expect(running=3)
    before = await scenario.worker_job()
    await stop(world, "HoldAndDrain")
    if can_suspend(scenario.kind):
        await scenario.expect_event("EvictedDueToClusterQueueStopped", on=world.manager)
    await scenario.expect_pods(running=0)

    async def given_back() -> bool:
        [slice] = [slice for slice in await scenario.chain() if not slice.finished]
        return slice.admission is None

    await eventually(given_back, "the quota is given back")
    if can_suspend(scenario.kind):
        assert (await scenario.of_the_manager())["spec"]["suspend"] is True
        assert (await scenario.worker_job())["spec"]["suspend"] is True
    else:
        await scenario.expect_nothing_on_the_worker()
    await stop(world, "None")
    await scenario.expect(running=2)
    [back] = await scenario.expect_unfinished(2)
    assert back.chain == first.chain
    is_same = (await scenario.worker_job())["metadata"]["uid"] == before["metadata"]["uid"]
    assert is_same is can_suspend(scenario.kind)


async def deleted(scenario: DeclaredScenario) -> None:
    await scenario.world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()


async def completed(world: World) -> None:
    """A JobSet that ends by itself."""
    scenario = DeclaredScenario(world, "JobSet", "short")
    await scenario.submit(**{"pod/slicebus.dev/run-seconds": "0.2"})

    async def complete() -> bool:
        return any(entry["type"] == "Completed" for entry in conditions_of(await scenario.of_the_manager()))

    await eventually(complete, "the manager's JobSet is complete")
    await scenario.expect_nothing_on_the_worker()
    [slice] = await scenario.chain()
    assert slice.conditions["Finished"]["reason"] == "Succeeded"
    await deleted(scenario)


async def suspended_by_its_user(world: World) -> None:
    """On the manager it gives its quota back, and waits for its user; on the worker it is resumed."""
    scenario = DeclaredScenario(world, "JobSet", "paused")
    await scenario.submit(2)
    await scenario.expect(running=2)
    await scenario.suspend(world.manager)
    await scenario.expect_event("SuspendedByUser", on=world.manager)
    await scenario.expect_pods(running=0)
    await expect_used(world, "0")
    await scenario.suspend(world.manager, False)
    await scenario.expect(running=2)
    worker = await scenario.worker()
    await scenario.suspend(worker)
    await scenario.expect_event("SuspensionUndone", on=worker)
    await scenario.expect(running=2)
    await deleted(scenario)


async def within_its_completions(world: World) -> None:
    """A JobSet with fewer completions than its parallelism is charged for those, and runs."""
    scenario = DeclaredScenario(world, "JobSet", "few")
    await set_quota(world, 2 * SIZE)
    manifest = scenario.manifest()
    manifest["spec"]["replicatedJobs"][0]["template"]["spec"] |= {"parallelism": 9, "completions": 2}
    await world.manager.create(scenario.resource, manifest)
    await scenario.expect(running=2)
    await expect_used(world, str(2 * SIZE))
    await deleted(scenario)
    await set_quota(world, 20)


async def allow_preemption(world: World) -> None:
    await world.ensure(world.manager, WORKLOADPRIORITYCLASSES, _HIGH)
    spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))


async def submit_high(world: World, pods: int) -> None:
    """Wait until a Job of a higher priority runs."""
    job = objects.job("high", parallelism=pods)
    job["metadata"]["labels"] |= {kueue.PRIORITY_CLASS_LABEL: "high"}
    await world.manager.create(JOBS, job)
    await Scenario(world, "Job", "high").expect_pods(running=pods)


async def loses_half(scenario: DeclaredScenario, *, pods: int, others: int) -> None:
    """A job that has all of the quota loses half of its pods to another one with so many, and has them back."""
    world = scenario.world
    await scenario.expect_pods(running=pods)
    began = await scenario.running()
    await submit_high(world, others)
    await scenario.expect_pods(running=pods // 2)
    kept = await scenario.running()
    assert kept < began, "no pod was made anew"

    async def waits() -> bool:
        unfinished = [slice for slice in await scenario.chain() if not slice.finished]
        return [sum(slice.counts.values()) for slice in unfinished] == [pods // 2, pods]

    await eventually(waits, "the former size waits")
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await scenario.expect_pods(running=pods)
    assert kept < await scenario.running()
    assert not any(slice.evicted for slice in await scenario.chain())
    await deleted(scenario)
    await set_quota(world, 20)


async def reclaimed(world: World) -> None:
    """A JobSet that loses pods to a job of a higher priority instead of all, of each of its Jobs as many, and has them
    back."""
    scenario = DeclaredScenario(world, "JobSet", "shrinks")
    await set_quota(world, 4 * SIZE)
    await allow_preemption(world)
    await scenario.submit(4, **{api_names.MIN_SIZE_ANNOTATION: f"workers={SIZE}"})
    await loses_half(scenario, pods=4 * SIZE, others=3)


async def jobsets(world: World) -> None:
    await reclaimed(world)
    await suspended_by_its_user(world)
    await within_its_completions(world)
    await completed(world)


async def granted_whole(world: World) -> None:
    """A growth that is granted in part: no group has pods on both sides of the gate."""
    scenario = DeclaredScenario(world, "LeaderWorkerSet", "partial")
    await set_quota(world, 3 * SIZE - 1)
    await scenario.submit(**{api_names.PARTIAL_SCALE_UP_ANNOTATION: "true"})
    await scenario.expect(running=1)
    await scenario.scale(4)
    await scenario.expect(running=2, gated=2)
    gated: defaultdict[str, set[bool]] = defaultdict(set)
    for pod in await scenario.pods():
        gated[pod["metadata"]["labels"][_GROUP]].add(is_gated(pod))
    assert sorted(map(sorted, gated.values())) == [[False], [False], [True], [True]]
    await deleted(scenario)


async def submit_led(scenario: DeclaredScenario, manifest: Manifest) -> None:
    """Groups of three, whose leaders have a template of their own."""
    template = manifest["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    manifest["spec"]["leaderWorkerTemplate"] |= {"leaderTemplate": template, "size": 3}
    await scenario.world.manager.create(scenario.resource, manifest)


async def led(world: World) -> None:
    """Groups whose leaders have a template of their own, and are a pod set."""
    scenario = DeclaredScenario(world, "LeaderWorkerSet", "led")
    await submit_led(scenario, scenario.manifest())
    await scenario.expect_pods(running=3)
    await scenario.scale(3)
    await scenario.expect_pods(running=9)

    async def sized(counts: dict[str, int]) -> bool:
        return [slice.counts for slice in await scenario.chain() if not slice.finished] == [counts]

    await eventually(lambda: sized({"leader": 3, "worker": 6}), "leaders and workers are two pod sets")
    await scenario.scale_on_the_manager(2)
    await scenario.expect_pods(running=6)
    await eventually(lambda: sized({"leader": 2, "worker": 4}), "both have the manager's size")
    await deleted(scenario)


async def led_and_reclaimed(world: World) -> None:
    """Groups go whole where the least size names one of their pod sets, and come back whole."""
    scenario = DeclaredScenario(world, "LeaderWorkerSet", "shrinks")
    await set_quota(world, 12)
    await allow_preemption(world)
    await submit_led(scenario, scenario.manifest(4, **{api_names.MIN_SIZE_ANNOTATION: "worker=2"}))
    await loses_half(scenario, pods=12, others=4)


async def told_before_it_goes(world: World) -> None:
    """Groups that are preempted whole run until their notice is over, and leave the worker then: they cannot be
    suspended. They come back when there is quota again."""
    scenario = DeclaredScenario(world, "LeaderWorkerSet", "told")
    await set_quota(world, 2 * SIZE)
    await allow_preemption(world)
    await scenario.submit(2, **{api_names.NOTICE_ANNOTATION: "30m"})
    await scenario.expect(running=2)
    job = objects.job("high", parallelism=2 * SIZE)
    job["metadata"]["labels"] |= {kueue.PRIORITY_CLASS_LABEL: "high"}
    await world.manager.create(JOBS, job)

    async def noted() -> str | None:
        objects = [await scenario.worker_job(), *await scenario.pods()]
        notes = [(each["metadata"].get("annotations") or {}).get(api_names.RECLAIM_ANNOTATION) for each in objects]
        return notes[0] if all(notes) and len(notes) == 1 + 2 * SIZE else None

    note = await eventually(noted, "the groups and all of their pods are told")
    await scenario.expect(running=2)
    read = msgspec.json.decode(note or "{}")
    assert read["to"] == {"worker": 0}
    acknowledged = MergePatch({"metadata": {"annotations": {api_names.RECLAIM_ACK_ANNOTATION: read["id"]}}})
    await (await scenario.worker()).patch(scenario.resource, scenario.name, NAMESPACE, acknowledged)
    high = Scenario(world, "Job", "high")
    await high.expect_pods(running=2 * SIZE)
    await scenario.expect_pods(running=0)
    await world.manager.delete(JOBS, "high", NAMESPACE)
    await scenario.expect(running=2)
    await deleted(scenario)


async def groups_of_several_pods(world: World) -> None:
    await told_before_it_goes(world)
    await granted_whole(world)
    await set_quota(world, 20)
    await led(world)
    await led_and_reclaimed(world)


async def rolled_out(world: World) -> None:
    """Pods that the worker's controller replaces start in the places of those that it takes away."""
    scenario = DeclaredScenario(world, "Deployment", "rolled")
    await set_quota(world, 2)
    await scenario.submit(2)
    await scenario.expect(running=2)
    before = await scenario.running()
    annotations = {"kubectl.kubernetes.io/restartedAt": "now"}
    body = MergePatch({"spec": {"template": {"metadata": {"annotations": annotations}}}})
    await (await scenario.worker()).patch(scenario.resource, scenario.name, NAMESPACE, body)

    async def replaced() -> bool:
        found = await scenario.running()
        return len(found) == 2 and not found & before

    await eventually(replaced, "both pods are replaced")
    await scenario.expect_unfinished(2)
    await deleted(scenario)


async def served_and_refused(world: World) -> None:
    await rolled_out(world)
    await refused(world)


async def refused(world: World) -> None:
    """A Deployment that the manager's own cluster would run, or runs already, is left to it, and says so."""
    scenario = DeclaredScenario(world, "Deployment", "local")
    manifest = scenario.manifest()
    manifest["spec"]["paused"] = False
    await world.manager.create(scenario.resource, manifest)
    await scenario.expect_left_alone("its spec.paused is not true")

    async def has_pods() -> bool:
        return (await scenario.of_the_manager()).get("status", {}).get("replicas") == 1

    await eventually(has_pods, "the manager's cluster runs it")
    body = MergePatch({"spec": {"paused": True}})
    await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, body)
    await scenario.expect_left_alone("its status.replicas is 1, as this cluster runs it already")
    assert await scenario.chain() == []
    await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)


MORE = {"JobSet": jobsets, "LeaderWorkerSet": groups_of_several_pods, "Deployment": served_and_refused}


async def left_out(world: World, texts: list[str]) -> None:
    """Wait until every leader says so on its Lease."""
    leases = [(world.manager, "slicebus-manager"), *((worker, "slicebus-agent") for worker in world.workers.values())]
    for client, name in leases:

        async def told(client: KubeClient = client, name: str = name) -> bool:
            lease = await client.get(LEASES, name, objects.SYSTEM_NAMESPACE)
            said = (lease["metadata"].get("annotations") or {}).get(LEFT_OUT_ANNOTATION, "")
            return all(text in said for text in texts)

        await eventually(told, f"{name} says {texts}")


async def stop(world: World, policy: str) -> None:
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": policy}}))


@asynccontextmanager
async def world_of(parts: Parts) -> AsyncIterator[World]:
    """The clusters, which are left as they were."""
    if parts.manager is None:
        async with embedded_world(("east", "west")) as world:
            yield world
        return
    workers = {ClusterName(name): Path(path) for name, path in parts.workers.items()}
    async with real_world(Path(parts.manager), workers, ray_stand_in=True) as world:
        clients = (world.manager, *world.workers.values())
        try:
            yield world
        finally:
            resource = DeclaredScenario(world, parts.kind, "").resource
            for client in clients:
                await wipe_resource(client, resource, NAMESPACE)
            await wipe(*clients)
            await asyncio.gather(*map(undefine, clients))


async def defined(client: KubeClient) -> None:
    """Wait until both definitions are served."""
    for definition in definitions():
        await client.create(CRDS, definition)
    for resource in (JOBSETS, GROUPS):
        await eventually(lambda resource=resource: client.serves(resource), f"{resource.plural} are served")


async def main(parts: Parts) -> None:
    urls = parts.urls or {role: f"memory://{role}@declared" for role in ("manager", "east", "west")}
    async with world_of(parts) as world:
        for client in (world.manager, *world.workers.values()):
            await defined(client)
        workers = world.workers.values()
        # Nothing keeps a LeaderWorkerSet's controller off the manager's: its pods wait there behind the gate.
        controllers = [GroupController(world.manager).run()]
        controllers += [kind(worker).run() for kind in (JobSetController, GroupController) for worker in workers]
        async with running(*controllers), fleet(world, urls, decisions=ManagerDecisionSettings(notice_cap_s=3600.0)):
            if parts.left_out:
                await left_out(world, parts.left_out)
            scenario = DeclaredScenario(world, parts.kind, "served")
            await drained(scenario, await resized_both_ways(scenario))
            await deleted(scenario)
            await MORE[parts.kind](world)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Parts)))
