"""A job that the manager has suspended: its pods go, and only when none is left the order is reported as applied."""

from typing import Any

import pytest

from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS, RAYJOBS, WORKLOADS
from slicebus.proto.messages import Applied, JobPhase, JobRef, Message, Status, Suspend
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from unit.agent.objects import REF, a_copy, a_job, a_pod, a_spec
from unit.agent.test_inbox import Manager, manager, standing
from unit.agent.test_reconciler import plain
from unit.agent.worker import Worker
from unit.kube.servers import NAMESPACE

__all__ = ["manager"]
SUSPEND = Suspend(job=REF, spec_version=2, workload="w1", reason="EvictedDueToPreempted", message="for another")
SUSPENDED = Applied(job=REF, workload="w1", spec_version=2)


async def grown(worker: Worker, manager: Manager, *pods: Any) -> None:
    """A job with one pod of its spec, that has grown to five, and these pods."""
    await manager.order(a_spec(1))
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"spec": {"parallelism": 5}}))
    for pod in pods:
        await worker.create(PODS, plain(pod))
    await worker.sync()
    await worker.reconcile_job()
    worker.published.clear()


async def reported(worker: Worker) -> list[Message]:
    """The messages of one reconcile, without statuses."""
    await worker.sync()
    return [message for message in await worker.reconcile_job() if not isinstance(message, Status)]


async def pod_goes(worker: Worker, name: str = "train-a") -> None:
    await worker.client.delete(PODS, name, NAMESPACE)


async def test_a_suspension_is_reported_when_the_last_pod_has_gone(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager, a_pod("train-a"), a_pod("train-b", gated=True), a_pod("train-c", phase="Succeeded"))
    await manager.order(SUSPEND)
    assert await standing(worker) == ("w1", 2, {}, True)
    assert await reported(worker) == []
    await pod_goes(worker)
    assert await reported(worker) == []
    await pod_goes(worker, "train-b")
    assert await reported(worker) == [SUSPENDED]
    assert await reported(worker) == []


async def test_a_job_that_cannot_be_suspended_is_left_as_it_is(
    worker: Worker, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grown(worker, manager, a_pod("train-a"))
    before = await standing(worker)
    monkeypatch.setattr(KINDS["Job"], "suspend_path", None)
    await manager.order(SUSPEND)
    assert await standing(worker) == before
    assert await reported(worker) == []


async def test_an_older_order_that_comes_again_reports_nothing(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager, a_pod("train-a"))
    await manager.order(SUSPEND)
    await manager.order(a_spec(1))
    assert worker.published == []


async def test_a_suspension_is_reported_again_after_a_restart_and_a_resync(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager, a_pod("train-a"))
    await manager.order(SUSPEND)
    await worker.sync()
    await pod_goes(worker)
    again = Worker(worker.client)
    await again.tombstones.load()
    assert await reported(again) == [SUSPENDED]
    assert await reported(worker) == [SUSPENDED]
    await manager.order(SUSPEND)
    assert await reported(worker) == [SUSPENDED]


@pytest.mark.parametrize("restarts", [False, True], ids=["the same agent", "the next agent"])
@pytest.mark.parametrize("over", [JobPhase.SUCCEEDED, JobPhase.FAILED])
async def test_a_job_that_has_ended_reports_its_end_instead(
    worker: Worker, manager: Manager, over: JobPhase, restarts: bool
) -> None:
    """Its pods may end after it, as a RayJob's do, and after the order. The manager would run it again elsewhere."""
    await grown(worker, manager, a_pod("train-a"))
    ended = a_job(over={JobPhase.SUCCEEDED: "Complete", JobPhase.FAILED: "Failed"}[over])["status"]
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"status": ended}), subresource="status")
    await worker.sync()
    await manager.order(SUSPEND)
    assert await worker.reconcile_job() == []
    await pod_goes(worker)
    agent = Worker(worker.client) if restarts else worker
    await agent.tombstones.load()
    await agent.sync()
    [report] = await agent.reconcile_job()
    assert isinstance(report, Status)
    assert (report.phase, report.spec_version) == (over, SUSPEND.spec_version)
    assert await reported(agent) == []


