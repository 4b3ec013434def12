"""What the manager's API server refuses of an agent's reports: told, tried again, and no dead letter."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest

from slicebus.kube.client import JsonPatch, MergePatch
from slicebus.kube.resources import JOBS, WORKERCLUSTERS, WORKLOADS, Resource
from slicebus.manager.decide.job import waiting
from slicebus.manager.state.annotations import SizeRequest, SpecCounts, job_ref
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.requirements import PRIORITY_CLASS_MISSING
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.proto.errors import ForbiddenError, InvalidError, PermanentError, UnauthorizedError, WebhookError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    JobPhase,
    JobRef,
    Message,
    Pending,
    PodSetStatus,
    Resync,
    Status,
    Suspend,
    Waits,
    WorkloadSpec,
)
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.fingerprints import spec_hash
from slicebus.slices.workload.waiting import PODS_REFUSED, Waiting
from unit.manager.message_router import Manager
from unit.manager.objects import a_job, a_workload, condition
from unit.manager.test_inbox import HELLO, request, status

Manifest = dict[str, Any]
POLICY = InvalidError('422: jobs "train" is forbidden: ValidatingAdmissionPolicy "frozen" denied request: frozen')
RIGHT = ForbiddenError("403: jobs.batch is forbidden")
REFUSALS = pytest.mark.parametrize("error", [POLICY, RIGHT], ids=["a policy", "no right"])


ENDS = pytest.mark.parametrize(
    "error", [POLICY, RIGHT, WebhookError("500: failed calling webhook")], ids=["a policy", "no right", "a webhook"]
)


@contextmanager
def refusing(manager: Manager, error: Exception, *refused: tuple[Resource, str]) -> Iterator[None]:
    """Every patch of these resources and subresources is refused."""
    patch = manager.client.patch

    async def refuse(resource: Resource, *args: Any, subresource: str = "", **more: Any) -> Manifest:
        if (resource, subresource) in refused:
            raise error
        return await patch(resource, *args, subresource=subresource, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "patch", refuse)
        yield


async def reconcile(manager: Manager, ref: JobRef) -> PermanentError | None:
    """As the work queue does it."""
    problem = await manager.inbox.retry(ref)
    await manager.reconcile_job(ref)
    return problem


async def written_request(manager: Manager) -> SizeRequest | None:
    return SizeRequest.from_manifest(await manager.client.get(WORKLOADS, "w1", "team"))


async def the_job(manager: Manager) -> Manifest:
    return await manager.client.get(JOBS, "train", "team")


@REFUSALS
async def test_a_request_is_told_on_both_sides_and_written_when_the_server_takes_it(
    manager: Manager, error: PermanentError
) -> None:
    ref = await manager.given_job()
    with refusing(manager, error, (WORKLOADS, "")):
        await manager.receive(request(ref, wanted=5))
        assert manager.dead == []
        assert manager.requeued == [ref]
        assert await manager.inbox.retry(ref) is error
        await manager.receive(request(ref, wanted=5))
    notices = [message for message in manager.published if isinstance(message, Pending)]
    assert [(notice.reason, notice.wanted, notice.worker_generation) for notice in notices] == [
        (waiting.REQUEST_REFUSED, {"main": 5}, 2)
    ]
    assert str(error) in notices[0].message
    assert [reason for reason, note in manager.events if str(error) in note] == [waiting.REQUEST_REFUSED]
    wait = waiting.reason_for(manager.store.view(ref))
    assert wait is not None
    assert (wait.shown.reason, wait.shown.wanted, wait.shown.granted) == (
        waiting.REQUEST_REFUSED,
        {"main": 5},
        {"main": 1},
    )
    assert await manager.inbox.retry(ref) is None
    written = await written_request(manager)
    assert written is not None
    assert written.counts == {"main": 5}
    assert not manager.store.refused_requests


@REFUSALS
async def test_a_refused_request_is_shown_on_the_job_where_that_is_allowed(
    manager: Manager, error: PermanentError
) -> None:
    ref, patch = await manager.given_job(), manager.client.patch

    async def refuse(
        resource: Resource, name: str, namespace: str | None, body: MergePatch | JsonPatch, **more: Any
    ) -> Manifest:
        if api_names.REQUESTED_ANNOTATION in str(body.body):
            raise error
        return await patch(resource, name, namespace, body, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "patch", refuse)
        await manager.receive(request(ref, wanted=5))
        assert await reconcile(manager, ref) is error
    shown = Waiting.from_manifest(await the_job(manager))
    assert shown is not None
    assert (shown.reason, shown.wanted) == (waiting.REQUEST_REFUSED, {"main": 5})
    assert await reconcile(manager, ref) is None
    await manager.reconcile_job(ref)
    shown = Waiting.from_manifest(await the_job(manager))
    assert shown is None or shown.reason != waiting.REQUEST_REFUSED


@REFUSALS
async def test_beside_a_kueue_the_counts_that_the_job_may_not_have_are_told_and_hold_nothing_up(
    manager: Manager, error: PermanentError
) -> None:
    manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    ref = await manager.given_job()
    for _ in range(3):
        await manager.reconcile_job(ref)
    [told] = await refused_counts(manager, ref, error)
    assert (told.reason, told.wanted) == (waiting.REQUEST_REFUSED, {"main": 5})
    shown = Waiting.from_manifest(await the_job(manager))
    assert shown is not None
    assert (shown.reason, shown.wanted) == (waiting.REQUEST_REFUSED, {"main": 5})
    assert str(error) in shown.message
    assert await reconcile(manager, ref) is None
    assert (await the_job(manager))["spec"]["parallelism"] == 5
    for _ in range(2):
        await manager.reconcile_job(ref)
    shown = Waiting.from_manifest(await the_job(manager))
    assert shown is None or shown.reason != waiting.REQUEST_REFUSED


async def refused_counts(manager: Manager, ref: JobRef, error: PermanentError) -> list[Pending]:
    """A request comes whose counts the job may not have; the notices that its worker gets. Everything else is done."""
    patch = manager.client.patch

    async def refuse(
        resource: Resource, name: str, namespace: str | None, body: MergePatch | JsonPatch, **more: Any
    ) -> Manifest:
        if resource == JOBS and "parallelism" in str(body.body):
            raise error
        return await patch(resource, name, namespace, body, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "patch", refuse)
        await manager.receive(request(ref, wanted=5))
        assert manager.dead == []
        for _ in range(3):
            assert await reconcile(manager, ref) is error
    return [message for message in manager.published if isinstance(message, Pending)]


@REFUSALS
async def test_where_only_the_new_slice_is_refused_its_request_is_written_by_itself(
    manager: Manager, error: PermanentError
) -> None:
    ref = await manager.given_job()
    for _ in range(3):
        await manager.reconcile_job(ref)

    async def refuse(*_: Any, **__: Any) -> Manifest:
        raise error

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "create", refuse)
        await manager.receive(request(ref, wanted=5))
        assert [message.reason for message in manager.published if isinstance(message, Pending)] == [
            waiting.REQUEST_REFUSED
        ]
        assert await manager.inbox.retry(ref) is None
    written = await written_request(manager)
    assert written is not None
    assert written.counts == {"main": 5}
    assert manager.dead == []
    assert not manager.store.refused_requests


async def test_a_newer_request_takes_the_place_of_one_that_is_refused(manager: Manager) -> None:
    ref = await manager.given_job()
    with refusing(manager, RIGHT, (WORKLOADS, "")):
        await manager.receive(request(ref, generation=2, wanted=5))
        await manager.receive(request(ref, generation=3, wanted=4))
    assert await manager.inbox.retry(ref) is None
    written = await written_request(manager)
    assert written is not None
    assert written.counts == {"main": 4}


async def test_a_report_that_comes_late_takes_no_place_of_a_newer_one(manager: Manager) -> None:
    ref = await manager.given_job()
    late = manager.wire(status(ref, 5))
    with refusing(manager, POLICY, (JOBS, "status")):
        await manager.receive(status(ref, 7))
        await manager.again(late)
    assert await manager.inbox.retry(ref) is None
    assert (await manager.job_status())["active"] == 7


MESSAGES: dict[str, Any] = {
    "a status": (lambda ref: status(ref, 7), (JOBS, "status")),
    "a report of a version": (lambda ref: Applied(job=ref, workload="w1", spec_version=1), (WORKLOADS, "")),
}


@REFUSALS
@pytest.mark.parametrize(("make", "where"), MESSAGES.values(), ids=MESSAGES.keys())
async def test_every_report_on_a_job_is_kept(
    manager: Manager, error: PermanentError, make: Any, where: tuple[Resource, str]
) -> None:
    ref = await manager.given_job()
    with refusing(manager, error, where):
        await manager.receive(make(ref))
        assert await manager.inbox.retry(ref) is error
    assert manager.dead == []
    assert manager.events, "it is said on the job"
    assert await manager.inbox.retry(ref) is None
    assert await manager.inbox.retry(ref) is None, "it is kept no longer"


@REFUSALS
@pytest.mark.parametrize("message", [HELLO, Heartbeat(jobs=7)], ids=["hello", "heartbeat"])
async def test_a_report_on_the_cluster_is_no_dead_letter(
    manager: Manager, error: PermanentError, message: Message
) -> None:
    with refusing(manager, error, (WORKERCLUSTERS, "status")):
        await manager.receive(message)
    assert manager.dead == []
    assert any(isinstance(answer, Resync) for answer in manager.answers) is isinstance(message, Heartbeat)
    labels = {"cluster": "east", "type": message.type}
    assert manager.registry.get_sample_value("slicebus_manager_refused_messages_total", labels) == 1
    assert manager.inbox.refused_clusters == {"east": str(error)}, "the Lease says so"
    await manager.receive(HELLO)
    assert manager.inbox.refused_clusters == {}


@REFUSALS
async def test_what_a_report_says_of_pods_counts_where_the_status_is_refused_for_ever(
    manager: Manager, error: PermanentError
) -> None:
    ref = await manager.given_job()
    waits = Waits(wanted={"main": 1}, reason=PODS_REFUSED, message="no room for it", since="2026-01-31T12:00:00Z")
    pods = {"main": PodSetStatus(ready=1, total=1, requests={"cpu": "30"})}
    report = Status(
        job=ref,
        workload="w1",
        spec_version=1,
        phase=JobPhase.RUNNING,
        pods=pods,
        job_status={"active": 1, "ready": 1},
        waits=waits,
    )
    with refusing(manager, error, (JOBS, "status")):
        await manager.receive(report)
        for _ in range(3):
            assert await reconcile(manager, ref) is error
        workload = await manager.client.get(WORKLOADS, "w1", "team")
        assert api_names.OBSERVED_ANNOTATION in workload["metadata"]["annotations"], "the pods are charged"
        shown = {entry["type"]: entry["status"] for entry in conditions_of(workload)}
        assert (shown["PodsReady"], shown[api_names.CHARGED_MORE_CONDITION]) == ("True", "True")
        assert manager.store.view(ref).waits == waits
    assert await manager.inbox.retry(ref) is None
    assert (await manager.job_status())["active"] == 1
    assert [reason for reason, _ in manager.events].count("ChargedMore") == 1


@contextmanager
def never_suspended(manager: Manager, error: Exception) -> Iterator[None]:
    """Nobody may suspend the manager's job."""
    patch = manager.client.patch

    async def refuse(
        resource: Resource, name: str, namespace: str | None, body: MergePatch | JsonPatch, **more: Any
    ) -> Manifest:
        if resource == JOBS and isinstance(body.body, dict) and "suspend" in body.body.get("spec", {}):
            raise error
        return await patch(resource, name, namespace, body, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "patch", refuse)
        yield


