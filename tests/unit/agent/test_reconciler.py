"""Reconciling a job on an in-process API server: what is published, what is written, and what is left alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from slicebus.agent.decide import catalog
from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import triage
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, Tombstone
from slicebus.decisions.commands import Command, Patch, PatchEach
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS, WORKLOADS
from slicebus.proto.errors import ConflictError, ForbiddenError, UnavailableError
from slicebus.proto.messages import Applied, JobPhase, JobRef, RequestKey, ScaleRequest, Status
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import is_gated
from unit.agent.objects import KEY, REF, a_copy, a_job, a_pod, an_end
from unit.agent.worker import Worker, types
from unit.kube.loop_time import LoopTime
from unit.kube.servers import NAMESPACE

OVER = an_end() | {"succeeded": 1}
NEXT = JobRef("batch/v1", "Job", "team", "train", "next-uid")


def plain(manifest: Any) -> Any:
    """A manifest as somebody creates it."""
    dropped = ("uid", "resourceVersion", "generation")
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in dropped}
    return manifest | {"metadata": metadata}


async def given_job(worker: Worker, **how: Any) -> Any:
    return await worker.create(JOBS, plain(a_job(**how)))


async def given_pods(worker: Worker, *pods: Any) -> None:
    """Make pods of a job, and the copy of its slice, by which gated ones may start."""
    job = await worker.job()
    if job is not None and not await worker.copies():
        await worker.create(WORKLOADS, plain(a_copy(linked=job["metadata"]["uid"])))
    for pod in pods:
        await worker.create(PODS, plain(pod))


async def patch_job(worker: Worker, body: Any, subresource: str = "") -> None:
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch(body), subresource=subresource)
    await worker.sync()


async def delete_job(worker: Worker) -> None:
    """The watch brings the job's last state."""
    job = await worker.job()
    await worker.client.delete(JOBS, "train", NAMESPACE)
    if job is not None:
        worker.store.cache_of(JOBS).remove(job, is_final=True)
    await worker.sync()


async def lose_job(worker: Worker) -> None:
    """The job is missing from the next list: the watch had lost its place."""
    await worker.client.delete(JOBS, "train", NAMESPACE)
    await worker.sync()


async def ask_again(worker: Worker, *jobs: JobRef) -> None:
    """The manager asks for these jobs' statuses."""
    await worker.executor.run(triage.report_again(worker.store, jobs or [REF]))


# --- requests -------------------------------------------------------------------------------------------------------


async def test_an_unchanged_job_is_reported_once_and_requests_nothing(worker: Worker) -> None:
    await given_job(worker)
    assert types(await worker.reconcile_job()) == ["status"]
    assert await worker.reconcile_job() == []
    await worker.sync()
    assert await worker.reconcile_job() == []


async def test_a_resize_is_requested_once_and_once_more_after_a_restart(worker: Worker) -> None:
    await given_job(worker)
    await worker.reconcile_job()
    await patch_job(worker, {"spec": {"parallelism": 5}})
    [request] = [message for message in await worker.reconcile_job() if isinstance(message, ScaleRequest)]
    assert (request.granted, request.wanted) == ({"main": 1}, {"main": 5})
    await worker.sync()
    assert await worker.reconcile_job() == []
    again = Worker(worker.client)
    await again.tombstones.load()
    await again.sync()
    assert types(await again.reconcile_job()) == ["scale-request", "status"]
    assert await again.reconcile_job() == []


