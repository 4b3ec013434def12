"""The manager's store and its views of one job."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from slicebus.kube.resources import JOBS
from slicebus.manager.decide.modes import mode_of
from slicebus.manager.state.job_changes import on_job_change
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import ClusterName
from slicebus.slices.api import api_names
from unit.manager.objects import REF, WEST, a_job, a_workload, condition


def put(store: ManagerStore, manifest: dict[str, Any], **metadata: Any) -> None:
    cache = store.jobs["Job"] if manifest["kind"] == JOBS.kind else store.workloads
    cache.put(manifest | {"metadata": manifest["metadata"] | metadata})


@pytest.mark.parametrize("order", [("w1", "w2", "w3"), ("w3", "w1", "w2")], ids=["as made", "as listed"])
def test_a_view_has_the_slices_of_the_job_oldest_first(order: tuple[str, ...]) -> None:
    store = ManagerStore()
    put(store, a_job())
    for name in order:
        put(store, a_workload(name))
    view = store.view(REF)
    assert [slice.name for slice in view.slices] == ["w1", "w2", "w3"]
    assert view.workloads.keys() == {"w1", "w2", "w3"}


def test_nobody_joins_a_chain_from_another_namespace() -> None:
    store = ManagerStore()
    put(store, a_job())
    put(store, a_workload("w1"))
    put(store, a_workload("w2", admitted=9, dispatched=9), namespace="elsewhere")
    view = store.view(REF)
    assert [slice.name for slice in view.slices] == ["w1"]
    assert view.workloads.keys() == {"w1"}


def test_a_workload_that_cannot_be_read_is_known_and_no_slice() -> None:
    store = ManagerStore()
    put(store, a_job())
    broken = a_workload("w1")
    broken["spec"]["podSets"][0]["template"] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}
    put(store, broken)
    view = store.view(REF)
    assert view.slices == ()
    assert view.workloads.keys() == {"w1"}


Manifest = dict[str, Any]
Edit = Callable[[Manifest, Manifest], object]
"""Gets a job and its Workload, and changes one of them."""
READY = condition("PodsReady")
ENDED = condition("Complete")

MIRRORED: dict[str, Edit] = {
    "nothing but the version": lambda job, workload: None,
    "how many pods are ready": lambda job, workload: job["status"].update(ready=3),
    "whether they all are": lambda job, workload: workload["status"]["conditions"].append(READY),
    "who wrote what": lambda job, workload: job["metadata"].update(managedFields=[{"manager": "kubectl"}]),
}
NEWS: dict[str, Edit] = {
    "another size": lambda job, workload: job["spec"].update(parallelism=2),
    "what its worker asks for": lambda job, workload: job["metadata"]["annotations"].update(
        {api_names.REQUESTED_ANNOTATION: "{}"}
    ),
    "its end": lambda job, workload: job["status"].update(conditions=[ENDED]),
    "another condition": lambda job, workload: job["status"].update(conditions=[condition("Mine")]),
    "what its worker has applied": lambda job, workload: workload["metadata"]["annotations"].update(
        {api_names.APPLIED_ANNOTATION: "7"}
    ),
    "other counts": lambda job, workload: workload["spec"]["podSets"][0].update(count=7),
    "the loss of its quota": lambda job, workload: workload["status"].pop("admission"),
    "an eviction": lambda job, workload: workload["status"]["conditions"].append(condition("Evicted")),
    "a delete": lambda job, workload: job["metadata"].update(deletionTimestamp="2026-01-31T12:00:00Z"),
}


def requeues_after(edit: Edit, *, store: ManagerStore) -> int:
    job, workload = a_job(), a_workload(admitted=1)
    put(store, job)
    put(store, workload)
    seen: list[object] = []
    on_job_change(store, seen.append, when=mode_of(store).needs_reconcile)
    seen.clear()
    job, workload = copy.deepcopy(job), copy.deepcopy(workload)
    edit(job, workload)
    put(store, job, resourceVersion="99")
    put(store, workload, resourceVersion="99")
    assert set(seen) <= {REF}
    return len(seen)


@pytest.mark.parametrize("edit", MIRRORED.values(), ids=MIRRORED.keys())
def test_a_mirrored_status_does_not_have_the_job_reconciled(edit: Edit) -> None:
    assert requeues_after(edit, store=ManagerStore()) == 0
    beside_kueue = ManagerStore()
    beside_kueue.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
    assert requeues_after(edit, store=beside_kueue) == 2


@pytest.mark.parametrize("edit", NEWS.values(), ids=NEWS.keys())
def test_every_other_change_has_the_job_reconciled(edit: Edit) -> None:
    assert requeues_after(edit, store=ManagerStore()) == 1


CHANGES: dict[str, Edit] = {
    "other requests": lambda job, workload: job["spec"]["template"].update(spec={"containers": [{"resources": TWO}]}),
    "quota in another queue": lambda job, workload: workload["status"]["admission"].update(clusterQueue="other"),
    "other pods": lambda job, workload: workload["spec"]["podSets"][0].update(
        template={"spec": {"containers": [{"resources": TWO}]}}
    ),
    "a dispatch": lambda job, workload: workload["metadata"]["annotations"].update(
        {api_names.DISPATCHED_ANNOTATION: Dispatch(3, "hash", left_copies={"west": 3}).to_annotation()}
    ),
}
TWO = {"requests": {"cpu": "2"}}


@pytest.mark.parametrize("edit", [*NEWS.values(), *CHANGES.values()], ids=[*NEWS, *CHANGES])
def test_a_view_shows_no_state_from_before_a_change(edit: Edit) -> None:
    before = a_job(annotations={"a": "b"}), a_workload(admitted=1, dispatched=2, applied=1)
    after = copy.deepcopy(before)
    edit(*after)
    store, fresh = ManagerStore(), ManagerStore()
    for each in (store, fresh):
        each.clusters.put({"metadata": {"name": WEST, "uid": "uid-west", "resourceVersion": "1"}})
    for manifest in before:
        put(store, manifest)
    assert contents(store)["jobs left"] == []
    for manifest in after:
        put(store, manifest, resourceVersion="30")
        put(fresh, manifest, resourceVersion="30")
    assert contents(store) == contents(fresh)


def contents(store: ManagerStore) -> dict[str, Any]:
    """Everything that a store has of the job."""
    view = store.view(REF)
    assert view.reading is not None
    return {
        "view": view,
        "desired": view.desired,
        "requests": view.reading.requests,
        "jobs left": store.jobs_left_on(WEST),
    }


def test_the_jobs_on_a_cluster_are_those_whose_copy_it_has_or_shall_have() -> None:
    store = ManagerStore()
    put(store, a_job())
    put(store, a_workload("w1", admitted=1, dispatched=1, cluster="east"))
    assert store.jobs_on(ClusterName("east")) == [REF]
    assert store.jobs_on(ClusterName("west")) == []
