"""The objects that a scheduler backend needs are there before the first pod starts, and change only with the gang."""

import re
from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import reconcile as of_job
from slicebus.agent.decide.order import orders, scheduling
from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state import annotations
from slicebus.agent.state.schedulers import Schedulers
from slicebus.agent.state.views import JobKey
from slicebus.decisions.commands import Create
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import JOBS, PODS, WORKLOADS
from slicebus.proto.errors import ForbiddenError, InvalidError
from slicebus.proto.messages import WorkloadSpec
from slicebus.slices.api import api_names
from slicebus.slices.schedulers import NO_PROFILES, Profile, init
from slicebus.slices.schedulers.grove import POD_GANGS
from slicebus.slices.schedulers.kai import POD_GROUPS, QUEUES
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.waiting import Waiting
from unit.agent.objects import EAST, KEY, a_copy, a_job, a_pod, a_spec, a_view
from unit.agent.test_reconciler import given_pods, patch_job, plain
from unit.agent.worker import Worker
from unit.kube.servers import NAMESPACE

Manifest = dict[str, Any]
KAI = Profile("kai", queue="research")
GROVE = Profile("grove")
QUEUE: Manifest = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "research"}, "spec": {}}


def scheduled(job: Manifest, profile: Profile) -> Manifest:
    """The job as it was made for a backend."""
    job["metadata"]["annotations"][api_names.SCHEDULER_ANNOTATION] = profile.name
    return job


def prepared(profile: Profile, *names: str, lost: bool = False) -> list[Manifest]:
    """Gated pods as their template makes them; `lost`: without what the backend gave the template."""
    pods = [a_pod(name, gated=True, phase="Pending") for name in names]
    given = init(profile).prepare(a_job(), "main")
    return pods if lost else [pod | given.applied_to(pod) for pod in pods]


async def given(worker: Worker, profile: Profile, *pods: Manifest, granted: int) -> None:
    """A job with such a grant, and these pods."""
    await worker.enable(profile)
    if profile is KAI:
        await worker.create(QUEUES, QUEUE)
    await worker.create(JOBS, plain(scheduled(a_job(granted, granted=granted), profile)))
    await given_pods(worker, *pods)
    await worker.sync()


async def reconcile(worker: Worker) -> None:
    await worker.reconcile_job()
    await worker.sync()


async def started(worker: Worker) -> list[str]:
    pods = (await worker.client.list(PODS, namespace=NAMESPACE)).items
    return sorted(pod["metadata"]["name"] for pod in pods if not is_gated(pod))


async def pod_groups(worker: Worker) -> list[Manifest]:
    return (await worker.client.list(POD_GROUPS, namespace=NAMESPACE)).items


async def shown(worker: Worker) -> tuple[str, str]:
    """The reason and the message on the job."""
    job = await worker.job()
    waiting = Waiting.from_manifest(job) if job is not None else None
    return (waiting.reason, waiting.message) if waiting is not None else ("", "")