@ENDS
async def test_an_eviction_goes_on_where_nobody_may_suspend_the_managers_job(
    manager: Manager, error: PermanentError
) -> None:
    ref = await manager.given_job()
    workload = await manager.client.get(WORKLOADS, "w1", "team")
    evicted = condition("Evicted", True, "Preempted", "somebody needs it")
    body = MergePatch({"status": {"conditions": [*conditions_of(workload), evicted]}})
    manager.store.workloads.put(await manager.client.patch(WORKLOADS, "w1", "team", body, subresource="status"))
    with never_suspended(manager, error):
        await manager.reconcile_job(ref)
        [order] = [message for message in manager.published if isinstance(message, Suspend)]
        await manager.receive(Applied(job=ref, workload="w1", spec_version=order.spec_version))
        for _ in range(4):
            await manager.reconcile_job(ref)
        workload = await manager.client.get(WORKLOADS, "w1", "team")
        assert not workload["status"].get("admission"), "its quota is given back"
        told = [reason for reason, note in manager.events if str(error) in note]
        assert set(told) == {"NotShown"}
        assert [reason for reason, _ in manager.events].count("Suspended") == 1
    await manager.reconcile_job(ref)
    assert (await the_job(manager))["spec"]["suspend"] is True


@REFUSALS
async def test_why_a_job_is_not_taken_is_told_where_its_status_is_refused(
    manager: Manager, error: PermanentError
) -> None:
    job = a_job()
    job["metadata"]["labels"] |= {kueue.PRIORITY_CLASS_LABEL: "nobody-has-it"}
    ref = job_ref(await manager.given(JOBS, job))
    with refusing(manager, error, (JOBS, "status")):
        await manager.reconcile_job(ref)
    assert [reason for reason, _ in manager.events] == ["NotShown", PRIORITY_CLASS_MISSING]


