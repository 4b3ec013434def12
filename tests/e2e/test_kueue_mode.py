"""A manager beside a real Kueue: where `KUEUE_BINARY` and `KUEUE_CRDS` name one (docs/kueue-mode.md)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from slicebus.cli.cluster.options import ClusterAccess
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, real_world
from slicebus.cli.doctor.checks import checks, needs_of
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import (
    ADMISSIONCHECKS,
    CLUSTERQUEUES,
    EVENTS,
    JOBS,
    PODS,
    RAYCLUSTERS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
)
from slicebus.manager.state.requirements import NOT_MANAGED
from slicebus.manager.state.settings import AdmissionModeName, ManagerDecisionSettings
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, journal_queues
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import ACCEPTED_CONDITION
from slicebus.slices.api.kueue import Condition, FinishedReason
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice
from support import roles
from support.controlplane import ControlPlane
from support.fleet import QuotaWatch
from support.installation import run_cli
from support.kueue import Kueue, binary_and_definitions
from support.recordings import exported
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.servers import definitions as definitions_here
from support.tools import tools
from support.waiting import eventually
from support.wiping import wipe, wipe_resource

pytestmark = [pytest.mark.controlplane]
Manifest = dict[str, Any]
CHECK = "slicebus"
BESIDE_KUEUE = ManagerDecisionSettings(admission=AdmissionModeName.KUEUE)
WAITS = ("Pending", "ExceedsMaxQuota")
"""What Kueue says of a slice past the quota; the second where its gate UnadmittedWorkloadsObservability is on."""
STRATEGY = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Clusters of their own: Kueue's webhooks would stand in the way of other tests."""
    binary, definitions = binary_and_definitions()
    folder = tmp_path_factory.mktemp("beside-kueue")
    made = ControlPlane(folder, tools())
    try:
        made.start()
        manager = made.clusters["manager"]
        for path in definitions_here():
            if "ray" in Path(path).name:  # Kueue brings its own
                manager.kubectl("create", "--validate=false", "-f", path)
        controller = Kueue(manager, folder / "kueue", binary=binary, definitions=definitions)
        controller.install()
        controller.start()
        yield made
        controller.server.kill()
    finally:
        made.stop()


@pytest.fixture
def urls(broker_name: str) -> dict[str, str]:
    """Each role's broker address."""
    return {role: f"memory://{role}@{broker_name}" for role in ("manager", "east", "west")}


@pytest.fixture
async def clusters(plane: ControlPlane) -> AsyncIterator[World]:
    """A queue whose check is ours, and no roles yet."""
    kubeconfigs = {ClusterName(name): cluster.kubeconfig for name, cluster in plane.clusters.items()}
    manager = kubeconfigs.pop(ClusterName("manager"))
    async with real_world(manager, kubeconfigs, ray_stand_in=True) as made:
        check = {"apiVersion": ADMISSIONCHECKS.api_version, "kind": ADMISSIONCHECKS.kind, "metadata": {"name": CHECK}}
        await made.manager.create(ADMISSIONCHECKS, check | {"spec": {"controllerName": api_names.CHECK_CONTROLLER}})
        for resource, manifest in objects.quota(10):
            spec = STRATEGY if resource == CLUSTERQUEUES else {}
            await made.ensure(made.manager, resource, manifest | {"spec": manifest["spec"] | spec})
        try:
            yield made
        finally:
            await wipe(made.manager, *made.workers.values())
            await wipe_resource(made.manager, ADMISSIONCHECKS, None)


@asynccontextmanager
async def agents(world: World, urls: dict[str, str]) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for name in world.workers:
            await stack.enter_async_context(roles.agent(world, urls, name))
        yield


@pytest.fixture
async def world(clusters: World, urls: dict[str, str]) -> AsyncIterator[World]:
    """A manager in kueue mode and two agents."""
    async with roles.manager(clusters, urls, decisions=BESIDE_KUEUE), agents(clusters, urls):
        yield clusters