async def test_a_request_that_the_manager_does_not_know_is_published_until_it_is_answered(worker: Worker) -> None:
    await given_job(worker)
    await patch_job(worker, {"spec": {"parallelism": 5}})
    [request] = [message for message in await worker.reconcile_job() if isinstance(message, ScaleRequest)]
    await ask_again(worker)
    assert [message for message in await worker.reconcile_job() if isinstance(message, ScaleRequest)] == [request]
    assert await worker.reconcile_job() == []
    answered = annotations.PendingRequests("worker-uid", request.worker_generation, {"main": 5})
    await patch_job(worker, {"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: answered.to_annotation()}}})
    await ask_again(worker)
    assert types(await worker.reconcile_job()) == ["status"]


async def test_a_request_that_was_not_confirmed_is_published_again(worker: Worker) -> None:
    await given_job(worker, parallelism=5)
    worker.refuses = UnavailableError("no broker")
    with pytest.raises(UnavailableError):
        await worker.reconcile_job()
    worker.refuses = None
    assert types(await worker.reconcile_job()) == ["scale-request", "status"]


async def test_what_a_reconcile_has_written_itself_leads_to_no_other(worker: Worker) -> None:
    await given_job(worker, parallelism=5, granted=3, requested=None)
    await given_pods(worker, *(a_pod(f"p{number}", gated=True, others=()) for number in range(5)))
    requeued: list[JobKey] = []

    async def reconcile_job(key: JobKey) -> None:
        requeued.append(key)
        await worker.reconciler.reconcile_job(key)

    worker.store.on_change(worker.queue.add)
    running = asyncio.create_task(worker.queue.run(reconcile_job, workers=1))
    while not worker.queue.idle:  # noqa: ASYNC110 the queue has no need for an event that only tests would wait for
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert types(worker.published) == ["scale-request", "status"]
    assert await gated(worker) == ["p3", "p4"]
    assert requeued == [KEY]


# --- gates ----------------------------------------------------------------------------------------------------------


async def gated(worker: Worker) -> list[str]:
    pods = (await worker.client.list(PODS, namespace=NAMESPACE)).items
    return sorted(pod["metadata"]["name"] for pod in pods if is_gated(pod))


async def test_without_its_copy_a_job_starts_no_pod_and_asks_for_it(worker: Worker, loop_time: LoopTime) -> None:
    """Somebody has deleted it. The inventory shows the manager that it is missing."""
    await given_job(worker, granted=2)
    await given_pods(worker, a_pod("a", gated=True))
    await worker.client.delete(WORKLOADS, "w1", NAMESPACE)
    await worker.sync()
    for _ in range(2):
        await worker.reconcile_job()
        await worker.sync()
    assert [is_gated(pod) for pod in (await worker.client.list(PODS, namespace=NAMESPACE)).items] == [True]
    assert worker.inventory_requests == 1

    # A manager that was away may have read newer reports before that inventory.
    await loop_time.advance(20.0)
    assert not worker.queue.idle
    await worker.reconcile_job()
    assert worker.inventory_requests == 2

    await worker.create(WORKLOADS, plain(a_copy()))
    await worker.reconcile_job()
    assert [is_gated(pod) for pod in (await worker.client.list(PODS, namespace=NAMESPACE)).items] == [False]
    await worker.client.delete(WORKLOADS, "w1", NAMESPACE)
    await worker.sync()
    await worker.reconcile_job()
    assert worker.inventory_requests == 3


async def test_pods_start_up_to_what_is_granted_and_no_further(worker: Worker) -> None:
    await given_job(worker, parallelism=5, granted=3, requested=None)
    await given_pods(worker, *(a_pod(f"p{number}", gated=True) for number in range(5)))
    await worker.reconcile_job()
    assert await gated(worker) == ["p3", "p4"]
    await worker.reconcile_job()
    assert await gated(worker) == ["p3", "p4"]


async def test_a_new_agent_makes_what_the_one_before_has_under_way_conflict(worker: Worker) -> None:
    await given_job(worker, parallelism=2, granted=1)
    await given_pods(worker, a_pod("b", gated=True))
    [stale] = reconcile.ungate(worker.store.view(KEY))
    await given_pods(worker, a_pod("a", gated=True))
    successor = Worker(worker.client)
    await successor.sync()
    await successor.reconciler.take_over_pods(epoch=4)
    await successor.reconcile_job()
    assert await gated(worker) == ["b"]
    with pytest.raises(ConflictError):
        await worker.executor.run([stale])
    assert await gated(worker) == ["b"]


async def test_pods_are_taken_over_once_and_only_within_the_grant(worker: Worker) -> None:
    await given_job(worker, parallelism=2, granted=1)
    await given_pods(worker, a_pod("a", gated=True), a_pod("b", gated=True))
    await worker.client.patch(PODS, "a", NAMESPACE, MergePatch({"metadata": {"labels": {"x": "y"}}}))
    await worker.reconciler.take_over_pods(epoch=4)
    pods = (await worker.client.list(PODS, namespace=NAMESPACE)).items
    assert [annotations.annotation(pod, api_names.EPOCH_ANNOTATION) for pod in pods] == ["4", "4"], (
        "also where another had written"
    )
    await worker.reconciler.take_over_pods(epoch=4)
    assert (await worker.client.list(PODS, namespace=NAMESPACE)).items == pods
    await worker.reconcile_job()
    await worker.reconciler.take_over_pods(epoch=5)
    left = await worker.client.get(PODS, "b", NAMESPACE)
    assert (is_gated(left), annotations.annotation(left, api_names.EPOCH_ANNOTATION)) == (True, "4")


async def test_pods_that_a_policy_keeps_from_being_taken_over_hold_up_their_job_alone(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_job(worker, parallelism=2, granted=2)
    await given_pods(worker, a_pod("a", gated=True))
    run, refusal = worker.executor.run, ForbiddenError('pods "a" is forbidden: denied by a policy')

    async def refused(commands: Sequence[Command], **how: Any) -> bool:
        if any(isinstance(command, PatchEach) for command in commands):
            raise refusal
        return await run(commands, **how)

    monkeypatch.setattr(worker.executor, "run", refused)
    await worker.reconciler.take_over_pods(epoch=4)
    with pytest.raises(ForbiddenError):
        await worker.reconcile_job()
    monkeypatch.setattr(worker.executor, "run", run)
    await worker.reconcile_job()
    pod = await worker.client.get(PODS, "a", NAMESPACE)
    assert (is_gated(pod), annotations.epoch(pod)) == (False, "4")
    await given_pods(worker, a_pod("b", gated=True))
    refusal = ForbiddenError('User "agent" cannot patch resource "pods" in API group ""')
    monkeypatch.setattr(worker.executor, "run", refused)
    with pytest.raises(ForbiddenError, match="cannot patch"):
        await worker.reconciler.take_over_pods(epoch=5)


async def test_a_pod_whose_annotations_are_full_is_taken_over_by_a_label(worker: Worker) -> None:
    """No agent begins before every such pod is written to, and a tenant may fill the annotations of one."""
    await given_job(worker, parallelism=2, granted=2)
    await given_pods(worker, a_pod("a", gated=True), a_pod("b", gated=True))
    full = {"metadata": {"annotations": {"notes": "x" * (256 * 1024 - len("notes"))}}}
    await worker.client.patch(PODS, "a", NAMESPACE, MergePatch(full))
    await worker.sync()
    for epoch in (4, 5):
        await worker.reconciler.take_over_pods(epoch=epoch)
        pods = (await worker.client.list(PODS, namespace=NAMESPACE)).items
        assert [annotations.epoch(pod) for pod in pods] == [str(epoch)] * 2
    assert [api_names.EPOCH_ANNOTATION in pod["metadata"]["labels"] for pod in pods] == [True, False]
    await worker.client.patch(PODS, "a", NAMESPACE, MergePatch({"metadata": {"annotations": {"notes": None}}}))
    await worker.reconciler.take_over_pods(epoch=6)
    assert annotations.epoch(await worker.client.get(PODS, "a", NAMESPACE)) == "6"


async def test_pods_whose_take_over_conflicts_are_taken_over_after_pauses(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_job(worker, parallelism=1, granted=1)
    await given_pods(worker, a_pod("a", gated=True))
    tries = 0

    async def conflict(*_: Any, **__: Any) -> Any:
        nonlocal tries
        tries += 1
        raise ConflictError("409: another controller is at it")

    monkeypatch.setattr(worker.client, "patch", conflict)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(worker.reconciler.take_over_pods(epoch=4), 0.5)
    assert 1 < tries < 10
    monkeypatch.undo()
    await worker.reconciler.take_over_pods(epoch=4)
    assert annotations.epoch(await worker.client.get(PODS, "a", NAMESPACE)) == "4"


async def test_foreign_pods_are_not_taken_over(worker: Worker) -> None:
    await given_job(worker, ours=False)
    await given_pods(worker, a_pod("a", gated=True))
    assert catalog.take_over_pods(worker.store, epoch=4) == []


async def test_a_pod_that_has_changed_holds_up_no_other(worker: Worker) -> None:
    await given_job(worker, parallelism=2, granted=2)
    await given_pods(worker, a_pod("a", gated=True), a_pod("b", gated=True))
    await worker.client.patch(PODS, "a", NAMESPACE, MergePatch({"metadata": {"labels": {"x": "y"}}}))
    with pytest.raises(ConflictError):
        await worker.reconcile_job()
    assert await gated(worker) == ["a"]
    await worker.reconcile_job()
    assert await gated(worker) == []


async def test_a_server_that_fails_while_pods_start_is_tried_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_job(worker, parallelism=2, granted=2)
    await given_pods(worker, a_pod("a", gated=True), a_pod("b", gated=True))
    patch = worker.client.patch

    async def failing(resource: Any, name: str, *rest: Any, **more: Any) -> Any:
        if resource is PODS and name == "a":
            raise UnavailableError("503")
        return await patch(resource, name, *rest, **more)

    monkeypatch.setattr(worker.client, "patch", failing)
    with pytest.raises(UnavailableError):
        await worker.reconcile_job()
    assert await gated(worker) == ["a"]
    monkeypatch.setattr(worker.client, "patch", patch)
    await worker.reconcile_job()
    assert await gated(worker) == []


async def test_a_pod_that_may_have_started_counts_until_that_is_known(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another that has come since must not start in its place."""
    await given_job(worker, parallelism=2, granted=1)
    await given_pods(worker, a_pod("b", gated=True))
    patch = worker.client.patch

    async def unanswered(resource: Any, name: str, *rest: Any, **more: Any) -> Any:
        if resource is PODS:
            raise UnavailableError("no answer")
        return await patch(resource, name, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(worker.client, "patch", unanswered)
        with pytest.raises(UnavailableError):
            await worker.reconcile_job()
        await given_pods(worker, a_pod("a", gated=True))
        with pytest.raises(UnavailableError):
            await worker.reconcile_job()
    await worker.reconcile_job()
    assert await gated(worker) == ["a"]
    assert dict(worker.store.unanswered) == {}


async def test_a_pod_that_did_not_start_is_no_longer_counted_when_it_has_gone(worker: Worker) -> None:
    await given_job(worker, parallelism=2, granted=1)
    await given_pods(worker, a_pod("a", gated=True), a_pod("b", gated=True))
    lost = await worker.client.get(PODS, "b", NAMESPACE)
    worker.store.unanswered[lost["metadata"]["uid"]] = lost["metadata"]["resourceVersion"]
    await worker.client.delete(PODS, "b", NAMESPACE)
    await worker.sync()
    await worker.reconcile_job()
    assert await gated(worker) == []


# --- reports --------------------------------------------------------------------------------------------------------


async def test_reports_on_a_running_job_keep_the_interval(worker: Worker, loop_time: LoopTime) -> None:
    await given_job(worker)
    assert types(await worker.reconcile_job()) == ["status"]
    await patch_job(worker, {"status": {"active": 1}}, "status")
    await loop_time.advance(0.1)
    assert await worker.reconcile_job() == []
    assert not worker.queue.idle, "it is due later"
    await patch_job(worker, {"status": {"active": 2}}, "status")
    await loop_time.advance(0.5)
    [status] = await worker.reconcile_job()
    assert isinstance(status, Status)
    assert status.job_status == {"active": 2}


async def test_the_end_is_reported_at_once(worker: Worker, loop_time: LoopTime) -> None:
    await given_job(worker)
    await worker.reconcile_job()
    await patch_job(worker, {"status": an_end()}, "status")
    [status] = await worker.reconcile_job()
    assert isinstance(status, Status)
    assert status.phase is JobPhase.SUCCEEDED


async def test_a_report_that_was_not_confirmed_is_published_again(worker: Worker) -> None:
    await given_job(worker)
    worker.refuses = UnavailableError("no broker")
    with pytest.raises(UnavailableError):
        await worker.reconcile_job()
    worker.refuses = None
    assert types(await worker.reconcile_job()) == ["status"]


async def test_what_the_manager_asks_for_before_the_confirm_is_reported_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered_at_once(*_: Any) -> None:
        await ask_again(worker)

    await given_job(worker)
    with monkeypatch.context() as patched:
        patched.setattr(worker.executor, "_publish", answered_at_once)
        await worker.reconcile_job()
    assert types(await worker.reconcile_job()) == ["status"]


async def test_what_the_manager_asks_for_is_reported_again(worker: Worker) -> None:
    await given_job(worker)
    await worker.reconcile_job()
    await ask_again(worker, REF, JobRef("v1", "Pod", NAMESPACE, "of-no-kind", "uid"))
    assert not worker.queue.idle
    assert types(await worker.reconcile_job()) == ["status"]


# --- ends -----------------------------------------------------------------------------------------------------------


async def linked_copy(worker: Worker, *, version: int = 1) -> None:
    """The copy of a job that is there, or was."""
    await worker.create(WORKLOADS, plain(a_copy(version=version)))


def deleted(version: int, job: JobRef = REF) -> Applied:
    return Applied(job=job, workload="", spec_version=version, deleted=True)


async def test_a_job_that_somebody_deleted_is_reported_as_gone(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await delete_job(worker)
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert (gone.job, gone.phase, gone.seen) == (REF, JobPhase.GONE, True)


async def test_a_job_that_went_unseen_may_have_ended(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await lose_job(worker)
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert (gone.phase, gone.seen) == (JobPhase.GONE, False)


async def test_a_job_that_was_gone_when_its_agent_started_may_have_ended(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await delete_job(worker)
    again = Worker(worker.client)
    await again.tombstones.load()
    await again.sync()
    [gone] = await again.reconcile_job()
    assert isinstance(gone, Status)
    assert (gone.phase, gone.seen) == (JobPhase.GONE, False)


@pytest.mark.parametrize("leave", [delete_job, lose_job], ids=["seen to go", "missing from a list"])
async def test_the_end_of_a_job_that_went_before_it_was_reported_is_reported(worker: Worker, leave: Any) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await given_pod_of(worker, REF)
    await patch_job(worker, {"status": OVER}, "status")
    assert await worker.reconcile_job() == []
    await leave(worker)
    assert await worker.reconcile_job() == []
    await pod_ends(worker)
    [end] = await worker.reconcile_job()
    assert isinstance(end, Status)
    assert (end.job, end.phase, end.job_status, end.seen) == (REF, JobPhase.SUCCEEDED, OVER, False)


async def test_a_job_that_a_write_does_not_find_is_known_until_the_watch_says_how_it_went(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    job = await worker.job()
    assert job is not None
    await worker.client.delete(JOBS, "train", NAMESPACE)
    patch = Patch(resource=JOBS, target=job, body={"metadata": {"annotations": {"a": "b"}}})
    with pytest.raises(ConflictError):
        await worker.executor.run([patch])
    assert worker.store.view(KEY).job is not None
    worker.store.cache_of(JOBS).remove(job, is_final=True)
    assert worker.store.departed[REF.uid].seen


async def test_the_requests_of_a_job_that_has_gone_are_known_until_it_is_there_again(worker: Worker) -> None:
    request = annotations.PendingRequests.after(
        None, RequestKey("worker-uid", 4), wanted={"main": 1}, granted={"main": 3}
    )
    await given_job(worker, requested=request)
    await delete_job(worker)
    assert dict(worker.store.left_requests) == {REF.uid: request}
    await given_job(worker)
    await worker.sync()
    assert dict(worker.store.left_requests) == {}


async def test_a_job_that_was_deleted_before_its_first_reconcile_is_reported_as_gone_once(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await delete_job(worker)
    assert set(worker.store.departed) == {REF.uid}
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert (gone.job, gone.phase) == (REF, JobPhase.GONE)
    worker.store.tombstones[REF.uid] = Tombstone(job=REF, version=2, at_s=0)
    for copy in await worker.copies():
        await worker.client.delete(WORKLOADS, copy, NAMESPACE)
    await worker.sync()
    assert await worker.reconcile_job() == []
    assert dict(worker.store.departed) == {}


@pytest.mark.parametrize("is_going", [True, False], ids=["while it is being deleted", "before it is deleted"])
async def test_a_job_is_reported_as_gone_though_somebody_deletes_its_copies(worker: Worker, is_going: bool) -> None:
    """As a tenant does while the job's last pods end, or before. Nobody sends a copy again of a job that has ended."""
    await given_job(worker)
    await linked_copy(worker)
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"metadata": {"finalizers": ["example.com/slow"]}}))
    if is_going:
        await worker.client.delete(JOBS, "train", NAMESPACE)
        await worker.sync()
        assert dict(worker.store.departed) == {}, "it is there"
    for copy in await worker.copies():
        await worker.client.delete(WORKLOADS, copy, NAMESPACE)
    await worker.sync()
    await worker.client.patch(JOBS, "train", NAMESPACE, MergePatch({"metadata": {"finalizers": None}}))
    if not is_going:
        await worker.client.delete(JOBS, "train", NAMESPACE)
    await worker.sync()
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert (gone.job, gone.phase, gone.spec_version) == (REF, JobPhase.GONE, 1)
    assert await worker.reconcile_job() == []
    assert dict(worker.store.departed) == {}


async def test_a_job_that_is_not_there_yet_is_not_gone(worker: Worker) -> None:
    await linked_copy(worker)
    assert await worker.reconcile_job() == []


async def test_an_empty_cache_is_no_evidence(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await worker.store.cache_of(JOBS).replace([], "999999")
    with pytest.raises(ConflictError, match="is there"):
        await worker.reconcile_job()


async def test_a_delete_is_reported_when_the_job_is_gone_and_once(worker: Worker) -> None:
    await given_job(worker)
    await worker.tombstones.add(REF, 2)
    assert await worker.reconcile_job() == []
    await worker.sync()
    assert await worker.reconcile_job() == [deleted(2)]
    assert await worker.reconcile_job() == []


async def test_no_order_on_a_job_is_taken_while_a_report_on_it_is_published(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a newer order would count as reported."""
    taken: list[bool] = []

    async def publish(*_: Any) -> None:
        lock = asyncio.create_task(worker.locks.of(KEY).__aenter__())
        await asyncio.sleep(0)
        taken.append(lock.done())

    await worker.tombstones.add(REF, 2)
    monkeypatch.setattr(worker.executor, "_publish", publish)
    await worker.reconcile_job()
    assert taken == [False]


async def test_a_job_that_comes_back_after_its_delete_is_removed_again(worker: Worker) -> None:
    """An agent that was stopped before a create makes it when it goes on, and no API server can refuse that."""
    await worker.tombstones.add(REF, 2)
    await worker.reconcile_job()
    await given_job(worker, version=2)
    await linked_copy(worker, version=2)
    assert await worker.reconcile_job() == []
    assert (await worker.job(), await worker.copies()) == (None, [])


async def test_a_delete_that_was_ordered_again_is_reported_again(worker: Worker) -> None:
    await worker.tombstones.add(REF, 2)
    assert await worker.reconcile_job() == [deleted(2)]
    await worker.tombstones.add(REF, 2)
    assert await worker.reconcile_job() == [deleted(2)]


async def test_a_report_of_a_delete_that_was_not_confirmed_is_published_again(worker: Worker) -> None:
    await worker.tombstones.add(REF, 2)
    worker.refuses = UnavailableError("no broker")
    with pytest.raises(UnavailableError):
        await worker.reconcile_job()
    worker.refuses = None
    assert await worker.reconcile_job() == [deleted(2)]


async def test_a_job_that_the_manager_deleted_is_not_reported_as_gone(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await worker.tombstones.add(REF, 2)
    await delete_job(worker)
    assert await worker.reconcile_job() == []
    await worker.sync()
    assert await worker.reconcile_job() == [deleted(2)]


async def test_a_job_that_came_back_and_was_deleted_by_somebody_is_gone(worker: Worker) -> None:
    await worker.tombstones.add(REF, 2)
    await worker.reconcile_job()
    await given_job(worker, version=3)
    await linked_copy(worker, version=3)
    await worker.reconcile_job()
    await delete_job(worker)
    [gone] = await worker.reconcile_job()
    assert isinstance(gone, Status)
    assert gone.phase is JobPhase.GONE


async def test_a_delete_is_reported_although_the_next_job_has_the_name(worker: Worker) -> None:
    await worker.tombstones.add(REF, 2)
    await given_job(worker, of=NEXT)
    assert deleted(2) in await worker.reconcile_job()


@pytest.mark.parametrize("watched", [False, True], ids=["a Job, of which only ours are watched", "it is in the cache"])
async def test_a_delete_is_reported_although_a_foreign_job_has_the_name(worker: Worker, watched: bool) -> None:
    await worker.tombstones.add(REF, 2)
    foreign = await given_job(worker, ours=False)
    if watched:
        worker.store.cache_of(JOBS).put(foreign)
    assert await worker.reconcile_job() == [deleted(2)]


async def test_a_delete_is_reported_although_a_raycluster_has_the_name(worker: Worker) -> None:
    ref, key = JobRef("ray.io/v1", "RayCluster", "team", "ray", "ray-uid"), JobKey("RayCluster", "team", "ray")
    await worker.tombstones.add(ref, 2)
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "namespace": "team"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": a_job()["spec"]["template"]}},
    }
    await worker.create(RAYCLUSTERS, cluster)
    await worker.reconciler.reconcile_job(key)
    assert worker.published == [deleted(2, ref)]


async def test_a_job_that_lost_our_label_is_not_gone(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await patch_job(worker, {"metadata": {"labels": {api_names.ORIGIN_LABEL: None}}})
    with pytest.raises(ConflictError):
        await worker.reconcile_job()
    await patch_job(
        worker, {"metadata": {"labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN}}, "spec": {"parallelism": 3}}
    )
    assert types(await worker.reconcile_job()) == ["scale-request", "status"]


async def test_copies_get_the_uid_of_their_job(worker: Worker) -> None:
    job = await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    copy = await worker.client.get(WORKLOADS, "w1", NAMESPACE)
    assert annotations.annotation(copy, api_names.JOB_UID_ANNOTATION) == job["metadata"]["uid"]


# --- pods that outlive their job ------------------------------------------------------------------------------------


async def given_pod_of(worker: Worker, job: JobRef) -> None:
    await given_pods(worker, a_pod("outlives", of=job))


async def pod_ends(worker: Worker) -> None:
    await worker.client.delete(PODS, "outlives", NAMESPACE)
    await worker.sync()


@pytest.mark.parametrize("next_is_there", [False, True], ids=["nothing is there", "the next job has the name"])
async def test_a_delete_is_reported_when_no_pod_of_the_job_runs(worker: Worker, next_is_there: bool) -> None:
    await given_pod_of(worker, REF)
    await worker.tombstones.add(REF, 2)
    if next_is_there:
        await given_job(worker, of=NEXT)
    assert deleted(2) not in await worker.reconcile_job()
    await pod_ends(worker)
    assert deleted(2) in await worker.reconcile_job()


async def test_a_pod_that_never_started_or_has_ended_delays_no_report(worker: Worker) -> None:
    await given_pods(worker, a_pod("a", gated=True, of=REF), a_pod("b", phase="Succeeded", of=REF))
    await worker.tombstones.add(REF, 2)
    assert await worker.reconcile_job() == [deleted(2)]


async def test_a_job_that_somebody_deleted_is_reported_as_gone_when_none_of_its_pods_runs(worker: Worker) -> None:
    await given_job(worker)
    await linked_copy(worker)
    await worker.reconcile_job()
    await given_pod_of(worker, REF)
    await delete_job(worker)
    again = Worker(worker.client)
    await again.tombstones.load()
    await again.sync()
    for each in (worker, again):
        [told] = await each.reconcile_job()
        assert isinstance(told, Status)
        assert told.waits
        assert (told.phase, told.waits.reason) == (JobPhase.RUNNING, "PodsOrphaned")
        assert await each.reconcile_job() == [], "once"
    await pod_ends(again)
    [gone] = await again.reconcile_job()
    assert isinstance(gone, Status)
    assert gone.phase is JobPhase.GONE


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("Job", {"batch.kubernetes.io/job-name": "train"}),
        ("RayCluster", {"ray.io/cluster": "train"}),
        ("RayJob", {"ray.io/cluster": "train-x7k2p", api_names.RAYJOB_LABEL: "train"}),
    ],
)
async def test_the_last_pod_requeues_a_job_that_is_gone(worker: Worker, kind: str, labels: dict[str, str]) -> None:
    key, woken = JobKey(kind, "team", "train"), list[JobKey]()
    pod = a_pod("outlives")
    pod["metadata"]["labels"] = {kueue.POD_SET_LABEL: "head", api_names.MANAGER_UID_LABEL: "uid", **labels}
    await given_pods(worker, pod)
    assert worker.store.view(key).running == {"uid"}
    worker.store.on_change(woken.append)
    woken.clear()
    await pod_ends(worker)
    assert key in woken
    assert worker.store.view(key).running == set()


@pytest.mark.parametrize("ours", [True, False], ids=["our Job", "the submitter of a RayJob"])
async def test_a_pod_of_a_job_requeues_the_rayjob_of_its_name_that_may_have_created_it(
    worker: Worker, ours: bool
) -> None:
    await given_job(worker, ours=ours)
    woken = list[JobKey]()
    worker.store.on_change(woken.append)
    woken.clear()
    await given_pods(worker, a_pod("a"))
    assert {key.kind for key in woken} == ({"Job"} if ours else {"Job", "RayJob"})


@pytest.mark.parametrize(
    ("waits", "status", "wakes"),
    [
        (False, {"podIP": "10.0.0.1"}, False),
        (False, {"conditions": [{"type": "Ready", "status": "True"}]}, True),
        (True, {"podIP": "10.0.0.1"}, True),
    ],
    ids=["one that runs", "one that is ready now", "one that could not be let start as it was"],
)
async def test_a_pod_requeues_its_job_when_a_decision_depends_on_the_change(
    worker: Worker, waits: bool, status: dict[str, Any], wakes: bool
) -> None:
    await given_job(worker)
    await given_pods(worker, a_pod("a", gated=waits))
    woken = list[JobKey]()
    worker.store.on_change(woken.append)
    woken.clear()
    await worker.client.patch(PODS, "a", NAMESPACE, MergePatch({"status": status}), subresource="status")
    await worker.sync()
    assert woken == ([KEY] if wakes else [])