@ENDS
async def test_a_job_with_an_unknown_end_gives_its_quota_back_where_it_may_not_show_that(
    manager: Manager, error: PermanentError
) -> None:
    ref = await manager.given_job()
    gone = Status(job=ref, workload="w1", spec_version=9, phase=JobPhase.GONE, seen=False)
    with refusing(manager, error, (JOBS, "status")):
        await manager.receive(gone)
        for _ in range(4):
            await manager.reconcile_job(ref)
        workload = await manager.client.get(WORKLOADS, "w1", "team")
        assert workload["spec"]["active"] is False, "the admission evicts it"
        assert {entry["type"]: entry["reason"] for entry in conditions_of(workload)}[
            api_names.END_KNOWN_CONDITION
        ] == "VanishedOnWorker"
        told = {reason for reason, note in manager.events if str(error) in note}
        assert told == {"NotShown"}
        assert [reason for reason, _ in manager.events].count("VanishedOnWorker") == 1


async def test_credentials_that_are_not_taken_for_a_moment_lose_no_message(manager: Manager) -> None:
    ref, failures, patch = await manager.given_job(), [UnauthorizedError("401: Unauthorized")] * 3, manager.client.patch

    async def refuse(*args: Any, **more: Any) -> Manifest:
        if failures:
            raise failures.pop()
        return await patch(*args, **more)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(manager.client, "patch", refuse)
        await manager.receive(request(ref, wanted=5))
    assert manager.dead == []
    assert await written_request(manager) is not None
    assert not manager.events