async def test_nobody_on_the_worker_resumes_a_suspended_job(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager)
    await manager.order(SUSPEND)
    await worker.sync()
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"spec": {"suspend": False, "parallelism": 3}}))
    assert await reported(worker) == [SUSPENDED]
    assert await standing(worker) == ("w1", 2, {}, True)


async def test_a_suspended_job_comes_back_with_the_counts_of_its_spec(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager)
    await manager.order(SUSPEND)
    assert await reported(worker) == [SUSPENDED]
    await manager.order(a_spec(3))
    job = await worker.job()
    assert job is not None
    assert await standing(worker) == ("w1", 3, {"main": 1}, False)
    assert job["spec"]["parallelism"] == 1
    assert await reported(worker) == []


async def test_the_report_names_the_evicted_slice(worker: Worker, manager: Manager) -> None:
    """The relabel may never have come: the slice that the manager suspends is the one that comes back."""
    await grown(worker, manager)
    await manager.order(Suspend(job=REF, spec_version=2, workload="w2"))
    assert await reported(worker) == [Applied(job=REF, workload="w2", spec_version=2)]
    await manager.order(a_spec(3, "w2"))
    assert await standing(worker) == ("w2", 3, {"main": 1}, False)
    assert await worker.copies() == ["w2"]


async def test_an_order_without_a_slice_means_the_present_one(worker: Worker, manager: Manager) -> None:
    await grown(worker, manager)
    await manager.order(Suspend(job=REF, spec_version=2, workload="w1"))
    assert await reported(worker) == [SUSPENDED]


@pytest.mark.parametrize("is_there", [False, True], ids=["nothing is there", "somebody else's is there"])
async def test_a_suspended_job_that_never_was_here_is_not_created_by_an_older_order(
    worker: Worker, manager: Manager, is_there: bool
) -> None:
    if is_there:
        worker.store.cache_of(JOBS).put(await worker.client.create(JOBS, plain(a_job(ours=False))))
    await manager.order(SUSPEND)
    found = [message for message in await worker.reconcile_job() if isinstance(message, Applied)]
    assert found == [Applied(job=REF, workload="", spec_version=2, deleted=True)]
    await manager.order(a_spec(1))
    assert (await worker.job() is not None) is is_there
    assert await worker.copies() == []
    assert manager.dead == []


async def test_a_suspended_job_that_somebody_has_deleted_is_reported_as_gone(worker: Worker, manager: Manager) -> None:
    await worker.create(JOBS, plain(a_job()))
    uid = (await worker.job() or {})["metadata"]["uid"]
    await worker.create(WORKLOADS, plain(a_copy(linked=uid)))
    await worker.client.delete(JOBS, "train", NAMESPACE)
    await worker.sync()
    await manager.order(SUSPEND)
    await worker.sync()
    [gone] = [message for message in await worker.reconcile_job() if isinstance(message, Status)]
    assert gone.phase is JobPhase.GONE


async def test_the_pods_of_a_rayjob_outlive_its_cluster(worker: Worker) -> None:
    """KubeRay clears the name of the cluster before its pods have gone."""
    ref = JobRef("ray.io/v1", "RayJob", "team", "train", "manager-uid")
    at = annotations.job_metadata(ref, workload="w1", version=2, grant={})
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "train", "namespace": "team", **at},
        "spec": {"suspend": True, "entrypoint": "true", "rayClusterSpec": {}},
    }
    pod = a_pod("train-x7k2p-head")
    pod["metadata"]["labels"] = {
        kueue.POD_SET_LABEL: "head",
        "ray.io/cluster": "train-x7k2p",
        api_names.RAYJOB_LABEL: "train",
        api_names.MANAGER_UID_LABEL: ref.uid,
    }
    worker.store.cache_of(RAYJOBS).put(job | {"metadata": job["metadata"] | {"uid": "u", "resourceVersion": "1"}})
    worker.store.cache_of(PODS).put(pod)
    key = JobKey("RayJob", "team", "train")
    await worker.reconciler.reconcile_job(key)
    assert not [message for message in worker.published if isinstance(message, Applied)]
    woken: list[JobKey] = []
    worker.store.on_change(woken.append)
    woken.clear()
    worker.store.cache_of(PODS).remove(pod)
    assert woken == [key]
    await worker.reconciler.reconcile_job(key)
    assert [message for message in worker.published if isinstance(message, Applied)] == [
        Applied(job=ref, workload="w1", spec_version=2)
    ]
