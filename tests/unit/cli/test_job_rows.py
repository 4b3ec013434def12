"""`slicebus jobs`: the state of a job in one word, its size, and why it waits."""

from typing import Any

import pytest

from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import Output, OutputFormat
from slicebus.cli.jobs.command import JobFilter
from slicebus.cli.jobs.rows import COLUMNS, JobRow, in_order, shown_refs
from slicebus.cli.live.observation import observe, reported_pods
from slicebus.manager.decide.explain import explain
from slicebus.manager.decide.problems import ALL, Sight
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import PODS_NOT_RUNNING
from unit.manager.objects import REF, a_job, a_workload, asking, condition
from unit.manager.test_explain import a_store
from unit.manager.test_pod_problems import SHOWN

Manifest = dict[str, Any]
READY = condition("PodsReady")


def the_row(store: ManagerStore, sight: Sight = ALL) -> JobRow:
    return JobRow.of(store, REF, sight)


def admitted(count: int = 2, *, conditions: tuple[Manifest, ...] = (), **how: Any) -> Manifest:
    return a_workload(count=count, admitted=count, dispatched=1, applied=1, conditions=conditions, **how)


def suspended(job: Manifest) -> Manifest:
    return job | {"spec": job["spec"] | {"suspend": True}}


def finished(workload: Manifest) -> Manifest:
    conditions = [*workload["status"]["conditions"], condition("Finished", True, "Succeeded")]
    return workload | {"status": workload["status"] | {"conditions": conditions}}


def ready(job: Manifest, count: int) -> Manifest:
    return job | {"status": {"ready": count}}


STATES: dict[str, tuple[ManagerStore, ShownState]] = {
    "no queue": (a_store(a_job(2, managed=False)), ShownState.UNMANAGED),
    "no slice yet": (a_store(a_job(2)), ShownState.PENDING),
    "waits for quota": (a_store(a_job(2), a_workload(count=2)), ShownState.PENDING),
    "not taken": (
        a_store(a_job(2) | {"status": {"conditions": [condition(api_names.ACCEPTED_CONDITION, False)]}}),
        ShownState.REFUSED,
    ),
    "suspended": (a_store(suspended(a_job(2))), ShownState.SUSPENDED),
    "admitted": (a_store(a_job(2), admitted()), ShownState.ADMITTED),
    "a pod is ready": (a_store(ready(a_job(2), 1), admitted()), ShownState.RUNNING),
    "all pods were ready": (a_store(a_job(2), admitted(conditions=(READY,))), ShownState.RUNNING),
    "grows": (a_store(asking(2, 4), admitted(conditions=(READY,))), ShownState.RESIZING),
    "its cluster is silent": (
        a_store(a_job(2), admitted(conditions=(READY,)), connected=False),
        ShownState.UNKNOWN,
    ),
    "evicted": (
        a_store(a_job(2), admitted(conditions=(condition("Evicted", True, "Preempted"),))),
        ShownState.EVICTING,
    ),
    "complete": (a_store(a_job(2, over="Complete"), admitted()), ShownState.SUCCEEDED),
    "failed": (a_store(a_job(2, over="Failed"), admitted()), ShownState.FAILED),
    "deleted": (a_store(a_job(2, deleting=True), admitted()), ShownState.DELETING),
}


@pytest.mark.parametrize(("store", "state"), STATES.values(), ids=STATES.keys())
def test_the_state_of_a_job(store: ManagerStore, state: ShownState) -> None:
    assert the_row(store).state is state


def test_why_granted_pods_do_not_run() -> None:
    job = a_job(1, annotations={api_names.WAITING_ANNOTATION: SHOWN.to_annotation()})
    row = the_row(a_store(job, a_workload(admitted=1, dispatched=1, applied=1)))
    assert (row.state, row.reason, row.message) == (ShownState.ADMITTED, PODS_NOT_RUNNING, SHOWN.message)


def test_every_state_is_tested() -> None:
    assert {state for _, state in STATES.values()} == set(ShownState)


def test_the_size_of_a_job_that_grows_and_why_it_waits() -> None:
    message = "couldn't assign flavors to pod set main: insufficient unused quota"
    pending = a_workload("w2", 4, replaces="w1", conditions=(condition("QuotaReserved", False, "Pending", message),))
    row = the_row(a_store(asking(2, 4), admitted(conditions=(READY,)), pending))
    assert (row.wanted, row.granted, row.ready) == ({"main": 4}, {"main": 2}, 2)
    assert (row.reason, row.message) == ("Pending", message)
    assert (row.queue, row.cluster_queue, row.cluster) == ("queue", "cq", "east")


def test_a_job_that_waits_after_its_eviction_is_on_no_cluster() -> None:
    """Its Workload names the one that it had, which has its suspended copy: it may go to another one."""
    evicting = admitted(conditions=(condition("Evicted", True, "Preempted"),))
    waiting = evicting | {"status": {name: value for name, value in evicting["status"].items() if name != "admission"}}
    waiting["status"]["conditions"] = [condition("Evicted", True, "Preempted"), condition("QuotaReserved", False)]
    store = a_store(a_job(2), waiting)
    assert (store.view(REF).cluster, waiting["status"]["clusterName"]) == ("east", "east")
    row, explanation = the_row(store), explain(store, REF)
    [seen] = observe(store, [REF], reported_pods).jobs
    assert (row.state, row.cluster, explanation.cluster, seen.cluster) == (ShownState.PENDING, "", "", "")
    assert the_row(a_store(a_job(2), evicting)).cluster == "east", "until its quota is given back"
    assert the_row(a_store(a_job(2, over="Complete"), finished(waiting))).cluster == "east", "where it ran"