async def test_what_is_kept_of_a_job_goes_with_it(manager: Manager) -> None:
    ref = await manager.given_job()
    with refusing(manager, RIGHT, (WORKLOADS, "")):
        await manager.receive(request(ref))
    await manager.store.jobs[ref.kind].replace([], "999")
    assert not manager.store.refused_requests
    assert await manager.inbox.retry(ref) is None


COMPLETE: Manifest = {
    "succeeded": 1,
    "startTime": "2026-01-31T12:00:00Z",
    "completionTime": "2026-01-31T13:00:00Z",
    "conditions": [
        {"type": "Complete", "status": "True", "message": "all done", "lastTransitionTime": "2026-01-31T13:00:00Z"}
    ],
}


def an_end(ref: JobRef) -> Status:
    return Status(job=ref, workload="w1", spec_version=1, phase=JobPhase.SUCCEEDED, job_status=COMPLETE)


async def finished(manager: Manager) -> dict[str, tuple[str, str]]:
    """The conditions of the job's Workload, with their messages."""
    workload = await manager.client.get(WORKLOADS, "w1", "team")
    return {entry["type"]: (entry["status"], entry["message"]) for entry in conditions_of(workload)}


@ENDS
@pytest.mark.parametrize("beside_kueue", [False, True], ids=["builtin", "beside a Kueue"])
async def test_an_end_that_cannot_be_shown_frees_the_quota_and_says_why(
    manager: Manager, error: PermanentError, beside_kueue: bool
) -> None:
    if beside_kueue:
        manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    ref = await manager.given_job()
    with refusing(manager, error, (JOBS, "status"), (JOBS, "")):
        await manager.receive(an_end(ref))
        assert manager.dead == []
        await manager.reconcile_job(ref)
        shown = await finished(manager)
        assert shown["Finished"][0] == "True"
        assert shown[api_names.END_SHOWN_CONDITION][0] == "False"
        assert str(error) in shown[api_names.END_SHOWN_CONDITION][1]
        assert "EndNotShown" in [reason for reason, note in manager.events if str(error) in note]
        assert not manager.store.view(ref).unfinished
        await manager.reconcile_job(ref)
    workloads = (await manager.client.list(WORKLOADS)).items
    assert [workload["metadata"]["name"] for workload in workloads] == ["w1"], "it does not run again"