async def test_a_job_grows_and_shrinks(world: World) -> None:
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [first] = await scenario.expect_unfinished(1)
    assert await check_of(world, first) == ("Ready", f"Worker cluster {await scenario.cluster()} holds it")
    assert first.condition(Condition.ADMITTED)

    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    [second] = await scenario.expect_unfinished(5)
    assert second.replaces == first.key
    [old] = [slice for slice in await scenario.chain() if slice.finished]
    assert old.conditions[Condition.FINISHED]["reason"] == FinishedReason.SLICE_REPLACED
    assert await spec_counts(scenario) == 5

    await scenario.scale(3)
    [shrunk] = await scenario.expect_unfinished(3)
    assert shrunk.name == second.name
    await scenario.expect_pods(running=3)
    await eventually(lambda: reserves(world, cpu="3"), "quota for 3 is taken")


async def test_a_resize_waits_for_quota(world: World) -> None:
    await set_quota(world, 2)
    scenario = Scenario(world, "Job", "wide")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(5)
    await scenario.expect_pods(running=1, gated=4)
    [holder, pending] = await scenario.expect_unfinished(1, 5)
    assert pending.replaces == holder.key
    told = await scenario.expect_event(*WAITS, on=await scenario.worker())
    assert "insufficient" in told
    assert (await check_of(world, pending))[0] in ("", "Pending")
    await set_quota(world, 5)
    await scenario.expect_pods(running=5)


async def test_the_end_of_a_job_gives_its_quota_back(world: World) -> None:
    scenario = Scenario(world, "Job", "short")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await eventually(lambda: reserves(world, cpu="1"), "quota for 1 is taken")
    worker = await scenario.worker()
    await worker.patch(JOBS, scenario.name, NAMESPACE, MergePatch({"spec": {"activeDeadlineSeconds": 1}}))

    async def over() -> bool:
        return all(slice.finished for slice in await scenario.chain())

    await eventually(over, "the slice is finished")
    [slice] = await scenario.chain()
    assert slice.conditions[Condition.FINISHED]["reason"] == FinishedReason.FAILED
    await eventually(lambda: reserves(world, cpu="0"), "the quota is back")


async def test_a_deleted_job_leaves_nothing(world: World) -> None:
    scenario = Scenario(world, "Job", "gone")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await world.manager.delete(JOBS, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()


@pytest.mark.parametrize("kind", ["Job", "RayCluster"])
async def test_a_stopped_queue_takes_the_job_away_and_a_started_one_brings_it_back(world: World, kind: str) -> None:
    """With the size of its own spec, and in the same chain."""
    scenario = await submitted(world, kind, "moved")
    await scenario.expect_pods(running=1)
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    chain = (await scenario.expect_unfinished(4))[0].chain
    worker = await scenario.worker()
    await eventually(lambda: reserves(world, cpu={"Job": "4", "RayCluster": "4500m"}[kind]), "the quota is taken")

    await stop_policy(world, "HoldAndDrain")
    await eventually(lambda: reserves(world, cpu="0"), "the quota is back")
    left = [pod for pod in (await worker.list(PODS, namespace=NAMESPACE)).items if not is_gated(pod)]
    assert [pod["metadata"]["name"] for pod in left if "deletionTimestamp" not in pod["metadata"]] == []

    await stop_policy(world, "None")
    await scenario.expect_pods(running=1)
    [again] = await scenario.expect_unfinished(1)
    assert again.chain == chain
    await scenario.scale(2)
    await scenario.expect_pods(running=2)


async def test_a_ray_cluster_autoscales_on_the_worker_only(world: World) -> None:
    scenario = await submitted(world, "RayCluster", "ray")
    await scenario.expect_pods(running=1)
    spec = (await scenario.worker_job())["spec"]
    own = (await world.manager.get(RAYCLUSTERS, scenario.name, NAMESPACE))["spec"]
    assert (spec["enableInTreeAutoscaling"], own.get("enableInTreeAutoscaling", False)) == (True, False)
    await scenario.scale(5)
    await scenario.expect_pods(running=5)
    await scenario.scale(3)
    await scenario.expect_unfinished(3)
    await eventually(lambda: reserves(world, cpu="3500m"), "quota for head and 3 workers is taken")


async def test_a_ray_job_grows(world: World) -> None:
    scenario = await submitted(world, "RayJob", "rayjob")
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)


