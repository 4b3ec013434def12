"""Gangs of Kubernetes' own scheduler: Workload and PodGroup of `scheduling.k8s.io`, on real servers with its gates on,
and nodes so small that a gang may not fit."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from e2e.test_preemption import allow_preemption
from e2e.test_reclaimed import submit_high
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, fleet, real_world
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, CRDS, JOBS, NODES, PODS, RAYCLUSTERS, WORKERCLUSTERS
from slicebus.proto.errors import ForbiddenError
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names
from slicebus.slices.api.api_names import NO_PLACE
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.resource import Resource
from slicebus.slices.schedulers.kube import pod_groups, workloads
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.waiting import Waiting
from support.controlplane import Alpha, Cluster, ControlPlane
from support.installation import install, kubeconfig_of, run_cli, uninstall
from support.rabbitmq import RabbitBroker
from support.scenario import NAMESPACE, Scenario, set_quota
from support.servers import definitions
from support.waiting import eventually
from support.wiping import wipe, wipe_resource

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

Manifest = dict[str, Any]
EAST, WEST = ClusterName("east"), ClusterName("west")
PROFILES = '[{"name": "default"}, {"name": "kube"}]'
POD_GROUPS, GANG_WORKLOADS = pod_groups("v1alpha2"), workloads("v1alpha2")
GANGS = Alpha(
    gates=("GenericWorkload", "GangScheduling", "WorkloadWithJob"),
    apis=("scheduling.k8s.io/v1alpha2",),
    controllers=("podgroup-protection-controller",),
)
GROUP = "small-group"
ROOM = 40
"""Of the quota, in cores: more than any test uses."""


@pytest.fixture(scope="module")
def gated(control_plane: ControlPlane) -> Iterator[Cluster]:
    """A worker with the gates, and without nodes."""
    with control_plane.worker_beside("gangs", GANGS, *definitions()) as cluster:
        yield cluster


@pytest.fixture
def urls(rabbitmq: RabbitBroker, vhost: str) -> dict[str, str]:
    """Each role's broker address."""
    return {role: rabbitmq.url(vhost, role) for role in ("manager", "east", "west")}


@asynccontextmanager
async def scheduling(
    control_plane: ControlPlane, urls: dict[str, str], *, agent: Path | None = None, **workers: Cluster
) -> AsyncIterator[World]:
    """A manager, and agents that enable `kube` beside `default`. `agent` is the kubeconfig of east's, where it has one
    of its own."""
    manager = control_plane.clusters["manager"].kubeconfig
    kubeconfigs = {ClusterName(name): cluster.kubeconfig for name, cluster in workers.items()}
    async with real_world(manager, kubeconfigs, ray_stand_in=True) as world:
        try:
            async with seen_by(world, agent) as agents, fleet(agents, urls, schedulers=PROFILES):
                await set_quota(world, ROOM)
                yield world
        finally:
            await wipe(world.manager, *world.workers.values())
            for client, resource in product(world.workers.values(), (POD_GROUPS, GANG_WORKLOADS)):
                await wipe_resource(client, resource, NAMESPACE)
            if EAST in world.workers:
                # kwok lets no pod go whose node has gone.
                await wipe_resource(world.workers[EAST], NODES, None)


@asynccontextmanager
async def seen_by(world: World, agent: Path | None) -> AsyncIterator[World]:
    """The same clusters, where east's agent has the rights of a kubeconfig."""
    if agent is None:
        yield world
        return
    async with await KubeClient.from_kubeconfig(agent) as client:
        yield World(manager=world.manager, workers=world.workers | {EAST: client})


@pytest.fixture
async def world(control_plane: ControlPlane, gated: Cluster, urls: dict[str, str]) -> AsyncIterator[World]:
    """East has the gates. A test makes its nodes."""
    async with scheduling(control_plane, urls, east=gated) as made:
        yield made