async def test_an_end_is_shown_as_soon_as_the_server_takes_it_by_whoever_leads_then(manager: Manager) -> None:
    ref = await manager.given_job()
    with refusing(manager, RIGHT, (JOBS, "status")):
        await manager.receive(an_end(ref))
        for _ in range(4):
            await manager.reconcile_job(ref)
    assert (await manager.job_status()).get("conditions") is None
    manager.store.unshown_ends.clear()
    for _ in range(3):
        await manager.reconcile_job(ref)
    types = [entry["type"] for entry in (await manager.job_status())["conditions"]]
    assert types == ["SuccessCriteriaMet", "Complete"]
    assert (await finished(manager))[api_names.END_SHOWN_CONDITION] == ("True", "The job shows its end")
    before = await manager.client.get(WORKLOADS, "w1", "team")
    await manager.reconcile_job(ref)
    assert await manager.client.get(WORKLOADS, "w1", "team") == before


async def test_a_report_that_is_no_end_leaves_no_end(manager: Manager) -> None:
    ref = await manager.given_job()
    with refusing(manager, POLICY, (JOBS, "status")):
        await manager.receive(msgspec.structs.replace(an_end(ref), phase=JobPhase.RUNNING, job_status={"active": 3}))
        await manager.reconcile_job(ref)
    assert manager.store.view(ref).unshown_end is None
    assert "Finished" not in await finished(manager)


@REFUSALS
async def test_beside_a_kueue_counts_that_cannot_be_restored_hold_no_quota(
    manager: Manager, error: PermanentError
) -> None:
    """Whoever may edit the job may note as its own counts what a policy refuses."""
    manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    noted = SpecCounts(written={"main": 1}, own={"main": 64}).to_annotation()
    job = a_job(annotations={api_names.SPEC_COUNTS_ANNOTATION: noted})
    job["spec"]["suspend"], job["status"] = True, {"active": 1}
    ref = job_ref(await manager.given(JOBS, job))
    workload = a_workload(admitted=1, dispatched=2, applied=2, conditions=(condition("Evicted", message="Preempted"),))
    workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = ref.uid
    workload["metadata"]["ownerReferences"][0]["uid"] = ref.uid
    stopped = Dispatch(2, spec_hash(ClusterName("east"), "w1", {}, None), cluster="east", suspended=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = stopped.to_annotation()
    for each in workload["status"]["conditions"]:
        each["message"] = each["message"] or "so it is"
    await manager.given(WORKLOADS, workload)
    with refusing(manager, error, (JOBS, "")):
        for _ in range(5):
            with suppress(PermanentError):
                await manager.reconcile_job(ref)
    assert "active" not in await manager.job_status()
    wait = waiting.reason_for(manager.store.view(ref))
    assert wait is not None
    assert (wait.shown.reason, wait.shown.wanted) == (waiting.COUNTS_NOT_RESTORED, {"main": 64})
    assert str(error) in wait.shown.message


@REFUSALS
async def test_beside_a_kueue_a_status_that_cannot_be_shown_holds_no_order_up(
    manager: Manager, error: PermanentError
) -> None:
    """The definition of the manager's kind may be older than that of its worker."""
    manager.store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    ref = await manager.given_job()
    runs = MergePatch({"status": {"active": 1}})
    manager.store.jobs["Job"].put(await manager.client.patch(JOBS, "train", "team", runs, subresource="status"))
    with refusing(manager, error, (JOBS, "status")):
        await manager.receive(status(ref, active=3))
        assert await reconcile(manager, ref) is error
    assert [message.spec_version for message in manager.published if isinstance(message, WorkloadSpec)] == [2]
    for _ in range(2):
        await reconcile(manager, ref)
    assert (await manager.job_status())["active"] == 3
