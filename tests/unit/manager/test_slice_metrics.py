"""The metrics of slices, queues and resizes."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slicebus.kube.cache import Cache
from slicebus.manager.metrics.queues import QueueMetrics
from slicebus.manager.metrics.resizes import ResizeMetrics
from slicebus.manager.metrics.slices import SliceMetrics
from slicebus.manager.state.settings import LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import MessageId
from slicebus.proto.messages import Applied, ScaleRequest
from slicebus.slices.admission.sharing import FairSharing
from unit.manager.objects import REF, Manifest, a_job, an_envelope

CREATED, LATER, LATEST = (f"2026-01-01T00:00:{second}Z" for second in ("00", "03", "10"))
ADMISSION = {"clusterQueue": "cq"}


def condition(type: str, reason: str, at: str, status: str = "True") -> Manifest:
    return {"type": type, "status": status, "reason": reason, "lastTransitionTime": at}


RESERVED, ADMITTED = condition("QuotaReserved", "QuotaReserved", LATER), condition("Admitted", "Admitted", LATER)
WAITS = condition("QuotaReserved", "Pending", CREATED, "False")
EVICTED = condition("Evicted", "Preempted", LATER)
PREEMPTED = condition("Preempted", "InCohortReclamation", LATER) | {
    "message": "Preempted to accommodate a workload (UID: u2, JobUID: j2) due to reclamation within the cohort; "
    "preemptor path: /org/of-another; preemptee path: /org/cq"
}
RELEASED = condition("QuotaReserved", "Pending", LATEST, "False")
REQUEUED = condition("Requeued", "Preempted", LATER)
ADMITTED_AGAIN = condition("Admitted", "Admitted", LATEST)
REPLACED = condition("Finished", "WorkloadSliceReplaced", LATEST)


def a_workload(version: int, *conditions: Manifest, admission: Manifest | None = None) -> Manifest:
    metadata = {
        "namespace": "team",
        "name": "w",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
    }
    status: dict[str, Any] = {"conditions": list(conditions)} | ({"admission": admission} if admission else {})
    return {"metadata": metadata, "spec": {"priorityClassRef": {"name": "high"}}, "status": status}


def counted(registry: CollectorRegistry, prefix: str = "kueue_") -> dict[str, float]:
    """What is not zero, without buckets, by name and the values of its labels."""
    return {
        f"{sample.name}{list(sample.labels.values())}": sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name.startswith(prefix) and not sample.name.endswith(("_bucket", "_created")) and sample.value
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(
            a_workload(1, WAITS),
            a_workload(2, RESERVED, ADMITTED, admission=ADMISSION),
            {
                "kueue_quota_reserved_workloads_total['cq', 'high']": 1,
                "kueue_quota_reserved_wait_time_seconds_count['cq', 'high']": 1,
                "kueue_quota_reserved_wait_time_seconds_sum['cq', 'high']": 3,
                "kueue_admitted_workloads_total['cq', 'high']": 1,
                "kueue_admission_wait_time_seconds_count['cq', 'high']": 1,
                "kueue_admission_wait_time_seconds_sum['cq', 'high']": 3,
            },
            id="admitted",
        ),
        pytest.param(
            a_workload(1, RESERVED, REQUEUED, admission=ADMISSION),
            a_workload(2, RESERVED, REQUEUED, ADMITTED_AGAIN, admission=ADMISSION),
            {
                "kueue_admitted_workloads_total['cq', 'high']": 1,
                "kueue_admission_wait_time_seconds_count['cq', 'high']": 1,
                "kueue_admission_wait_time_seconds_sum['cq', 'high']": 7,
            },
            id="admitted after it was requeued",
        ),
        pytest.param(
            a_workload(1, RESERVED, ADMITTED, admission=ADMISSION),
            a_workload(2, RESERVED, EVICTED, admission=ADMISSION),
            {"kueue_evicted_workloads_total['cq', 'Preempted', 'high']": 1},
            id="evicted",
        ),
        pytest.param(
            a_workload(1, RESERVED, ADMITTED, admission=ADMISSION),
            a_workload(2, RESERVED, EVICTED, PREEMPTED, admission=ADMISSION),
            {
                "kueue_evicted_workloads_total['cq', 'Preempted', 'high']": 1,
                "kueue_preempted_workloads_total['of-another', 'InCohortReclamation']": 1,
            },
            id="preempted",
        ),
        pytest.param(
            a_workload(1, RESERVED, EVICTED, admission=ADMISSION),
            a_workload(2, RELEASED, EVICTED),
            {
                "kueue_workload_eviction_latency_seconds_count['cq', 'Preempted']": 1,
                "kueue_workload_eviction_latency_seconds_sum['cq', 'Preempted']": 7,
            },
            id="gave its quota back",
        ),
        pytest.param(
            a_workload(1, RESERVED, ADMITTED, admission=ADMISSION),
            a_workload(2, RESERVED, ADMITTED, REPLACED, admission=ADMISSION),
            {
                "kueue_finished_workloads_total['cq', 'high']": 1,
                "kueue_replaced_workload_slices_total['cq']": 1,
            },
            id="replaced",
        ),
        pytest.param(a_workload(1, WAITS), a_workload(2, WAITS), {}, id="nothing happened"),
        pytest.param(None, a_workload(2, RESERVED, ADMITTED, admission=ADMISSION), {}, id="was there before"),
    ],
)
def test_every_step_of_a_slice_is_counted_once(old: Manifest | None, new: Manifest, expected: dict[str, float]) -> None:
    registry, cache = CollectorRegistry(), Cache()
    SliceMetrics(registry).follow(cache)
    for state in (old, new, new):
        if state is not None:
            cache.put(state)
    assert counted(registry) == expected


def test_a_scrape_shows_what_the_queues_hold() -> None:
    registry, store = CollectorRegistry(), ManagerStore()
    store.configure(LeaderSettings(fair_sharing=FairSharing.BOTH))
    registry.register(QueueMetrics(store, now=lambda: datetime.fromisoformat(LATEST)))
    resources = [{"name": "cpu", "nominalQuota": "2", "borrowingLimit": "5"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]
    store.cluster_queues.put(
        {
            "metadata": {"name": "cq", "uid": "cq", "resourceVersion": "1"},
            "spec": {"resourceGroups": groups, "cohortName": "org"},
        }
    )
    store.local_queues.put(
        {
            "metadata": {"namespace": "team", "name": "lq", "uid": "lq", "resourceVersion": "1"},
            "spec": {"clusterQueue": "cq"},
        }
    )
    usage = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2500m"}}
    holds = a_workload(1, RESERVED, ADMITTED, admission=ADMISSION | {"podSetAssignments": [usage]})
    waits = a_workload(2, condition("QuotaReserved", "Inadmissible", CREATED, "False"))
    for number, workload in enumerate((holds, waits)):
        workload["metadata"] |= {"name": f"w{number}", "uid": f"u{number}"}
        workload["spec"]["queueName"] = "lq"
        store.workloads.put(workload)
    assert counted(registry) == {
        "kueue_pending_workloads['cq', 'inadmissible']": 1,
        "kueue_reserving_active_workloads['cq']": 1,
        "kueue_admitted_active_workloads['cq']": 1,
        "kueue_cluster_queue_resource_usage['org', 'cq', 'default', 'cpu']": 2.5,
        "kueue_cluster_queue_weighted_share['cq', 'org']": 250,
        "kueue_cluster_queue_nominal_quota['org', 'cq', 'default', 'cpu']": 2,
        "kueue_cluster_queue_borrowing_limit['org', 'cq', 'default', 'cpu']": 5,
        "kueue_cluster_queue_lending_limit['org', 'cq', 'default', 'cpu']": float("inf"),
        "kueue_local_queue_pending_workloads['lq', 'team', 'inadmissible']": 1,
        "kueue_local_queue_resource_usage['lq', 'team', 'default', 'cpu']": 2.5,
        "kueue_cohort_subtree_quota['org', 'default', 'cpu']": 2,
        "kueue_cohort_subtree_resource_reservations['org', 'default', 'cpu']": 2.5,
    }
    assert counted(registry, "slicebus_") == {"slicebus_pending_oldest_seconds['cq']": 10}


def test_the_oldest_that_waits_counts_since_it_was_requeued_and_a_cohort_has_what_is_below_it() -> None:
    registry, store = CollectorRegistry(), ManagerStore()
    store.configure(LeaderSettings())
    registry.register(QueueMetrics(store, now=lambda: datetime.fromisoformat(LATEST)))
    resources = [{"name": "cpu", "nominalQuota": "2", "lendingLimit": "1"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]
    for kind, name, spec in (
        (store.cohorts, "root", {}),
        (store.cohorts, "org", {"parentName": "root"}),
        (store.cluster_queues, "cq", {"resourceGroups": groups, "cohortName": "org"}),
    ):
        kind.put({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec})
    store.local_queues.put(
        {
            "metadata": {"namespace": "team", "name": "lq", "uid": "lq", "resourceVersion": "1"},
            "spec": {"clusterQueue": "cq"},
        }
    )
    usage = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "500m"}}
    holds = a_workload(1, RESERVED, admission=ADMISSION | {"podSetAssignments": [usage]})
    for number, workload in enumerate((holds, a_workload(2, RELEASED, EVICTED, REQUEUED))):
        workload["metadata"] |= {"name": f"w{number}", "uid": f"u{number}"}
        workload["spec"]["queueName"] = "lq"
        store.workloads.put(workload)
    assert counted(registry, "slicebus_") == {"slicebus_pending_oldest_seconds['cq']": 7}
    assert counted(registry, "kueue_cohort_") == {
        f"kueue_cohort_subtree_{what}['{cohort}', 'default', 'cpu']": value
        for what, value in (("quota", 1), ("resource_reservations", 0.5))
        for cohort in ("org", "root")
    }


async def test_a_resize_counts_from_its_newest_request_to_its_report() -> None:
    registry, jobs = CollectorRegistry(), Cache()
    resizes = ResizeMetrics(registry)
    resizes.follow(jobs)
    desired = ScaleRequest(
        job=REF, workload="w", worker_uid="u", worker_generation=2, granted={"main": 1}, wanted={"main": 5}
    )
    applied = Applied(job=REF, workload="w", spec_version=2)
    first = an_envelope(type=ScaleRequest.type)
    second = msgspec.structs.replace(first, correlation_id=MessageId("chain-2"))

    def count() -> float:
        return counted(registry, "slicebus_resize_seconds").get("slicebus_resize_seconds_count['east']", 0)

    resizes.note(first, desired)
    resizes.note(second, desired)
    resizes.note(first, applied)
    assert count() == 0
    resizes.note(second, applied)
    resizes.note(second, applied)
    assert count() == 1
    resizes.note(first, desired)
    jobs.put(a_job())
    jobs.remove(a_job())
    resizes.note(first, applied)
    assert count() == 1


def test_each_reason_to_charge_more_counts_once_a_workload() -> None:
    cache, registry = Cache(), CollectorRegistry()
    SliceMetrics(registry).follow(cache)
    kind = "slicebus.dev/ChargedMore"
    more, beyond = (condition(kind, reason, LATER) for reason in ("PodsRequestMore", "PodsBeyondGrant"))
    steps = ((), (more,), (more,), (beyond,), (condition(kind, "AsAdmitted", LATEST, "False"),), (more,))
    for version, conditions in enumerate(steps, start=1):
        cache.put(a_workload(version, *conditions, admission=ADMISSION))
    assert counted(registry, "slicebus_") == {
        "slicebus_charged_more_total['cq', 'PodsRequestMore']": 2,
        "slicebus_charged_more_total['cq', 'PodsBeyondGrant']": 1,
    }