async def add_nodes(world: World, *names: str, cpu: str = "32") -> None:
    """Nodes for kwok to play."""
    for name in names:
        room = {"cpu": cpu, "memory": "256Gi", "pods": "110"}
        status = {"allocatable": room, "capacity": room}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        await world.workers[EAST].create(NODES, node)


def ray_cluster(name: str, *, workers: int, cpu: str = "1") -> Manifest:
    """For this backend, without an autoscaler."""
    manifest = objects.ray_cluster(name, replicas=workers)
    [group] = manifest["spec"]["workerGroupSpecs"]
    manifest["spec"]["enableInTreeAutoscaling"] = False
    group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return choosing(manifest)


def choosing(manifest: Manifest) -> Manifest:
    """A job that chooses this backend."""
    manifest["metadata"]["labels"][api_names.SCHEDULER_LABEL] = "kube"
    return manifest


async def submit(world: World, manifest: Manifest) -> Scenario:
    scenario = Scenario(world, manifest["kind"], manifest["metadata"]["name"])
    await world.manager.create(scenario.resource, manifest)
    return scenario


async def workers_of(scenario: Scenario) -> list[Manifest]:
    return [pod for pod in await scenario.pods() if "-head-" not in pod["metadata"]["name"]]


async def resize(client: KubeClient, name: str, workers: int) -> None:
    """As a user does it who has no autoscaler."""
    change = {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}
    await client.patch(RAYCLUSTERS, name, NAMESPACE, JsonPatch([change]))


async def made(world: World, resource: Resource) -> dict[str, Manifest]:
    """What is there of a resource of the scheduler's, by name."""
    page = await world.workers[EAST].list(resource, namespace=NAMESPACE)
    return {item["metadata"]["name"]: item for item in page.items}


async def expect_nothing_made(world: World) -> None:
    for resource in (POD_GROUPS, GANG_WORKLOADS):

        async def none(resource: Resource = resource) -> bool:
            return not await made(world, resource)

        await eventually(none, f"no {resource.plural} are left")


async def expect_waits(client: KubeClient, name: str, reason: str) -> Waiting:
    """What a RayCluster shows of why its pods do not start."""

    async def look() -> Waiting | None:
        found = Waiting.from_manifest(await client.get(RAYCLUSTERS, name, NAMESPACE))
        return found if found is not None and found.reason == reason else None

    shown = await eventually(look, f"{name} shows {reason} on {client.host}")
    assert shown is not None
    return shown


def policy_of(found: dict[str, Manifest], name: str) -> Manifest:
    """Of a PodGroup."""
    policy: Manifest = found[name]["spec"]["schedulingPolicy"]
    return policy


def identity(manifest: Manifest) -> tuple[str, int, Manifest]:
    metadata = manifest["metadata"]
    return metadata["uid"], metadata.get("generation", 0), manifest["spec"]


async def test_a_gang_that_does_not_fit_does_not_start_at_all(world: World) -> None:
    """Each node takes one of the gang's pods. All nodes together have room enough, so the job has its quota."""
    await add_nodes(world, *(f"small-{number}" for number in range(4)), cpu="3")
    scenario = await submit(world, ray_cluster("gang", workers=5, cpu="2"))

    async def let_go() -> bool:
        pods = await workers_of(scenario)
        return len(pods) == 5 and not any(map(is_gated, pods))

    async def was_tried() -> bool:
        group = (await made(world, POD_GROUPS))["raycluster-gang.small-group"]
        found = {entry["type"]: entry for entry in conditions_of(group)}
        return found.get("PodGroupScheduled", {}).get("reason") == "Unschedulable"

    await eventually(let_go, "slicebus lets the five workers go")
    await eventually(was_tried, "the scheduler has tried to place the gang")
    assert [pod["spec"].get("nodeName") for pod in await workers_of(scenario)] == [None] * 5
    await add_nodes(world, "small-4", cpu="3")
    await scenario.expect_pods(running=5)


