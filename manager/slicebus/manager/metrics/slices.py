"""Counts the steps of slices, and measures how long each took, under Kueue's names and labels.

Steps from before this process led are not counted: the manager that led then has counted them.
Source: Kueue v0.20, `pkg/metrics`.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

from slicebus.kube.cache import Cache, Change
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.preemption import preempting_queue
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition, FinishedReason

_BUCKETS = (1, 2.5, *(5.0 * 2**doubling for doubling in range(12)))
"""Seconds, up to almost three hours."""


_COUNTED = (
    Condition.QUOTA_RESERVED,
    Condition.ADMITTED,
    Condition.EVICTED,
    Condition.PREEMPTED,
    Condition.FINISHED,
)


class WorkloadStep(msgspec.Struct, frozen=True):
    """A condition of a Workload became True."""

    condition: Condition
    reason: str
    cluster_queue: str
    priority_class: str
    took_s: float
    """Seconds since the Workload was made or requeued; for the end of an eviction see `Released`."""
    message: str = ""


class Released(msgspec.Struct, frozen=True):
    """An evicted Workload has given its quota back."""

    reason: str
    cluster_queue: str
    took_s: float
    """Seconds since it was evicted."""


class ChargedMore(msgspec.Struct, frozen=True):
    """A Workload is charged for more than it was admitted with, for a reason that it did not have before."""

    reason: str
    cluster_queue: str


def steps(old: Manifest, new: Manifest) -> Iterator[WorkloadStep | Released | ChargedMore]:
    """The steps of a Workload between two of its versions."""
    before, after = _true(old), _true(new)
    queue = _cluster_queue(new) or _cluster_queue(old)
    priority_class = new.get("spec", {}).get("priorityClassRef", {}).get("name", "")
    # Not `Requeued` of the new version: it may have come with this step.
    since = before.get(Condition.REQUEUED, {}).get("lastTransitionTime") or new["metadata"]["creationTimestamp"]
    for type in _COUNTED:
        condition = after.get(type)
        if condition is not None and type not in before:
            took_s = _seconds(since, condition["lastTransitionTime"])
            yield WorkloadStep(type, condition["reason"], queue, priority_class, took_s, condition.get("message", ""))
    charged = after.get(api_names.CHARGED_MORE_CONDITION)
    if charged is not None and charged["reason"] != before.get(api_names.CHARGED_MORE_CONDITION, {}).get("reason"):
        yield ChargedMore(charged["reason"], queue)
    evicted = after.get(Condition.EVICTED) or before.get(Condition.EVICTED)
    if evicted and Condition.FINISHED not in after and _cluster_queue(old) and not _cluster_queue(new):
        ended = _conditions(new).get(Condition.QUOTA_RESERVED, evicted)["lastTransitionTime"]
        yield Released(evicted["reason"], queue, _seconds(evicted["lastTransitionTime"], ended))


class SliceMetrics:
    """The counters and histograms of slices."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"kueue_{name}", text, ["cluster_queue", *labels], registry=registry)

        def histogram(name: str, text: str, label: str) -> Histogram:
            return Histogram(f"kueue_{name}", text, ["cluster_queue", label], buckets=_BUCKETS, registry=registry)

        by_class = "priority_class"
        self._counters = {
            Condition.QUOTA_RESERVED: counter("quota_reserved_workloads", "Workloads that got quota.", by_class),
            Condition.ADMITTED: counter("admitted_workloads", "Workloads that were admitted.", by_class),
            Condition.FINISHED: counter("finished_workloads", "Workloads that finished.", by_class),
        }
        waited = "From when a workload was made or requeued until it {}."
        self._waits = {
            Condition.QUOTA_RESERVED: histogram(
                "quota_reserved_wait_time_seconds", waited.format("got quota"), by_class
            ),
            Condition.ADMITTED: histogram("admission_wait_time_seconds", waited.format("was admitted"), by_class),
        }
        self._evicted = counter("evicted_workloads", "Workloads that were evicted.", "reason", by_class)
        self._preempted = Counter(
            "kueue_preempted_workloads",
            "Workloads that were preempted, by the queue that they were preempted for.",
            ["preempting_cluster_queue", "reason"],
            registry=registry,
        )
        self._charged_more = Counter(
            "slicebus_charged_more",
            "How often the pods of a workload were seen to request more than was admitted, or to run without a grant.",
            ["cluster_queue", "reason"],
            registry=registry,
        )
        self._replaced = counter("replaced_workload_slices", "Slices that a larger one has replaced.")
        self._released = histogram(
            "workload_eviction_latency_seconds", "From an eviction until its quota was given back.", "reason"
        )

    def follow(self, workloads: Cache, *, when: Callable[[Manifest], bool] = lambda workload: True) -> None:
        """Count every change from now on of a Workload that `when` lets pass."""
        workloads.subscribe(lambda change: self._changed(change, when))

    def _changed(self, change: Change, when: Callable[[Manifest], bool]) -> None:
        if change.old is None or change.new is None or not when(change.new):
            return
        for step in steps(change.old, change.new):
            match step:
                case ChargedMore():
                    self._charged_more.labels(step.cluster_queue, step.reason).inc()
                case Released():
                    self._released.labels(step.cluster_queue, step.reason).observe(step.took_s)
                case WorkloadStep(condition=Condition.EVICTED):
                    self._evicted.labels(step.cluster_queue, step.reason, step.priority_class).inc()
                case WorkloadStep(condition=Condition.PREEMPTED):
                    self._preempted.labels(preempting_queue(step.message), step.reason).inc()
                case WorkloadStep():
                    self._count(step)

    def _count(self, step: WorkloadStep) -> None:
        self._counters[step.condition].labels(step.cluster_queue, step.priority_class).inc()
        if step.condition in self._waits:
            self._waits[step.condition].labels(step.cluster_queue, step.priority_class).observe(step.took_s)
        if step.condition is Condition.FINISHED and step.reason == FinishedReason.SLICE_REPLACED:
            self._replaced.labels(step.cluster_queue).inc()


def _conditions(workload: Manifest) -> dict[str, Manifest]:
    return {condition["type"]: condition for condition in workload.get("status", {}).get("conditions", ())}


def _true(workload: Manifest) -> dict[str, Manifest]:
    return {type: condition for type, condition in _conditions(workload).items() if condition["status"] == "True"}


def _cluster_queue(workload: Manifest) -> str:
    admission = workload.get("status", {}).get("admission") or {}
    return str(admission.get("clusterQueue", ""))


def _seconds(since: str, until: str) -> float:
    """The seconds between two times, at least 0: they may come from two clocks."""
    return max(0.0, (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds())
