"""The explanation of a job: what it waits for, who is before it, and the history of its slices."""

import io
from typing import Any

import pytest
from rich.console import Console

from slicebus.cli.explain.page import page
from slicebus.cli.job_states import of_manager
from slicebus.manager.decide.admission.queue_status import FAIR_SHARING
from slicebus.manager.decide.explain import Explanation, explain
from slicebus.manager.decide.job import attempts
from slicebus.manager.state.outbox import LOST
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import ACCEPTED_CONDITION
from slicebus.slices.api.conditions import Finding, with_findings
from slicebus.slices.workload.reclaimed import Reclaimed, Taken
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import REF, a_job, a_workload, asking, condition, requested, withdrawn

Manifest = dict[str, Any]


def an_object(name: str, spec: Manifest, **more: Any) -> Manifest:
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"} | more.pop("metadata", {}),
        "spec": spec,
        **more,
    }


def a_store(job: Manifest, *workloads: Manifest, connected: bool = True, **queue: Any) -> ManagerStore:
    """A job of a queue with five cores, in a cohort."""
    store = ManagerStore()
    resources = [{"name": "cpu", "nominalQuota": "5"}, {"name": "memory", "nominalQuota": "1Gi"}]
    groups = [
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": resources}]},
    ]
    spec = {"cohortName": "org", "namespaceSelector": {}, "resourceGroups": groups} | queue
    store.flavors.put(an_object("spot", {}))
    store.cluster_queues.put(an_object("cq", spec))
    store.local_queues.put(an_object("queue", {"clusterQueue": "cq"}, metadata={"namespace": "team"}))
    status = {"conditions": [condition("Connected", connected)]}
    store.clusters.put(an_object("east", {"accepted": True, "capacity": "Unlimited"}, status=status))
    store.jobs["Job"].put(job)
    for workload in workloads:
        store.workloads.put(workload)
    return store


def of_another(name: str, count: int, **how: Any) -> Manifest:
    workload = a_workload(name, count, **how)
    workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = f"uid-{name}"
    workload["metadata"]["ownerReferences"][0] |= {"uid": f"uid-{name}", "name": name}
    return workload


def explained(job: Manifest, *workloads: Manifest, connected: bool = True) -> Explanation:
    return explain(a_store(job, *workloads, connected=connected), REF)


def test_a_job_that_runs_as_it_wants() -> None:
    explanation = explained(a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1))
    assert (explanation.job, explanation.local_queue, explanation.cluster_queue, explanation.cohort) == (
        "Job/team/train",
        "queue",
        "cq",
        "org",
    )
    assert (explanation.cluster, explanation.wanted, explanation.wanted_by, explanation.granted) == (
        "east",
        {"main": 2},
        "its spec",
        {"main": 2},
    )
    assert (explanation.problems, explanation.waiting) == ((), ())
    [cpu] = explanation.quota
    assert (cpu.flavor, cpu.resource, cpu.nominal, cpu.used, cpu.by_this_job, cpu.available) == (
        "spot", "cpu", "5", "2", "2", "3"
    )  # fmt: skip


def test_a_waiting_resize_shows_for_what_and_behind_whom() -> None:
    before, after = of_another("before", 9), of_another("after", 9)
    before["spec"]["priority"] = 10
    after["metadata"]["creationTimestamp"] = "2027-01-01T00:00:00Z"
    running = a_workload(admitted=1, dispatched=1, applied=1)
    explanation = explained(asking(1, 8), running, a_workload("w2", 8, replaces="w1"), before, after)
    assert (explanation.wanted, explanation.wanted_by) == ({"main": 8}, "asked for by its worker, generation 2")
    [waiting] = explanation.waiting
    assert (waiting.slice, waiting.size, waiting.reason) == ("w2", {"main": 8}, "Pending")
    assert "request > maximum capacity (8 > 5)" in waiting.message
    assert (waiting.position, waiting.of, waiting.ahead) == (2, 3, ("team/before",))
    assert [(entry.slice, entry.replaces) for entry in explanation.history] == [("w1", ""), ("w2", "w1")]


