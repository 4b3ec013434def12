"""The pod that KubeRay runs to clean up Redis: it needs no grant, and is no pod of the head's pod set."""

from typing import Any

import pytest

from slicebus.agent.decide import catalog
from slicebus.agent.decide.cluster.capacity import within_grant
from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import PatchEach
from slicebus.kube.resources import JOBS, PODS, RAYCLUSTERS, RAYJOBS, Resource
from slicebus.proto.messages import Applied, JobRef, PodSetStatus
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod, is_gated
from unit.agent.objects import NOW, a_copy, a_pod
from unit.agent.worker import Worker

Manifest = dict[str, Any]
CLUSTER = JobRef("ray.io/v1", "RayCluster", "team", "train", "manager-uid")
RAYJOB = JobRef("ray.io/v1", "RayJob", "team", "train", "manager-uid")
HEAD = {"spec": {"containers": [{"name": "ray", "image": "i"}]}}


def a_cluster(*, granted: int = 1, going: bool = True) -> Manifest:
    """A worker's RayCluster of a head."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": "worker-uid",
            "resourceVersion": "10",
            "generation": 1,
            **annotations.job_metadata(CLUSTER, workload="w1", version=1, grant={"head": granted}),
            **({"deletionTimestamp": NOW} if going else {}),
        },
        "spec": {"headGroupSpec": {"template": HEAD}},
    }


def a_rayjob() -> Manifest:
    """A worker's RayJob that is suspended."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": "worker-uid",
            "resourceVersion": "10",
            **annotations.job_metadata(RAYJOB, workload="w1", version=2, grant={}),
        },
        "spec": {"suspend": True, "entrypoint": "true", "rayClusterSpec": {"headGroupSpec": {"template": HEAD}}},
    }


def a_cleanup_pod(
    *, gated: bool = True, owner: str = "Job", labels: dict[str, str | None] | None = None, **how: Any
) -> Manifest:
    """The pod of KubeRay's Job; a label that is None is missing."""
    pod = a_pod("train-redis-cleanup-x", gated=gated, phase="Pending" if gated else "Running", **how)
    given = {
        kueue.POD_SET_LABEL: "head",
        api_names.MANAGER_UID_LABEL: "manager-uid",
        "batch.kubernetes.io/job-name": "train-redis-cleanup",
        "ray.io/cluster": "train",
        "ray.io/node-type": "redis-cleanup",
        **(labels or {}),
    }
    pod["metadata"] |= {
        "labels": {name: value for name, value in given.items() if value is not None},
        "ownerReferences": [{"kind": owner, "name": "train-redis-cleanup", "uid": "u", "controller": True}],
    }
    return pod


def a_view(job: Manifest | None, *pods: Manifest, copies: tuple[Manifest, ...] = ()) -> WorkerView:
    return WorkerView(
        key=JobKey("RayCluster", "team", "train"),
        job=job,
        reading=WorkerJobReading.from_manifest(job) if job else None,
        scale_target=job,
        copies=copies,
        pods=tuple(map(Pod.from_manifest, pods)),
    )


def ungated(view: WorkerView) -> list[str]:
    commands = reconcile.ungate_cleanups(view)
    assert all(isinstance(command, PatchEach) and command.lets_start for command in commands)
    patches = [patch for command in commands if isinstance(command, PatchEach) for patch in command.patches]
    return [patch.target["metadata"]["name"] for patch in patches]


@pytest.mark.parametrize(
    "job",
    [a_cluster(), a_cluster(granted=0), a_cluster(going=False), None],
    ids=["going", "without a grant", "not going", "gone"],
)
def test_it_starts_whatever_is_granted_and_whether_the_job_is_there_or_not(job: Manifest | None) -> None:
    assert ungated(a_view(job, a_cleanup_pod())) == ["train-redis-cleanup-x"]


NOT_IT: dict[str, Manifest] = {
    "started": a_cleanup_pod(gated=False),
    "the head": a_cleanup_pod(labels={"ray.io/node-type": "head"}, owner="RayCluster"),
    "a head that somebody has relabelled": a_cleanup_pod(owner="RayCluster"),
    "a submitter that its user has labelled": a_cleanup_pod(labels={kueue.POD_SET_LABEL: "submitter"}),
    "a Job's that its user has labelled": a_cleanup_pod(labels={kueue.POD_SET_LABEL: "main"}),
    "not of a job of ours": a_cleanup_pod(labels={api_names.MANAGER_UID_LABEL: None}),
}