async def test_a_gang_grows_in_its_group(world: World) -> None:
    await add_nodes(world, "big")
    scenario = await submit(world, ray_cluster("grow", workers=2))
    await scenario.expect_pods(running=2)
    before, pods = await made(world, POD_GROUPS), await scenario.running()
    assert policy_of(before, "raycluster-grow.small-group") == {"gang": {"minCount": 2}}

    await resize(world.workers[EAST], "grow", 5)
    await scenario.expect_pods(running=5)
    await scenario.expect_unfinished(5)
    assert pods < await scenario.running()
    after = await made(world, POD_GROUPS)
    assert {name: identity(each) for name, each in after.items()} == {
        name: identity(each) for name, each in before.items()
    }
    groups = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in await workers_of(scenario)}
    assert groups == {"raycluster-grow.small-group"}


async def test_a_gang_loses_pods_down_to_its_least_size_and_has_them_back(world: World) -> None:
    await add_nodes(world, "big")
    await set_quota(world, 9)
    await allow_preemption(world)
    manifest = ray_cluster("low", workers=8)
    manifest["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = f"{GROUP}=3"
    low = await submit(world, manifest)
    await low.expect_pods(running=8)
    began = await low.running()
    assert policy_of(await made(world, POD_GROUPS), f"raycluster-low.{GROUP}") == {"gang": {"minCount": 3}}

    await (await submit_high(world, 4)).expect_pods(running=4)
    await low.expect_pods(running=4)
    kept = await low.running()
    assert kept < began
    # One pod of the gang is made anew: those that are left are enough for it.
    [lost, *_] = await workers_of(low)
    await world.workers[EAST].delete(PODS, lost["metadata"]["name"], NAMESPACE)
    await low.expect_pods(running=4)
    assert lost["metadata"]["name"] not in await low.running()

    await world.manager.delete(JOBS, "high", NAMESPACE)
    await low.expect_pods(running=8)
    assert not any(slice.evicted for slice in await low.chain())


async def test_a_gang_that_shrinks_cannot_be_changed_before_its_pods_have_gone(world: World) -> None:
    await add_nodes(world, "big")
    east = world.workers[EAST]
    scenario = await submit(world, ray_cluster("shrink", workers=3))
    await scenario.expect_pods(running=3)
    await resize(east, "shrink", 2)
    await scenario.expect_pods(running=2)
    await scenario.expect_unfinished(2)
    [lost, _] = await workers_of(scenario)
    await east.delete(PODS, lost["metadata"]["name"], NAMESPACE)
    shown = await expect_waits(east, "shrink", "GangTooLarge")
    assert "was made for 3 pods and cannot be changed, 2 are granted" in shown.message

    await resize(east, "shrink", 0)
    await scenario.expect_pods(running=0)

    async def head_only() -> bool:
        found = {resource: set(await made(world, resource)) for resource in (POD_GROUPS, GANG_WORKLOADS)}
        return set(map(frozenset, found.values())) == {frozenset({"raycluster-shrink.head"})}

    await eventually(head_only, "the objects of the group have gone")
    await resize(east, "shrink", 2)
    await scenario.expect_pods(running=2)
    assert policy_of(await made(world, POD_GROUPS), "raycluster-shrink.small-group") == {"gang": {"minCount": 2}}


def indexed(name: str) -> Manifest:
    """A Job of three pods for which Kubernetes makes a gang itself (`WorkloadWithJob`)."""
    manifest = objects.job(name, parallelism=3)
    manifest["spec"] |= {"completions": 3, "completionMode": "Indexed"}
    return manifest


async def resize_indexed(world: World, name: str, size: int) -> None:
    body = MergePatch({"spec": {"parallelism": size, "completions": size}})
    await world.workers[EAST].patch(JOBS, name, NAMESPACE, body)


async def test_a_job_is_resized_because_its_policy_is_basic(world: World) -> None:
    await add_nodes(world, "big")
    scenario = await submit(world, choosing(indexed("sweep")))
    await scenario.expect_pods(running=3)
    job = await scenario.worker_job()
    for resource in (POD_GROUPS, GANG_WORKLOADS):
        found = await made(world, resource)
        assert list(found) == ["job-sweep.main"], "Kubernetes has made none beside ours"
        [owner] = found["job-sweep.main"]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", job["metadata"]["uid"])
    assert policy_of(await made(world, POD_GROUPS), "job-sweep.main") == {"basic": {}}

    for size in (5, 2):
        await resize_indexed(world, "sweep", size)
        await scenario.expect_pods(running=size)
        await scenario.expect_unfinished(size)
    assert list(await made(world, POD_GROUPS)) == list(await made(world, GANG_WORKLOADS)) == ["job-sweep.main"]
    await world.manager.delete(JOBS, "sweep", NAMESPACE)
    await expect_nothing_made(world)


def refusal(group: str) -> str:
    return f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}"'