def test_pods_that_have_ended_are_named() -> None:
    running = a_workload(count=5, admitted=5, dispatched=1, applied=1)
    running["status"]["reclaimablePods"] = [{"name": "main", "count": 3}]
    asked = requested({"main": 2}, baseline=5, finished={"main": 3})
    running["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = asked.to_annotation()
    explanation = explained(a_job(5), running)
    assert explanation.wanted_by == "asked for by its worker, generation 2, where main=3 ended"
    assert (explanation.wanted, explanation.granted, explanation.problems[1:]) == ({"main": 2}, {"main": 2}, ())


def test_a_slice_that_fits_is_about_to_be_admitted() -> None:
    [waiting] = explained(a_job(2), a_workload(count=2)).waiting
    assert (waiting.message, waiting.position, waiting.of) == ("it fits, and is about to be admitted", 1, 1)


def test_victims_that_are_preempted_or_would_be() -> None:
    policy = {"withinClusterQueue": "LowerPriority"}
    low = of_another("low", 5, admitted=5)
    low["spec"]["priority"] = -1
    [waiting] = explain(a_store(a_job(2), low, a_workload(count=2), preemption=policy), REF).waiting
    assert waiting.victims == ("team/low",)
    assert waiting.message.endswith("Pending the preemption of 1 workload(s)")
    message = (
        "Preempted to accommodate a workload (UID: uid-w1, JobUID: u) due to prioritization in the ClusterQueue; "
        "preemptor path: /cq; preemptee path: /cq"
    )
    for type in ("Evicted", "Preempted"):
        low["status"]["conditions"].append(condition(type, True, "Preempted", message))
    [waiting] = explain(a_store(a_job(2), low, a_workload(count=2), preemption=policy), REF).waiting
    assert waiting.victims == ("team/low",)
    low["status"] |= {"admission": None}
    [waiting] = explain(a_store(a_job(2), low, a_workload(count=2), preemption=policy), REF).waiting
    assert (waiting.victims, waiting.message) == ((), "it fits, and is about to be admitted")


def test_a_preemptor_names_the_jobs_that_it_has_displaced() -> None:
    message = (
        f"Preempted to accommodate a workload (UID: uid-w1, JobUID: {REF.uid}) due to prioritization in the "
        "ClusterQueue; preemptor path: /cq; preemptee path: /cq"
    )
    low, other = (
        of_another(name, 2, conditions=(condition("Preempted", is_true, "Preempted", message),))
        for name, is_true in (("low", True), ("other", False))
    )
    taken = Taken(workload="team/w1", uid="uid-w1", job_uid=REF.uid, at="2026-01-01T00:00:00Z")
    sizes = {"before": {"main": 3}, "to": {"main": 1}}
    note = Reclaimed(id="1", at=taken.at, beneficiaries=(taken,), reason="", message="", **sizes)
    shrunk, restored = of_another("shrunk", 1, admitted=1), of_another("restored", 3, admitted=3)
    for workload in (shrunk, restored):
        workload["metadata"]["annotations"][api_names.RECLAIMED_ANNOTATION] = note.to_annotation()
    high = a_workload(count=1, admitted=1, dispatched=1, applied=1)
    high["spec"]["priority"] = 100
    explanation = explained(a_job(1), high, low, other, shrunk, restored)
    assert explanation.displaced == ("Job/team/low was preempted", "Job/team/shrunk has lost main=2")
    assert explanation.priority == 100
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(page(explanation))
    shown = console.export_text()
    assert "queue queue, of ClusterQueue cq in cohort org, priority 100" in shown
    assert "displaced Job/team/shrunk has lost main=2" in shown


def test_an_eviction_names_the_job_that_took_the_quota() -> None:
    message = (
        "Preempted to accommodate a workload (UID: uid-gone, JobUID: uid-high) due to prioritization in the "
        "ClusterQueue; preemptor path: /cq; preemptee path: /cq"
    )
    evicted = a_workload(count=2, conditions=(condition("Evicted", True, "Preempted", message),))
    [entry] = explained(a_job(2), evicted, of_another("high", 5, admitted=5)).history
    assert f"evicted: for Job/team/high: {message}" in [text for _, text in entry.steps]
    [entry] = explained(a_job(2), evicted).history
    assert f"evicted: {message}" in [text for _, text in entry.steps], "it is gone, or not this reader's to see"


PROBLEMS: dict[str, tuple[Explanation, str]] = {
    "no queue": (
        explained(a_job(managed=False)),
        "it has no label kueue.x-k8s.io/queue-name: slicebus leaves it alone",
    ),
    "not elastic": (
        explained(a_job(annotations={kueue.ELASTIC_ANNOTATION: "false"})),
        'it has no annotation kueue.x-k8s.io/elastic-job: "true": slicebus leaves it alone',
    ),
    "somebody else's": (
        explained(a_job() | {"spec": a_job()["spec"] | {"managedBy": "example.com/other"}}),
        "its spec.managedBy is not kueue.x-k8s.io/multikueue: slicebus leaves it alone",
    ),
    "not accepted": (
        explained(a_job() | {"status": {"conditions": [condition(ACCEPTED_CONDITION, False, "Bad", "it is bad")]}}),
        "Bad: it is bad",
    ),
    "the cluster is silent": (
        explained(a_job(), a_workload(admitted=1, dispatched=1, applied=1), connected=False),
        "cluster east is not connected: what it does is not known",
    ),
    "the cluster is gone": (
        explained(a_job(), a_workload(admitted=1, dispatched=1, applied=1, cluster="west")),
        "WorkerCluster west is gone",
    ),
    "on its way": (
        explained(a_job(), a_workload(admitted=1, dispatched=3, applied=2)),
        "east has not reported version 3 yet, only 2",
    ),
    "on its way out": (
        explained(a_job(), withdrawn(dispatched=3, applied=2)),
        "east has not reported version 3 yet, only 2: everything else waits until its copy is deleted there",
    ),
    "lost there": (
        explained(a_job(), a_workload(admitted=1, dispatched=3, hash=LOST, applied=3)),
        "east does not hold what it had reported: it gets a version above 3",
    ),
}


@pytest.mark.parametrize(("explanation", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_else_is_wrong(explanation: Explanation, problem: str) -> None:
    assert problem in explanation.problems


def test_the_history_of_a_slice_is_in_the_order_of_time() -> None:
    steps = tuple(
        condition(type, reason=reason) | {"lastTransitionTime": f"2026-01-01T00:0{minute}:00Z"}
        for type, reason, minute in (("Finished", "WorkloadSliceReplaced", 3), ("Admitted", "Admitted", 1))
    )
    workload = a_workload(conditions=steps)
    workload["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    [entry] = explained(a_job(), workload).history
    assert entry.steps == (
        ("2026-01-01T00:00:00Z", "created"),
        ("2026-01-01T00:01:00Z", "admitted"),
        ("2026-01-01T00:03:00Z", "finished: WorkloadSliceReplaced"),
    )


def test_earlier_admissions_stay_in_the_history_with_their_reasons() -> None:
    evicted = condition("Evicted", True, "Preempted", "for another") | {"lastTransitionTime": "2026-01-01T00:02:00Z"}
    reserved = condition("QuotaReserved", True) | {"lastTransitionTime": "2026-01-01T00:01:00Z"}
    workload = a_workload(count=2, admitted=2, conditions=(reserved, evicted))
    workload["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    gave_back = attempts.ended(workload, Slice.from_manifest(workload))
    workload["status"]["conditions"] = with_findings(workload, gave_back, now="2026-01-01T00:03:00Z")
    [entry] = explained(a_job(), workload).history
    assert [text for _, text in entry.steps].count("evicted: Preempted: for another") == 1
    now = "2026-01-01T00:05:00Z"
    conditions = with_findings(
        workload, gave_back, Finding("Evicted", False, "QuotaReserved", "Previously: …"), now=now
    )
    again = [
        entry | {"lastTransitionTime": now} if entry["type"] in ("QuotaReserved", "Admitted") else entry
        for entry in conditions
    ]
    workload["status"]["conditions"] = again
    [entry] = explained(a_job(), workload).history
    assert entry.steps[:3] == (
        ("2026-01-01T00:00:00Z", "created"),
        ("2026-01-01T00:01:00Z", "admitted on cluster east for main=2"),
        ("2026-01-01T00:02:00Z", "evicted: Preempted: for another"),
    )
    assert entry.steps[3:] == ((now, "quota reserved"), (now, "admitted"))


def test_fair_sharing_is_read_from_the_queues_condition() -> None:
    store = a_store(a_job(), a_workload())
    assert explain(store, REF).fair_sharing == "off"
    [queue] = store.cluster_queues.all()
    shown = condition(FAIR_SHARING, True, "LessThanInitialShare", "Workloads get and lose what they borrow by shares")
    metadata = queue["metadata"] | {"resourceVersion": "2"}
    store.cluster_queues.put(queue | {"metadata": metadata, "status": {"conditions": [shown]}})
    assert explain(store, REF).fair_sharing == "LessThanInitialShare"


NOTES: dict[str, tuple[Manifest, int, str]] = {
    "never dispatched": (a_workload(admitted=1), 0, ""),
    "written": (a_workload(admitted=1, dispatched=3, applied=2), 0, "version 3 (hold) is written, not applied"),
    "published": (withdrawn(dispatched=3, applied=2), 3, "version 3 (absent) is published, not applied"),
    "applied": (a_workload(admitted=1, dispatched=3, applied=3), 3, ""),
}


@pytest.mark.parametrize(("workload", "published", "note"), NOTES.values(), ids=NOTES.keys())
def test_the_state_of_a_job_says_how_far_its_dispatch_is(workload: Manifest, published: int, note: str) -> None:
    store = a_store(a_job(), workload)
    store.published[REF] = published
    assert of_manager(store)[REF.key].note == note