@pytest.mark.parametrize("pod", NOT_IT.values(), ids=NOT_IT.keys())
def test_no_other_pod_starts_without_a_grant(pod: Manifest) -> None:
    assert ungated(a_view(a_cluster(), pod)) == []


def test_it_takes_nothing_of_the_heads_grant() -> None:
    head = a_cleanup_pod(labels={"ray.io/node-type": "head"}, owner="RayCluster")
    head["metadata"]["name"] = "train-head"
    view = a_view(
        a_cluster(going=False), a_cleanup_pod(gated=False), head, copies=(a_copy(of=CLUSTER, pod_sets=("head",)),)
    )
    [command] = reconcile.ungate(view)
    assert isinstance(command, PatchEach)
    assert [patch.target["metadata"]["name"] for patch in command.patches] == ["train-head"]


@pytest.mark.parametrize("gated", [True, False], ids=["gated", "running"])
def test_it_is_counted_nowhere(gated: bool) -> None:
    bound = a_cleanup_pod(gated=gated)
    bound["spec"]["nodeName"] = "n"
    copy = a_copy(of=CLUSTER)
    copy["metadata"]["annotations"][api_names.FLAVORS_ANNOTATION] = '{"head":{"cpu":"f"}}'
    view = a_view(a_cluster(going=False), bound, copies=(copy,))
    status = reconcile.status(view)
    assert status is not None
    assert status.pods == {}
    assert view.running == set()
    assert list(within_grant(view)) == []
    beside = a_view(a_cluster(going=False), bound, a_pod("train-head", pod_set="head", ready=True))
    status = reconcile.status(beside)
    assert status is not None
    assert status.pods == {"head": PodSetStatus(ready=1, total=1, requests={"cpu": "1"})}


def put(worker: Worker, resource: Resource, job: Manifest) -> None:
    """A job that the watch has brought."""
    cache = worker.store.cache_of(resource)
    assert cache is not None
    cache.put(job)


async def given(worker: Worker, pod: Manifest) -> None:
    """The pod, and the Job that owns it."""
    spec = {"template": {"spec": pod["spec"]}, "suspend": True}
    metadata = {"name": "train-redis-cleanup", "namespace": "team", "labels": pod["metadata"]["labels"]}
    job = await worker.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    kept = {name: value for name, value in pod["metadata"].items() if name not in ("uid", "resourceVersion")}
    [owner] = kept["ownerReferences"]
    owner |= {"apiVersion": "batch/v1", "uid": job["metadata"]["uid"]}
    await worker.create(PODS, pod | {"metadata": kept})


@pytest.mark.parametrize("there", [True, False], ids=["suspended", "deleted"])
async def test_the_one_of_a_rayjob_starts_while_the_job_is_suspended_or_gone(worker: Worker, there: bool) -> None:
    """KubeRay deletes the RayCluster of a suspended RayJob; that of a deleted one goes after it."""
    key = JobKey("RayJob", "team", "train")
    labels = {api_names.RAYJOB_LABEL: "train", "ray.io/cluster": "train-x7k2p"}
    woken: list[JobKey] = []
    worker.store.on_change(woken.append)
    await given(worker, a_cleanup_pod(labels=labels))
    assert woken == [key]
    if there:
        put(worker, RAYJOBS, a_rayjob())
    await worker.reconciler.reconcile_job(key)
    found = await worker.client.get(PODS, "train-redis-cleanup-x", "team")
    assert not is_gated(found)
    confirmed = [message for message in worker.published if isinstance(message, Applied)]
    assert confirmed == ([Applied(job=RAYJOB, workload="w1", spec_version=2)] if there else [])


async def test_the_job_of_kuberay_is_nobodys(worker: Worker) -> None:
    woken: list[JobKey] = []
    worker.store.on_change(woken.append)
    await given(worker, a_cleanup_pod())
    assert woken == [JobKey("RayCluster", "team", "train")]
    assert worker.store.view(JobKey("Job", "team", "train-redis-cleanup")).pods == ()


async def test_it_does_not_start_while_the_fence_is_closed(worker: Worker) -> None:
    put(worker, RAYCLUSTERS, a_cluster())
    await given(worker, a_cleanup_pod())
    key = JobKey("RayCluster", "team", "train")
    for fenced in (True, False):
        work = catalog.reconcile_job(worker.store, key=key, fenced=fenced, now_s=0.0, now="2026-01-31T12:00:00Z")
        assert any(isinstance(command, PatchEach) for command in work.commands) is not fenced