def test_what_the_pods_of_a_silent_cluster_do_is_not_told() -> None:
    row = the_row(a_store(a_job(2), admitted(conditions=(READY,)), connected=False))
    assert (row.granted, row.ready) == ({"main": 2}, None)
    assert row.why == "cluster east is not connected: what it does is not known"


def test_who_may_not_see_the_clusters_is_told_what_was_reported() -> None:
    store = a_store(a_job(2), admitted(conditions=(READY,)), connected=False)
    store.clusters.clear()
    row = the_row(store, Sight(quota=False, clusters=False))
    assert (row.state, row.ready, row.why) == (ShownState.RUNNING, 2, "")


def test_the_reason_that_only_the_manager_knew_is_read_from_the_job() -> None:
    waiting = (
        '{"wanted":{"main":9},"granted":{"main":2},"reason":"PastBounds","message":"too large","since":"'
        '2026-01-01T00:00:00Z"}'
    )
    job = a_job(2, annotations={api_names.WAITING_ANNOTATION: waiting})
    assert the_row(a_store(job, admitted(conditions=(READY,)))).why == "PastBounds: too large"


def test_beside_a_kueue_a_suspended_job_is_one_that_waits() -> None:
    """Kueue itself suspends it."""
    store = a_store(suspended(a_job(2)), a_workload(count=2))
    store.admission_checks.put(
        {
            "metadata": {"name": "slicebus", "uid": "check", "resourceVersion": "1"},
            "spec": {"controllerName": api_names.CHECK_CONTROLLER},
        }
    )
    assert the_row(store).state is ShownState.PENDING


def test_a_job_that_ended_badly_says_so() -> None:
    assert the_row(a_store(a_job(2, over="Failed"), admitted())).why == "so it ended"


def test_foreign_jobs_are_left_out() -> None:
    store = a_store(a_job(2, managed=False, annotations={"kueue.x-k8s.io/elastic-job": "false"}))
    assert list(shown_refs(store)) == []
    assert list(shown_refs(a_store(a_job(2)))) == [REF]


def named(namespace: str, name: str, **changes: Any) -> JobRow:
    fields: dict[str, Any] = {
        "kind": "Job",
        "state": ShownState.RUNNING,
        "queue": "main",
        "cluster_queue": "batch",
        "priority": 100,
        "cluster": "east",
        "wanted": {"main": 2},
        "granted": {"main": 2},
        "ready": 2,
        "created": "",
        "reason": "",
        "message": "",
    }
    return JobRow(namespace=namespace, name=name, **fields | changes)


def test_jobs_are_sorted_as_kubectl_does() -> None:
    rows = in_order([named("b", "a"), named("a", "b"), named("a", "a")])
    assert [(row.namespace, row.name) for row in rows] == [("a", "a"), ("a", "b"), ("b", "a")]


@pytest.mark.parametrize(
    ("wanted", "is_taken"),
    [
        (JobFilter(), True),
        (JobFilter(state=ShownState.RUNNING, cluster="east"), True),
        (JobFilter(state=ShownState.PENDING), False),
        (JobFilter(queue="main"), True),
        (JobFilter(queue="batch"), True),
        (JobFilter(queue="other"), False),
        (JobFilter(cluster="west"), False),
        (JobFilter(reason="podsnotrunning"), True),
        (JobFilter(reason="Pending"), False),
    ],
)
def test_filters(wanted: JobFilter, is_taken: bool) -> None:
    assert wanted.takes(named("a", "a", reason=PODS_NOT_RUNNING)) is is_taken


def test_the_priority_is_that_of_the_newest_slice() -> None:
    slice = a_workload(count=2)
    slice["spec"]["priority"] = 100
    assert the_row(a_store(a_job(2), slice)).priority == 100
    assert the_row(a_store(a_job(2))).priority is None


def test_a_table_of_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = named(
        "a", "wide", state=ShownState.PENDING, cluster="", granted={}, ready=0, reason="Pending", message="no quota"
    )
    Listing(COLUMNS, OutputFormat()).show([named("a", "sweep", ready=None), waiting])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    KIND   STATE     QUEUE   CLUSTER   WANTED   GRANTED   READY   AGE     WHY",
        "sweep   Job    Running   main    east      2        2         ?       never",
        "wide    Job    Pending   main    -         2        0         0       never   Pending: no quota",
    ]
    Listing(COLUMNS, OutputFormat(output=Output.NAME)).show([waiting, named("a", "x", kind="RayCluster")])
    assert capsys.readouterr().out.splitlines() == ["job.batch/wide", "raycluster.ray.io/x"]


UNLED = Sight(unled="no manager leads since 2026-01-31T03:00:00Z")


def test_without_a_manager_nobody_knows_what_pods_do_and_a_job_that_waits_says_why() -> None:
    message = "no manager leads since 2026-01-31T03:00:00Z; this is what it wrote last"
    runs = the_row(a_store(ready(a_job(2), 2), admitted(conditions=(READY,))), UNLED)
    assert (runs.state, runs.ready, runs.reason, runs.message) == (ShownState.UNKNOWN, None, "NoManager", message)
    new = the_row(a_store(a_job(2)), UNLED)
    assert (new.state, new.reason, new.message) == (ShownState.PENDING, "NoManager", message)


def test_without_a_manager_the_last_reason_to_wait_stays() -> None:
    waits = a_store(a_job(2), a_workload(count=2, conditions=(condition("QuotaReserved", False, "Pending", "no cpu"),)))
    assert (the_row(waits, UNLED).state, the_row(waits, UNLED).why) == (the_row(waits).state, the_row(waits).why)