async def test_kubernetes_refuses_to_resize_a_job_that_names_a_gang(world: World) -> None:
    """The reason for the basic policy: once this is taken, the pods of a Job can be a gang too."""
    east, metadata = world.workers[EAST], {"name": "own", "namespace": NAMESPACE}
    group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": metadata}
    await east.create(POD_GROUPS, group | {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    job = indexed("own") | {"metadata": metadata}
    del job["spec"]["managedBy"]
    job["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "own"}
    await east.create(JOBS, job)

    async def is_refused() -> bool:
        """Its admission plugin has to see the PodGroup first."""
        try:
            await resize_indexed(world, "own", 3)
            await resize_indexed(world, "own", 4)
        except ForbiddenError as error:
            return refusal("own") in str(error)
        return False

    await eventually(is_refused, "the API server refuses another parallelism")
    await east.delete(JOBS, "own", NAMESPACE)
    await east.delete(POD_GROUPS, "own", NAMESPACE)
    await expect_nothing_made(world)


async def test_a_job_of_another_backend_is_in_a_gang_of_kubernetes(world: World) -> None:
    """Where `WorkloadWithJob` is on, nobody resizes an indexed Job that does not have this backend."""
    await add_nodes(world, "big")
    scenario = await submit(world, indexed("plain"))
    await scenario.expect_pods(running=3)
    [group] = await made(world, POD_GROUPS)
    assert policy_of(await made(world, POD_GROUPS), group) == {"gang": {"minCount": 3}}
    with pytest.raises(ForbiddenError, match=re.escape(refusal(group))):
        await resize_indexed(world, "plain", 4)
    await world.manager.patch(JOBS, "plain", NAMESPACE, MergePatch({"spec": {"parallelism": 4, "completions": 4}}))
    assert refusal(group) in await scenario.expect_event("Forbidden", on=world.manager)


class Ends:
    """When objects of east were marked for deletion, and when they were gone: by the revisions of one etcd."""

    def __init__(self, east: KubeClient) -> None:
        self._east = east
        self._going: dict[tuple[str, str], int] = {}
        self._gone: dict[tuple[str, str], int] = {}

    @asynccontextmanager
    async def watched(self, *resources: Resource) -> AsyncIterator[None]:
        """Note them until the context is left."""
        since = {each: (await self._east.list(each, namespace=NAMESPACE)).resource_version for each in resources}
        tasks = [asyncio.create_task(self._watch(each, version), name="ends") for each, version in since.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, resource: Resource, version: str) -> None:
        async for event in self._east.watch(resource, resource_version=version, namespace=NAMESPACE, timeout_s=60):
            metadata = event.object["metadata"]
            key, revision = (resource.plural, metadata.get("name", "")), int(metadata["resourceVersion"])
            if event.type == "DELETED":
                self._gone[key] = revision
            elif "deletionTimestamp" in metadata:
                self._going.setdefault(key, revision)

    def went(self, resource: Resource) -> dict[str, tuple[int, int]]:
        """The revisions of both for each object that is gone, by name. One that nothing holds has only the second."""
        return {
            name: (self._going.get((plural, name), revision), revision)
            for (plural, name), revision in self._gone.items()
            if plural == resource.plural
        }


async def stop(world: World, policy: str) -> None:
    """Another stopPolicy of the queue."""
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"stopPolicy": policy}}))