async def test_the_gang_starts_together_after_its_objects_are_there(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=3)
    await reconcile(worker)
    [group] = await pod_groups(worker)
    job = await worker.job()
    assert job is not None
    assert group["spec"]["minMember"] == 3
    assert group["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert group["metadata"]["labels"][api_names.ORIGIN_LABEL] == api_names.ORIGIN
    assert await started(worker) == []
    await given_pods(worker, *prepared(KAI, "c"))
    await worker.sync()
    await reconcile(worker)
    assert await started(worker) == ["a", "b", "c"]


async def test_growth_starts_pod_by_pod_and_leaves_the_minimum(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=2)
    await reconcile(worker)
    await patch_job(worker, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":4}'}}})
    await given_pods(worker, *prepared(KAI, "c"))
    await worker.sync()
    await reconcile(worker)
    assert await started(worker) == ["a", "b", "c"]
    [group] = await pod_groups(worker)
    assert (group["spec"]["minMember"], group["metadata"]["generation"]) == (2, 1)


def reported(worker: Worker) -> Any:
    """The gang of the job's status as it is now."""
    status = of_job.status(worker.store.view(KEY))
    assert status is not None
    return status.gang


LEAST: dict[str, tuple[str, int, int]] = {
    "its least size": ("main=2", 3, 2),
    "no more than is granted": ("main=3", 2, 2),
    "at least a pod": ("main=0", 3, 1),
    "of another pod set": ("other=1", 3, 3),
    "nobody can read it": ("2", 3, 3),
}


@pytest.mark.parametrize(("least", "granted", "minimum"), LEAST.values(), ids=LEAST.keys())
async def test_a_job_that_names_a_least_size_is_a_gang_of_that(
    worker: Worker, least: str, granted: int, minimum: int
) -> None:
    copy = plain(a_copy())
    copy["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = least
    await worker.create(WORKLOADS, copy)
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=granted)
    await reconcile(worker)
    await reconcile(worker)
    [group] = await pod_groups(worker)
    assert group["spec"]["minMember"] == minimum
    assert reported(worker) == {"main": minimum}
    assert await started(worker) == (["a", "b"] if minimum <= 2 else [])


async def test_what_starts_together_is_reported_while_it_runs(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await worker.client.delete(QUEUES, "research", None)
    await worker.sync()
    await reconcile(worker)
    assert reported(worker) is msgspec.UNSET, "nothing can be made"
    await worker.create(QUEUES, QUEUE)
    await worker.sync()
    await reconcile(worker)
    await reconcile(worker)
    assert reported(worker) == {"main": 1}
    await patch_job(worker, {"spec": {"suspend": True}})
    await reconcile(worker)
    assert reported(worker) is msgspec.UNSET


async def test_a_smaller_grant_lowers_the_minimum(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a", "b", "c"), granted=3)
    await reconcile(worker)
    await patch_job(worker, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":2}'}}})
    await reconcile(worker)
    [group] = await pod_groups(worker)
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["subGroups"] == [{"name": "main", "minMember": 2}]


async def test_a_job_that_shrinks_to_nothing_has_no_gang(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await reconcile(worker)
    await worker.client.delete(PODS, "a", NAMESPACE)
    await patch_job(worker, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":0}'}}})
    await reconcile(worker)
    assert await pod_groups(worker) == []
    job = await worker.job()
    assert job is not None
    assert annotations.gang(job) == {}
    assert "status" in {message.type for message in worker.published}


async def test_a_gang_that_somebody_suspends_here_is_resumed_with_a_new_group(worker: Worker) -> None:
    """It is resumed when the PodGroup has gone, which is removed when its last pod has."""
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=2)
    await reconcile(worker)
    [first] = await pod_groups(worker)
    await patch_job(worker, {"spec": {"suspend": True}})
    await worker.client.delete(PODS, "b", NAMESPACE)
    await worker.sync()
    await reconcile(worker)
    assert await pod_groups(worker) == [first]
    await worker.client.delete(PODS, "a", NAMESPACE)
    await worker.sync()
    await reconcile(worker)
    assert await pod_groups(worker) == []
    await reconcile(worker)
    job = await worker.job()
    assert job is not None
    assert job["spec"]["suspend"] is False
    [second] = await pod_groups(worker)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["minMember"] == 2


async def test_a_new_status_is_no_reason_to_write(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await reconcile(worker)
    [group] = await pod_groups(worker)
    body = MergePatch({"status": {"phase": "Running"}})
    await worker.client.patch(POD_GROUPS, group["metadata"]["name"], NAMESPACE, body, subresource="status")
    await worker.sync()
    [told] = await pod_groups(worker)
    await reconcile(worker)
    assert await pod_groups(worker) == [told]


async def test_a_suspended_job_gets_a_new_gang_when_it_comes_back(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=2)
    await reconcile(worker)
    for name in ("a", "b"):
        await worker.client.delete(PODS, name, NAMESPACE)
    await patch_job(
        worker,
        {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: "{}"}}, "spec": {"suspend": True}},
    )
    # It may not remove it now: to ask for that would end each reconcile of the job.
    worker.store.forbidden_schedulers["kai"] = "its agent may not delete podgroups"
    await reconcile(worker)
    assert len(await pod_groups(worker)) == 1
    del worker.store.forbidden_schedulers["kai"]
    await reconcile(worker)
    assert await pod_groups(worker) == []
    job = await worker.job()
    assert job is not None
    assert annotations.gang(job) == {}
    await patch_job(
        worker,
        {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":1}'}}, "spec": {"suspend": False}},
    )
    await reconcile(worker)
    [group] = await pod_groups(worker)
    assert group["spec"]["minMember"] == 1


async def test_a_missing_queue_is_told_until_it_comes(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await worker.client.delete(QUEUES, "research", None)
    await worker.sync()
    await reconcile(worker)
    assert await shown(worker) == ("QueueNotFound", "there is no Queue research (scheduling.run.ai)")
    assert await started(worker) == []
    await worker.create(QUEUES, QUEUE)
    await reconcile(worker)
    assert await started(worker) == ["a"]
    await reconcile(worker)
    assert await shown(worker) == ("", "")


async def test_a_queue_wakes_the_jobs_that_wait_for_it(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await worker.client.delete(QUEUES, "research", None)
    await worker.sync()
    await reconcile(worker)
    woken: list[JobKey] = []
    worker.store.on_change(woken.append)
    # Whatever somebody writes on it.
    forged = {"annotations": {api_names.JOB_ANNOTATION: "Job/other"}}
    woken.clear()
    await worker.create(QUEUES, QUEUE | {"metadata": QUEUE["metadata"] | forged})
    assert set(woken) == {KEY}
    await reconcile(worker)
    assert await started(worker) == ["a"]
    await reconcile(worker)
    woken.clear()
    await worker.client.patch(QUEUES, "research", None, MergePatch({"status": {"running": 1}}), subresource="status")
    await worker.sync()
    assert woken == [], "a job that runs has nothing to do with its queue"


async def test_what_the_server_refuses_is_told_and_tried_again(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    create = worker.client.create

    async def refuse(resource: Any, manifest: Manifest, **how: Any) -> Manifest:
        if resource == POD_GROUPS:
            raise InvalidError("the queue is full")
        return await create(resource, manifest, **how)

    monkeypatch.setattr(worker.client, "create", refuse)
    await reconcile(worker)
    assert await shown(worker) == ("SchedulingObjectRefused", "the queue is full")
    monkeypatch.setattr(worker.client, "create", create)
    await reconcile(worker)
    assert await pod_groups(worker) == []
    half_a_minute_later(worker)
    await reconcile(worker)
    assert await started(worker) == ["a"]


def half_a_minute_later(worker: Worker) -> None:
    """As if what was refused had been so for long."""
    for key, refused in list(worker.store.refused_objects.items()):
        worker.store.refused_objects[key] = type(refused)(refused.since_s - 31.0, refused.message)


async def test_a_refused_change_holds_up_new_pods_and_nothing_else(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given(worker, KAI, *prepared(KAI, "a", "b"), granted=2)
    await reconcile(worker)
    patch = worker.client.patch

    async def refuse(resource: Any, *given: Any, **how: Any) -> Manifest:
        if resource == POD_GROUPS:
            raise ForbiddenError("nobody lowers a minimum")
        return await patch(resource, *given, **how)

    monkeypatch.setattr(worker.client, "patch", refuse)
    await patch_job(worker, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":1}'}}})
    await reconcile(worker)
    assert await shown(worker) == ("", "")
    await worker.client.delete(PODS, "a", NAMESPACE)
    await worker.client.delete(PODS, "b", NAMESPACE)
    await given_pods(worker, *prepared(KAI, "c"))
    await worker.sync()
    await reconcile(worker)
    assert await shown(worker) == ("SchedulingObjectRefused", "nobody lowers a minimum")
    assert await started(worker) == []
    monkeypatch.setattr(worker.client, "patch", patch)
    half_a_minute_later(worker)
    await reconcile(worker)
    [group] = await pod_groups(worker)
    assert group["spec"]["minMember"] == 1
    assert await started(worker) == ["c"]


async def test_an_object_of_somebody_else_is_left_alone_until_it_is_gone(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    theirs = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "job-train", "namespace": NAMESPACE},
        "spec": {"minMember": 9},
    }
    await worker.client.create(POD_GROUPS, theirs)
    await reconcile(worker)
    reason, message = await shown(worker)
    assert reason == "SchedulingObjectRefused"
    assert "already exists" in message
    [group] = await pod_groups(worker)
    assert group["spec"] == {"minMember": 9}
    await worker.client.delete(POD_GROUPS, "job-train", NAMESPACE)
    half_a_minute_later(worker)
    await reconcile(worker)
    assert await started(worker) == ["a"]


async def test_an_object_of_an_earlier_job_of_the_name_is_left_alone(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    theirs = {
        "apiVersion": POD_GROUPS.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "job-train", "namespace": NAMESPACE, "labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN}},
        "spec": {"minMember": 9},
    }
    await worker.create(POD_GROUPS, theirs)
    await reconcile(worker)
    assert (await shown(worker))[0] == "SchedulingObjectExists"
    assert await started(worker) == []
    [group] = await pod_groups(worker)
    assert group["spec"] == {"minMember": 9}


async def test_a_pod_without_what_its_template_says_does_not_start_alone(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a", lost=True), granted=1)
    await reconcile(worker)
    reason, message = await shown(worker)
    assert reason == "SchedulingPruned"
    assert "pod a lacks label kai.scheduler/queue" in message
    assert await started(worker) == []


@pytest.mark.parametrize("is_served", [True, False], ids=["forbidden", "not served"])
async def test_a_backend_that_cannot_be_used_any_more_is_told(worker: Worker, is_served: bool) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    if is_served:
        worker.store.forbidden_schedulers["kai"] = "its agent may not create podgroups"
    else:
        worker.store.unserved_objects["podgroups.scheduling.run.ai/v2alpha2"] = "the definition is missing"
    assert worker.store.schedulers.usable == ["default"]
    await reconcile(worker)
    reason, message = await shown(worker)
    assert reason == "SchedulerUnusable"
    assert message.startswith("the scheduler backend kai cannot be used: ")
    assert await started(worker) == []


async def test_a_job_all_of_whose_pods_run_waits_for_nothing(worker: Worker) -> None:
    await given(worker, KAI, *prepared(KAI, "a"), granted=1)
    await reconcile(worker)
    assert await started(worker) == ["a"]
    worker.store.unserved_objects["podgroups.scheduling.run.ai/v2alpha2"] = "the definition is missing"
    await reconcile(worker)
    assert await shown(worker) == ("", "")
    granted = {api_names.GRANTED_ANNOTATION: '{"main":2}'}
    await patch_job(worker, {"metadata": {"annotations": granted}, "spec": {"parallelism": 2}})
    await given_pods(worker, *prepared(KAI, "b"))
    await worker.sync()
    await reconcile(worker)
    assert (await shown(worker))[0] == "SchedulerUnusable"
    assert await started(worker) == ["a"]


async def test_a_pod_gang_names_its_pods_is_initialized_once_and_lets_them_start(worker: Worker) -> None:
    await given(worker, GROVE, *prepared(GROVE, "a"), granted=2)
    await reconcile(worker)

    async def pod_gang() -> tuple[list[str], str, int]:
        [found] = (await worker.client.list(POD_GANGS, namespace=NAMESPACE)).items
        [group] = found["spec"]["podgroups"]
        [condition] = found["status"]["conditions"]
        named = [each["name"] for each in group["podReferences"]]
        return named, f"{condition['status']} {condition['reason']}", group["minReplicas"]

    assert await pod_gang() == ([], "False PodGangPodsCreationPending", 2)
    await given_pods(worker, *prepared(GROVE, "b"))
    await worker.sync()
    await reconcile(worker)
    assert await pod_gang() == (["a", "b"], "True PodGangPodsCreated", 2)
    assert await started(worker) == ["a", "b"]
    await patch_job(worker, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: '{"main":3}'}}})
    await given_pods(worker, *prepared(GROVE, "c"))
    await worker.sync()
    await reconcile(worker)
    assert await pod_gang() == (["a", "b", "c"], "True PodGangPodsCreated", 2)
    assert await started(worker) == ["a", "b", "c"]


# --- which backend a new job gets ----------------------------------------------------------------------------------


def known(*profiles: str, unserved: bool = False) -> Schedulers:
    missing = {"podgroups.scheduling.run.ai/v2alpha2": "the definition is missing"} if unserved else {}
    enabled = tuple(map(Profile, profiles)) or NO_PROFILES
    return Schedulers(enabled, unserved=missing, forbidden={}, caches={})


def order(**labels: str) -> WorkloadSpec:
    made = a_spec()
    metadata = made.manifest["metadata"] | {"labels": labels}
    return msgspec.structs.replace(made, manifest=made.manifest | {"metadata": metadata})


CHOICES: dict[str, tuple[Schedulers, dict[str, str], str]] = {
    "no profiles": (known(), {}, "default"),
    "the first profile": (known("volcano", "default"), {}, "volcano"),
    "the label": (known("default", "volcano"), {api_names.SCHEDULER_LABEL: "volcano"}, "volcano"),
}


@pytest.mark.parametrize(("schedulers", "labels", "expected"), CHOICES.values(), ids=CHOICES.keys())
def test_a_job_gets_the_backend_that_it_chooses(schedulers: Schedulers, labels: dict[str, str], expected: str) -> None:
    view = msgspec.structs.replace(a_view(None), schedulers=schedulers)
    assert scheduling.ensure_usable(view, order(**labels)).name == expected


REFUSALS: dict[str, tuple[Schedulers, dict[str, str], str, str]] = {
    "it is not enabled": (
        known("default", "kube"),
        {api_names.SCHEDULER_LABEL: "kai"},
        "SchedulerNotEnabled",
        "its agent enables no scheduler backend kai: it has default, kube",
    ),
    "it is not served": (
        known("default", "kai", unserved=True),
        {api_names.SCHEDULER_LABEL: "kai"},
        "SchedulerUnusable",
        "the scheduler backend kai cannot be used: the definition is missing",
    ),
    "the job does not fit": (
        known("kai"),
        {},
        "QueueNotSet",
        "KAI needs a queue: name one by the label kai.scheduler/queue, or in the profile of the cluster's agent",
    ),
}


@pytest.mark.parametrize(("schedulers", "labels", "reason", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_an_order_is_refused_with_the_reason(
    schedulers: Schedulers, labels: dict[str, str], reason: str, message: str
) -> None:
    view = msgspec.structs.replace(a_view(None), schedulers=schedulers)
    with pytest.raises(RefusedOrder, match=re.escape(message)) as refused:
        scheduling.ensure_usable(view, order(**labels))
    assert refused.value.reason == reason


def test_a_new_job_carries_what_its_backend_gives_the_pods() -> None:
    view = msgspec.structs.replace(a_view(None), schedulers=known("default", "volcano"))
    made = [
        command.manifest
        for step in orders.workload_spec(order(**{api_names.SCHEDULER_LABEL: "volcano"}), EAST)
        for command in step.decide(view)
        if isinstance(command, Create) and command.resource == JOBS
    ]
    [job] = made
    assert annotations.scheduler(job) == "volcano"
    assert job["spec"]["template"]["spec"]["schedulerName"] == "volcano"
    assert job["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job-train"