async def test_nothing_runs_before_every_check_is_ready(world: World) -> None:
    other = {"apiVersion": ADMISSIONCHECKS.api_version, "kind": ADMISSIONCHECKS.kind, "metadata": {"name": "budget"}}
    await world.manager.create(ADMISSIONCHECKS, other | {"spec": {"controllerName": "example.com/budget"}})
    active = MergePatch({"status": {"conditions": [condition("Active")]}})
    await world.manager.patch(ADMISSIONCHECKS, "budget", None, active, subresource="status")
    checks = [{"name": CHECK}, {"name": "budget"}]
    spec = {"admissionChecksStrategy": {"admissionChecks": checks}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))
    scenario = Scenario(world, "Job", "both")
    await scenario.submit()
    await scenario.expect_pods(running=0, gated=1)
    [slice] = await scenario.expect_unfinished(1)
    await eventually(lambda: is_ready(world, slice), "our check is ready")
    await scenario.expect_pods(running=0, gated=1)

    workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
    entries = [entry | {"state": "Ready"} for entry in workload["status"]["admissionChecks"]]
    body = {"metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]}}
    patch = MergePatch(body | {"status": {"admissionChecks": entries}})
    await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, patch, subresource="status")
    await scenario.expect_pods(running=1)


async def test_a_job_that_is_not_for_workers_is_rejected(world: World) -> None:
    job = objects.job("local")
    del job["spec"]["managedBy"]
    await world.manager.create(JOBS, job)
    scenario = Scenario(world, "Job", "local")
    [slice] = await scenario.expect_unfinished(1)

    async def evicted() -> str:
        [slice] = await scenario.chain()
        return str(slice.conditions.get(Condition.EVICTED, {}).get("message", ""))

    assert "spec.managedBy" in await eventually(evicted, "the workload is deactivated")
    assert slice.cluster is None
    told = (await world.manager.get(JOBS, "local", NAMESPACE))["status"]["conditions"]
    assert [each["reason"] for each in told if each["type"] == ACCEPTED_CONDITION] == [NOT_MANAGED]


async def test_a_job_that_its_user_suspends_is_active_until_its_pods_are_gone_and_runs_again(world: World) -> None:
    scenario = Scenario(world, "Job", "paused")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    uid = (await scenario.worker_job())["metadata"]["uid"]

    async def stopped() -> bool:
        """Kueue may have resumed it before anybody looks."""
        await world.manager.patch(JOBS, scenario.name, NAMESPACE, MergePatch({"spec": {"suspend": True}}))
        events = (await world.workers[await scenario.cluster()].list(EVENTS)).items
        return any(event["reason"] == "Suspended" for event in events)

    await eventually(stopped, "its worker is told")
    await scenario.expect_pods(running=1)
    assert not (await world.manager.get(JOBS, scenario.name, NAMESPACE))["spec"]["suspend"]
    assert (await scenario.worker_job())["metadata"]["uid"] == uid
    await scenario.expect_unfinished(1)


async def test_a_size_that_is_changed_on_the_managers_job_goes_to_the_worker(world: World) -> None:
    scenario = Scenario(world, "Job", "steered")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await world.manager.patch(JOBS, scenario.name, NAMESPACE, MergePatch({"spec": {"parallelism": 3}}))
    await scenario.expect_pods(running=3)
    assert (await scenario.worker_job())["spec"]["parallelism"] == 3


async def test_a_wish_that_is_taken_back_while_it_waits_leaves_one_slice(world: World) -> None:
    await set_quota(world, 2)
    scenario = Scenario(world, "Job", "fickle")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(5)
    await scenario.expect_unfinished(1, 5)
    await scenario.expect_event(*WAITS, on=await scenario.worker())
    await scenario.scale(2)
    await scenario.expect_unfinished(2)
    await scenario.expect_pods(running=2)