async def test_a_drained_job_comes_back_with_a_gang_of_its_new_size(world: World) -> None:
    await add_nodes(world, "big")
    scenario = await submit(world, ray_cluster("drain", workers=3))
    await scenario.expect_pods(running=3)
    first = await made(world, POD_GROUPS)
    await resize(world.workers[EAST], "drain", 5)
    await scenario.expect_pods(running=5)

    ends = Ends(world.workers[EAST])
    async with ends.watched(PODS, POD_GROUPS, GANG_WORKLOADS):
        await stop(world, "HoldAndDrain")
        await expect_nothing_made(world)

        async def all_told() -> bool:
            return [len(ends.went(each)) for each in (PODS, POD_GROUPS, GANG_WORKLOADS)] == [6, 2, 2]

        await eventually(all_told, "the watches have told what went")
    for pod_set in ("head", GROUP):
        last_pod = max(gone for name, (_, gone) in ends.went(PODS).items() if f"-{pod_set}-" in name)
        asked, gone = ends.went(POD_GROUPS)[f"raycluster-drain.{pod_set}"]
        workload, _ = ends.went(GANG_WORKLOADS)[f"raycluster-drain.{pod_set}"]
        assert last_pod < asked < gone, "Kubernetes takes its finalizer off"
        assert asked < workload

    await resize(world.manager, "drain", 4)
    await scenario.expect_unfinished(4)
    await stop(world, "None")
    await scenario.expect_pods(running=4)
    again = await made(world, POD_GROUPS)
    assert policy_of(first, "raycluster-drain.small-group") == {"gang": {"minCount": 3}}
    assert policy_of(again, "raycluster-drain.small-group") == {"gang": {"minCount": 4}}
    assert again.keys() == first.keys() == (await made(world, GANG_WORKLOADS)).keys()


async def test_what_was_made_goes_with_the_job(world: World) -> None:
    """Also where KubeRay has made the RayCluster of it, and the pod of its submitter is in no gang."""
    await add_nodes(world, "big")
    scenario = await submit(world, choosing(objects.ray_job("tune", replicas=2)))
    await scenario.expect_pods(running=2)
    assert set(await made(world, POD_GROUPS)) == {"rayjob-tune.head", "rayjob-tune.small-group"}
    named = [pod["spec"].get("schedulingGroup", {}).get("podGroupName") for pod in await scenario.pods()]
    assert sorted(map(str, named)) == ["None", "rayjob-tune.head", *["rayjob-tune.small-group"] * 2]
    await world.manager.delete(scenario.resource, "tune", NAMESPACE)
    await scenario.expect_nothing_left()
    await expect_nothing_made(world)


async def test_a_cluster_without_the_gates_has_no_such_backend(
    control_plane: ControlPlane, urls: dict[str, str]
) -> None:
    async with scheduling(control_plane, urls, west=control_plane.clusters["west"]) as world:

        async def told() -> bool:
            status = (await world.manager.get(WORKERCLUSTERS, WEST)).get("status", {})
            return bool(status.get("schedulerBackends") == ["default"])

        await eventually(told, "west says what can be used")
        waits, runs = await submit(world, ray_cluster("waits", workers=1)), await submit(world, objects.job("runs"))
        await runs.expect_pods(running=1)

        async def says_why() -> bool:
            [slice] = await waits.chain()
            condition = slice.conditions.get(Condition.QUOTA_RESERVED, {})
            has = "has no scheduler backend kube, only default"
            return condition.get("reason") == NO_PLACE and has in condition.get("message", "")

        await eventually(says_why, "the job that chooses it says what it lacks")
        variables = {
            "AMQP_URL": urls["west"],
            "KUBECONFIG": str(control_plane.clusters["west"].kubeconfig),
            "SLICEBUS_CLUSTER": WEST,
            "SLICEBUS_SCHEDULERS": PROFILES,
        }
        done = await asyncio.to_thread(run_cli, "doctor", env=variables)
        assert "kube lacks workloads.scheduling.k8s.io/v1alpha2, podgroups.scheduling.k8s.io/v1alpha2" in done.stdout


