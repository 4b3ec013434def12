"""Granted pods of a declared kind that nobody can make: what stands between the job and its pods says why."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.act.pod_refusals import PodRefusals
from slicebus.agent.decide.job import waiting
from slicebus.agent.decide.pods import pod_refusals
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, PodsRefusal, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Patch
from slicebus.kube.lists import ListPage
from slicebus.kube.resources import JOB_RESOURCES, JOBS
from slicebus.proto.messages import JobRef, Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_REFUSED, Waiting
from unit.agent.objects import KEY, a_job, a_pod
from unit.agent.test_pod_refusals import DENIED, NOW, REFUSED, SINCE, TEXT, Cluster, an_event, made
from unit.kube.loop_time import LoopTime
from unit.slices.jobs.declared import DECLARED, DEPLOYMENT, a_deployment, a_group_set, a_jobset

FORBIDDEN = f'pods "demo-6d5f9c7b9-{{}}" is forbidden: {TEXT}'
FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": FORBIDDEN.format("x7k2p")}
NOTHING = PodsRefusal()


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in DECLARED.items():
        monkeypatch.setitem(KINDS, name, kind)


def a_view(job: Manifest, *conditions: Manifest, pods: int = 0) -> WorkerView:
    """A job of a declared kind as its agent made it, with so many pods."""
    kind, name = job["kind"], job["metadata"]["name"]
    ref, counts = JobRef(job["apiVersion"], kind, "team", name, "manager-uid"), KINDS[kind].counts(job, job)
    at = annotations.job_metadata(ref, workload="w1", version=1, grant=counts)
    metadata = job["metadata"] | {"uid": "worker-uid", "generation": 1, "creationTimestamp": "2026-01-31T10:00:00Z"}
    there = KINDS[kind].worker_copy(job, {}) | {"metadata": metadata | at, "status": {"conditions": [*conditions]}}
    return WorkerView(
        key=JobKey(kind, "team", name),
        job=there,
        reading=WorkerJobReading.from_manifest(there),
        scale_target=there,
        pods=tuple(Pod.from_manifest(a_pod(f"p{number}")) for number in range(pods)),
        refused_pods=NOTHING,
    )


def a_view_of_one(*conditions: Manifest, pods: int = 0) -> WorkerView:
    return a_view(a_deployment(replicas=3), *conditions, pods=pods)


FOUND: dict[str, tuple[Manifest, int, PodsRefusal]] = {
    "no pod can be made": (FAILURE, 0, REFUSED),
    "one is there": (FAILURE, 1, REFUSED),
    "all are there": (FAILURE, 3, NOTHING),
    "a webhook's": (FAILURE | {"message": DENIED}, 0, PodsRefusal(PODS_REFUSED, DENIED)),
    "it is over": (FAILURE | {"status": "False"}, 0, NOTHING),
    "one that cannot be deleted": (FAILURE | {"reason": "FailedDelete"}, 0, NOTHING),
    "KubeRay's, which tells it by an Event": (FAILURE | {"reason": "FailedCreateHeadPod"}, 0, NOTHING),
    "without a message": (FAILURE | {"message": None}, 0, PodsRefusal(PODS_REFUSED, "")),
}


@pytest.mark.parametrize(("condition", "pods", "refusal"), FOUND.values(), ids=FOUND.keys())
def test_a_deployment_says_it_itself(condition: Manifest, pods: int, refusal: PodsRefusal) -> None:
    assert pod_refusals.by_status(a_view_of_one(condition, pods=pods)) == refusal


def test_it_is_shown_once_for_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOB_RESOURCES, "Deployment", DEPLOYMENT.resource)
    view = a_view_of_one(FAILURE)
    [patch] = waiting.reconcile(view, now=SINCE)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    assert view.job is not None
    view.job["metadata"]["annotations"] |= patch.body["metadata"]["annotations"]
    shown = Waiting.from_manifest(view.job)
    assert shown is not None
    assert (shown.reason, shown.message) == (PODS_REFUSED, f"3 pods cannot be made and hold their quota: {TEXT}")
    view.job["status"]["conditions"] = [FAILURE | {"message": FORBIDDEN.format("9bvw4")}]
    assert waiting.reconcile(view, now=SINCE) == []


def about(name: str, *, kind: str = "ReplicaSet", text: str = TEXT, at: str = "11:59:00") -> Manifest:
    return an_event(text, at=at, involvedObject={"kind": kind, "name": name, "uid": f"uid-{name}"})


def told_by(*events: Manifest, others: tuple[str, ...] = (), namesakes: Iterable[WorkerView] = ()) -> list[str]:
    """The names of the objects whose Events count, beside other jobs of the namespace."""
    own = a_view_of_one()
    has_job = {own.key.name, *others}.__contains__
    counted = pod_refusals.of_makers(events, own, has_job=has_job, namesakes=namesakes)
    return [event["involvedObject"]["name"] for event in counted]


def test_the_makers_are_known_by_their_name() -> None:
    names = ("demo-6d5f9c7b9", "demo", "demolition-6d5f9c7b9", "a-demo", "", "demo-2-x7k2p", "demo-2", "demo-20")
    events = [*map(about, names), an_event(), an_event(involvedObject=None)]
    assert told_by(*events) == ["demo-6d5f9c7b9", "demo", "demo-2-x7k2p", "demo-2", "demo-20"]
    assert told_by(*events, others=("demo-2",)) == ["demo-6d5f9c7b9", "demo", "demo-20"], "another job is called so"


def test_what_another_job_with_the_same_name_has_is_no_maker() -> None:
    """By its own kind, or by what has made its pods."""
    pod = a_pod("p")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "demo-w-0", "uid": "uid-demo-w-0", "controller": True}
    owned = Pod.from_manifest(pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}})
    jobset = structs.replace(a_view(a_jobset()), pods=(owned,))
    events = [about("demo", kind="JobSet"), about("demo-w-0", kind="Job"), about("demo", kind="StatefulSet")]
    of_another_group = about("demo", kind="JobSet")
    of_another_group["involvedObject"]["apiVersion"] = "example.com/v1"
    events += [of_another_group, about("demo-6d5f9c7b9")]
    assert told_by(*events, namesakes=[jobset]) == ["demo", "demo", "demo-6d5f9c7b9"]
    assert len(told_by(*events)) == len(events), "without that job they are its own, as far as anybody knows"


def test_the_newest_of_many_count() -> None:
    events = [about(f"demo-{number}", at=f"11:{number}:00") for number in (20, 10, *range(30, 38))]
    assert told_by(*events) == [f"demo-{number}" for number in range(37, 29, -1)]


@pytest.mark.parametrize(
    ("job", "event"),
    [
        (a_deployment(), about("demo-6d5f9c7b9", text=f"Error creating: {FORBIDDEN}")),
        (a_jobset(), about("demo-workers-1", kind="Job", text=f"Error creating: {FORBIDDEN}")),
        (a_group_set(), about("demo", kind="StatefulSet", text=f"create Pod demo-0 failed error: {FORBIDDEN}")),
    ],
    ids=["a Deployment", "a JobSet", "a LeaderWorkerSet"],
)
def test_what_they_say_is_the_jobs(job: Manifest, event: Manifest) -> None:
    view = a_view(job)
    [counts] = pod_refusals.of_makers([event], view, has_job={"demo"}.__contains__)
    assert pod_refusals.why([counts], NOW, view=view) == REFUSED


async def asked(monkeypatch: pytest.MonkeyPatch, *, has_makers: bool) -> tuple[list[str], dict[JobKey, PodsRefusal]]:
    """The field selectors of the Events that an agent reads about a job without pods, and what it knows then."""
    monkeypatch.setattr("slicebus.agent.act.pod_refusals.now", lambda: NOW)
    monkeypatch.setattr(KINDS["Job"], "pod_owners", None if has_makers else frozenset())
    store, cluster = AgentStore(), _Namespace()
    store.cache_of(JOBS).put(made(a_job(1)))  # type: ignore[union-attr]
    cluster.events = [about(f"{KEY.name}-6d5f9c7b9"), about("another-6d5f9c7b9", text="no")]
    refusals = PodRefusals(store, cluster, changed=lambda _: None)  # type: ignore[arg-type]
    running = asyncio.create_task(refusals.run())
    refusals.note(KEY)
    await asyncio.sleep(16)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return cluster.asked, dict(store.refused_pods.items())


class _Namespace(Cluster):
    """Has no Event about a job itself."""

    async def list(self, resource: Any, *, fields: str, **how: Any) -> ListPage:
        page = await super().list(resource, fields=fields, **how)
        return page if fields == pod_refusals.OF_MAKERS else ListPage(items=[], resource_version="1", continue_token="")


async def test_the_events_of_the_namespace_are_read_for_a_kind_that_has_makers(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "involvedObject.uid=worker-uid,type=Warning"
    assert await asked(monkeypatch, has_makers=False) == ([own], {KEY: NOTHING})
    assert await asked(monkeypatch, has_makers=True) == ([own, "reason=FailedCreate,type=Warning"], {KEY: REFUSED})


async def test_the_events_of_a_namespace_are_read_once_a_round(
    jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicebus.agent.act.pod_refusals.now", lambda: NOW)
    monkeypatch.setattr(KINDS["Job"], "pod_owners", None)
    store, cluster = AgentStore(), _Namespace()
    keys = [structs.replace(KEY, name=name) for name in ("train", "tune")]
    for key in keys:
        store.cache_of(JOBS).put(made(a_job(1), name=key.name))  # type: ignore[union-attr]
    cluster.events = [about(f"{key.name}-6d5f9c7b9") for key in keys]
    refusals = PodRefusals(store, cluster, changed=lambda _: None)  # type: ignore[arg-type]
    running = asyncio.create_task(refusals.run())
    for key in keys:
        refusals.note(key)
    await asyncio.sleep(16)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert cluster.asked.count(pod_refusals.OF_MAKERS) == 1
    assert dict(store.refused_pods.items()) == dict.fromkeys(keys, REFUSED)


def test_a_job_is_known_by_its_name() -> None:
    store = AgentStore()
    store.cache_of(JOBS).put(made(a_job(1)))  # type: ignore[union-attr]
    assert store.has_job(KEY.namespace, KEY.name)
    assert not store.has_job(KEY.namespace, f"{KEY.name}-2")
    assert not store.has_job("other", KEY.name)