async def test_preemption_takes_the_whole_job_and_never_more_pods_run_than_there_is_quota_for(world: World) -> None:
    preemption = {"withinClusterQueue": "LowerPriority"}
    await set_quota(world, 5)
    await world.manager.patch(
        CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": {"preemption": preemption}})
    )
    urgent = {"apiVersion": WORKLOADPRIORITYCLASSES.api_version, "kind": WORKLOADPRIORITYCLASSES.kind}
    await world.manager.create(WORKLOADPRIORITYCLASSES, urgent | {"metadata": {"name": "urgent"}, "value": 100})
    watch = QuotaWatch(world, 5)
    async with watch.watching():
        low = Scenario(world, "Job", "low")
        await low.submit()
        await low.expect_pods(running=1)
        await low.scale(4)
        await low.expect_pods(running=4)
        manifest = objects.job("high", parallelism=3)
        manifest["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "urgent"
        await world.manager.create(JOBS, manifest)
        high = Scenario(world, "Job", "high")
        await high.expect_pods(running=3)
        # Evicted as a whole, the other one comes back at the size of its spec.
        await low.expect_pods(running=1)
    assert watch.looks > 3
    assert not watch.violations


async def test_a_job_whose_cluster_leaves_the_fleet_goes_elsewhere(world: World) -> None:
    scenario = Scenario(world, "Job", "homeless")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    left = await scenario.cluster()
    await world.manager.delete(WORKERCLUSTERS, left)
    await eventually(lambda: is_elsewhere(scenario, left), "the job has another cluster")
    await scenario.expect_pods(running=1)


async def test_a_drained_clusters_job_goes_elsewhere_at_the_size_of_its_spec(world: World) -> None:
    scenario = Scenario(world, "Job", "drained")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    left = await scenario.cluster()
    await world.manager.patch(WORKERCLUSTERS, left, None, MergePatch({"spec": {"drain": True}}))
    await eventually(lambda: is_elsewhere(scenario, left), "the job has another cluster")
    await scenario.expect_pods(running=1)


async def test_a_lost_clusters_job_goes_elsewhere_and_its_copy_is_removed_when_it_is_back(
    clusters: World, urls: dict[str, str]
) -> None:
    east, west = ClusterName("east"), ClusterName("west")
    short = {"cluster_lost_s": 2.0, "decisions": structs.replace(BESIDE_KUEUE, cluster_lost_requeue_s=6.0)}
    scenario = Scenario(clusters, "Job", "lost")
    async with roles.manager(clusters, urls, **short), roles.agent(clusters, urls, west):
        async with roles.agent(clusters, urls, east):
            await clusters.manager.patch(WORKERCLUSTERS, west, None, MergePatch({"spec": {"cordoned": True}}))
            await scenario.submit()
            await scenario.expect_pods(running=1)
            assert await scenario.cluster() == east
            await clusters.manager.patch(WORKERCLUSTERS, west, None, MergePatch({"spec": {"cordoned": False}}))
            await eventually(lambda: keeps_a_fence(clusters, east), "east keeps a fence")
        await eventually(lambda: is_elsewhere(scenario, east), "the job has another cluster")
        await scenario.expect_pods(running=1)
        assert await clusters.workers[east].get(JOBS, scenario.name, NAMESPACE), "nobody was there to remove it"
        async with roles.agent(clusters, urls, east):
            await eventually(lambda: is_absent(clusters, east, scenario), "the copy is removed")
            assert await scenario.cluster() == west


async def is_elsewhere(scenario: Scenario, left: str) -> bool:
    return any(slice.cluster not in (None, "", left) for slice in await scenario.chain())


async def keeps_a_fence(world: World, name: ClusterName) -> bool:
    return "fenceSeconds" in (await world.manager.get(WORKERCLUSTERS, name)).get("status", {})


async def is_absent(world: World, name: ClusterName, scenario: Scenario) -> bool:
    return scenario.name not in {job["metadata"]["name"] for job in (await world.workers[name].list(JOBS)).items}


async def test_doctor_finds_nothing_to_do(world: World, plane: ControlPlane, broker_name: str) -> None:
    async def active() -> bool:
        check = await world.manager.get(ADMISSIONCHECKS, CHECK)
        return any(entry["status"] == "True" for entry in check.get("status", {}).get("conditions", ()))

    await eventually(active, "our check is active")
    journal = journal_queues(max_age=JOURNAL_MAX_AGE, max_bytes=JOURNAL_MAX_BYTES)
    needs = needs_of(None, objects.SYSTEM_NAMESPACE, journal, AdmissionModeName.KUEUE)
    access = ClusterAccess(kubeconfig=str(plane.clusters["manager"].kubeconfig))
    url = f"memory://manager@{broker_name}"
    found = [check async for check in checks(needs, cluster=None, amqp_url=url, access=access)]
    assert [check for check in found if not check.ok] == []
    assert any(check.subject == f"check {CHECK}" for check in found)


async def test_what_happens_while_the_manager_is_away_is_made_good(clusters: World, urls: dict[str, str]) -> None:
    scenario = Scenario(clusters, "Job", "steady")

    def manager(number: int) -> AbstractAsyncContextManager[object]:
        return roles.manager(clusters, urls, decisions=BESIDE_KUEUE, identity=f"manager-{number}")

    async with AsyncExitStack() as stack:
        async with manager(1):
            # They wait for what the first manager makes on the broker.
            await stack.enter_async_context(agents(clusters, urls))
            await scenario.submit()
            await scenario.expect_pods(running=1)
        await scenario.scale(4)
        await scenario.expect_pods(running=1, gated=3)
        async with manager(2):
            await scenario.expect_pods(running=4)
        await eventually(lambda: reserves(clusters, cpu="4"), "the quota is taken")
        await stop_policy(clusters, "HoldAndDrain")
        async with manager(3):
            await eventually(lambda: reserves(clusters, cpu="0"), "the quota is back")
            await stop_policy(clusters, "None")
            await scenario.expect_pods(running=1)


async def test_the_decisions_are_made_the_same_from_their_recording(
    world: World, urls: dict[str, str], tmp_path: Path
) -> None:
    scenario = Scenario(world, "Job", "recorded")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await world.manager.delete(JOBS, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()
    file = await exported(urls["manager"], tmp_path / "beside-kueue.jsonl")
    replayed = await asyncio.to_thread(run_cli, "replay", str(file), env={})
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "none differs" in replayed.stdout


async def submitted(world: World, kind: str, name: str) -> Scenario:
    """A job of which the manager's own copy has no autoscaler."""
    manifest = elastic(kind, name)
    if kind != "Job":
        spec = manifest["spec"].get("rayClusterSpec", manifest["spec"])
        del spec["enableInTreeAutoscaling"]
        manifest["spec"] |= {"submissionMode": "K8sJobMode"} if kind == "RayJob" else {}
        manifest["metadata"]["annotations"][api_names.IN_TREE_AUTOSCALING_ANNOTATION] = "true"
    scenario = Scenario(world, kind, name)
    await world.manager.create(scenario.resource, manifest)
    return scenario


async def check_of(world: World, slice: Slice) -> tuple[str, str]:
    """State and message of our check on a slice; empty before there is any."""
    workload = await world.manager.get(WORKLOADS, slice.name, NAMESPACE)
    entries = workload.get("status", {}).get("admissionChecks", [])
    return next(((entry["state"], entry["message"]) for entry in entries if entry["name"] == CHECK), ("", ""))


async def is_ready(world: World, slice: Slice) -> bool:
    return (await check_of(world, slice))[0] == "Ready"


async def spec_counts(scenario: Scenario) -> int:
    """The parallelism of the manager's own Job."""
    job = await scenario.world.manager.get(JOBS, scenario.name, NAMESPACE)
    count: int = job["spec"]["parallelism"]
    return count


async def reserves(world: World, *, cpu: str) -> bool:
    """Whether Kueue says that so much is taken: up to a second after it is."""
    queue = await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)
    flavors = queue.get("status", {}).get("flavorsReservation", [])
    taken = {entry["name"]: entry["total"] for flavor in flavors for entry in flavor["resources"]}
    return bool(taken.get("cpu") == cpu)


async def stop_policy(world: World, policy: str) -> None:
    patch = MergePatch({"spec": {"stopPolicy": policy}})
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, patch)


def condition(type: str) -> Manifest:
    said = {"type": type, "status": "True", "reason": "Test", "message": "As the test wants it"}
    return said | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