KEPT: Manifest = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def older_schema() -> Manifest:
    """Of a RayCluster whose definition knows no `schedulingGroup`, as KubeRay's before Kubernetes had it."""

    def kept(**properties: Manifest) -> Manifest:
        return KEPT | {"properties": properties}

    each = {"type": "array", "items": KEPT}
    fields = {"containers": each, "schedulingGates": each, "tolerations": each, "nodeSelector": KEPT}
    template = {"type": "object", "properties": {"metadata": KEPT, "spec": {"type": "object", "properties": fields}}}
    group = kept(template=template)
    return kept(spec=kept(headGroupSpec=group, workerGroupSpecs={"type": "array", "items": group}), status=KEPT)


@asynccontextmanager
async def older_definition(east: KubeClient) -> AsyncIterator[None]:
    """East's RayClusters have that schema until the context is left."""
    name = RAYCLUSTERS.definition
    versions = (await east.get(CRDS, name))["spec"]["versions"]
    older = [each | {"schema": {"openAPIV3Schema": older_schema()}} for each in versions]

    async def has_group() -> bool:
        """Of a RayCluster that is nobody's."""
        probe = objects.ray_cluster("probe")
        probe["spec"]["headGroupSpec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "any"}
        made = await east.create(RAYCLUSTERS, probe)
        await east.delete(RAYCLUSTERS, "probe", NAMESPACE)
        return "schedulingGroup" in made["spec"]["headGroupSpec"]["template"]["spec"]

    async def prunes() -> bool:
        return not await has_group()

    await east.patch(CRDS, name, None, JsonPatch([{"op": "replace", "path": "/spec/versions", "value": older}]))
    try:
        await eventually(prunes, "the definition drops the field")
        yield
    finally:
        await east.patch(CRDS, name, None, JsonPatch([{"op": "replace", "path": "/spec/versions", "value": versions}]))
        await eventually(has_group, "the definition keeps the field")


async def test_a_definition_that_drops_the_group_is_told_and_starts_no_pod(world: World) -> None:
    await add_nodes(world, "big")
    async with older_definition(world.workers[EAST]):
        scenario = await submit(world, ray_cluster("pruned", workers=2))

        for client in (world.workers[EAST], world.manager):
            shown = await expect_waits(client, "pruned", "SchedulingPruned")
            assert "lacks schedulingGroup of its template: the definition of RayCluster" in shown.message
        pods = await scenario.pods()
        assert len(pods) == 3
        assert all(map(is_gated, pods))
        await world.manager.delete(RAYCLUSTERS, "pruned", NAMESPACE)
        await scenario.expect_nothing_left()
        await expect_nothing_made(world)


@pytest.mark.helm
async def test_the_rights_of_the_chart_are_enough(
    control_plane: ControlPlane,
    gated: Cluster,
    urls: dict[str, str],
    helm: Path,
    tmp_path: Path,
) -> None:
    """Also under its policies: what the agent makes, and what it removes."""
    values = {"cluster": "east", "managerUser": "manager", "schedulers": json.loads(PROFILES)}
    address = tmp_path / "east.env"
    address.write_text(f"url={urls['east']}\n")
    install(helm, "slicebus-agent", gated, values, address=address)
    kubeconfig = kubeconfig_of(gated, "slicebus-agent", tmp_path / "agent")
    try:
        async with scheduling(control_plane, urls, agent=kubeconfig, east=gated) as world:
            await add_nodes(world, "big")
            scenario = await submit(world, ray_cluster("rights", workers=2))
            await scenario.expect_pods(running=2)
            await stop(world, "HoldAndDrain")
            await expect_nothing_made(world)
            await stop(world, "None")
            await scenario.expect_pods(running=2)
    finally:
        uninstall(helm, "slicebus-agent", gated, values)
