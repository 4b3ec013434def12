"""A finalizer of somebody else keeps no quota: a deleted or ended job's slice ends when no pod of it is left."""

import pytest

from slicebus.agent.act import inbox
from slicebus.ambient.lasting_failures import Patience
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, JOBS, PODS, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.decide.messages import message_handlers
from support.finalizers import hold, let_go
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.waiting import eventually


async def running(world: World, kind: str = "Job") -> Scenario:
    await set_quota(world, 10)
    scenario = Scenario(world, kind, "kept")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await eventually(lambda: is_in_use(world), "the queue shows what the job uses")
    return scenario


async def is_in_use(world: World) -> bool:
    """The queue's status follows an admission after a moment."""
    queue = await world.manager.get(CLUSTERQUEUES, objects.CLUSTER_QUEUE)
    flavors = queue.get("status", {}).get("flavorsUsage") or []
    return any(entry["total"] != "0" for flavor in flavors for entry in flavor["resources"])


@pytest.mark.real
async def test_a_job_that_is_deleted_on_the_manager(world: World) -> None:
    scenario = await running(world)
    await hold(world.manager, JOBS, "kept")
    await world.manager.delete(JOBS, "kept", NAMESPACE)
    await expect_used(world, "0")
    await let_go(world.manager, JOBS, "kept")
    await scenario.expect_nothing_left()


@pytest.mark.real
async def test_a_job_whose_copy_stays(world: World) -> None:
    scenario = await running(world)
    worker = await scenario.worker()
    await hold(worker, JOBS, "kept")
    await world.manager.delete(JOBS, "kept", NAMESPACE)
    await expect_used(world, "0")
    assert (await worker.list(PODS, namespace=NAMESPACE)).items == []
    await let_go(worker, JOBS, "kept")
    await scenario.expect_nothing_left()


async def test_a_ray_cluster_whose_copy_stays(world: World) -> None:
    scenario = await running(world, "RayCluster")
    worker = await scenario.worker()
    await hold(worker, scenario.resource, "kept")
    await world.manager.delete(scenario.resource, "kept", NAMESPACE)
    await expect_used(world, "0")
    await let_go(worker, scenario.resource, "kept")
    await scenario.expect_nothing_left()


@pytest.mark.real
async def test_a_copy_that_somebody_deletes(world: World) -> None:
    """Its pods go as their user deletes it in the foreground."""
    scenario = await running(world)
    worker = await scenario.worker()
    await hold(worker, JOBS, "kept")
    await worker.delete(JOBS, "kept", NAMESPACE, propagation="Foreground")
    await expect_used(world, "0")
    await let_go(worker, JOBS, "kept")
    await scenario.expect_nothing_left()


async def test_a_job_that_ends(world: World) -> None:
    scenario = await running(world)
    worker = await scenario.worker()
    await hold(worker, JOBS, "kept")
    await worker.patch(JOBS, "kept", NAMESPACE, MergePatch({"spec": {"activeDeadlineSeconds": 1}}))
    status: dict[str, object] = dict.fromkeys(("active", "ready", "terminating"))
    status["conditions"] = [{"type": name, "status": "True"} for name in ("FailureTarget", "Failed")]
    for pod in await scenario.pods():
        body = MergePatch({"status": {"phase": "Failed", "conditions": []}})
        await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")
    await worker.patch(JOBS, "kept", NAMESPACE, MergePatch({"status": status}), subresource="status")
    await expect_used(world, "0")


async def test_a_workload_that_is_deleted(world: World) -> None:
    """The job gets another slice, and runs on that."""
    scenario = await running(world)
    [slice] = await scenario.expect_unfinished(1)
    await hold(world.manager, WORKLOADS, slice.name)
    await world.manager.delete(WORKLOADS, slice.name, NAMESPACE)

    async def another() -> bool:
        unfinished = [one.name for one in await scenario.chain() if not one.finished]
        return len(unfinished) == 1 and unfinished != [slice.name]

    await eventually(another, "the job has another slice")
    await scenario.expect_pods(running=1)
    await expect_used(world, "1")


@pytest.fixture
def impatient_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents that are about to start tell soon what an order waits for."""
    monkeypatch.setattr(inbox, "MESSAGE_PATIENCE", Patience(webhook_s=5.0, server_s=0.5, conflict_s=0.5))


@pytest.mark.usefixtures("impatient_agents")
async def test_a_job_of_the_name_is_told_what_it_waits_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else decides when the copy before it goes: its quota is held, and nothing runs."""
    monkeypatch.setattr(message_handlers, "_RETRY_REFUSED_S", 1.0)
    scenario = await running(world)
    worker = await scenario.worker()
    await hold(worker, JOBS, "kept")
    await world.manager.delete(JOBS, "kept", NAMESPACE)
    await expect_used(world, "0")
    for cluster, client in world.workers.items():
        if client is not worker:
            await world.manager.patch(WORKERCLUSTERS, cluster, None, MergePatch({"spec": {"cordoned": True}}))
    await eventually(lambda: is_gone(world), "the first job is gone")
    await scenario.submit()
    said = await scenario.expect_event("Conflict", on=world.manager)
    assert "an earlier Job/team-a/kept is still there" in said
    await let_go(worker, JOBS, "kept")
    await scenario.expect_pods(running=1)


async def is_gone(world: World) -> bool:
    return not (await world.manager.list(JOBS, namespace=NAMESPACE)).items
