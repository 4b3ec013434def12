"""Turns the decisions of an admission cycle into writes and Events.

The cycle itself is `slicebus.slices.admission.cycle`.
"""

from slicebus.decisions.commands import Command, Emit, Patch, Remember
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission.evictions import quota_held
from slicebus.manager.decide.job import reclaims
from slicebus.manager.decide.manifests import NOT_YET_READY, findings_patch
from slicebus.manager.decide.order import size_requests
from slicebus.manager.state.store import Uncertain
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import Counts, Manifest, counts_text
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Grow, Shrink, Wait
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, has_finding, with_findings
from slicebus.slices.api.kueue import INADMISSIBLE, Condition, EvictionReason
from slicebus.slices.workload.waiting import without_numbers
from slicebus.slices.workload.workload import Slice

_RESTARTED = {
    EvictionReason.CLUSTER_QUEUE_STOPPED: (
        "ClusterQueueRestarted",
        "The ClusterQueue was restarted after being stopped",
    ),
    EvictionReason.LOCAL_QUEUE_STOPPED: ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped"),
    EvictionReason.PODS_READY_TIMEOUT: ("BackoffFinished", "The workload backoff was finished"),
    EvictionReason.REFUSED: ("BackoffFinished", "The workload backoff was finished"),
    EvictionReason.PODS_EDITED: ("EditTaken", "The workload has the pods of its job"),
    EvictionReason.DEACTIVATED: ("Reactivated", "The workload was reactivated"),
    EvictionReason.EXECUTION_TIME: ("Reactivated", "The workload was reactivated"),
    EvictionReason.SUSPENDED: ("Resumed", "The job was resumed"),
    EvictionReason.BUDGET_SPENT: ("BudgetBack", "The budget is no longer spent"),
}
"""Kueue's reason and message when a stopped Workload may run again, by the reason of its eviction."""


def commands(view: JobView, slice: Slice, decision: Decision, *, now: str) -> list[Command]:
    """The writes of one decision about a slice of this job."""
    match decision:
        case Admit():
            return _admit(view, slice, decision, now=now)
        case Wait():
            return _wait(view, slice, decision, now=now)
        case Evict():
            return _evict(view, slice, decision, now=now)
        case Shrink():
            return _shrink(view, slice, decision, now=now)
        case Grow():
            return _grow(view, slice, decision, now=now)


def retry(uncertain: Uncertain) -> Decision:
    """The decision to write for a slice whose admission was sent and not answered: the same, or to wait where its quota
    is another by now. Either write gives the Workload another version, so the first can no longer happen."""
    if not uncertain.outdated:
        return uncertain.decision
    message = (
        f"An admission of version {uncertain.resource_version} got no answer before its quota was edited: "
        "it is decided again"
    )
    return Wait(key=uncertain.decision.key, reason="Pending", message=message)


def ensure_unchanged(workload: Manifest, version: str) -> None:
    """Raises ConflictError where the Workload has changed since the decision.

    The write is fenced by the version that the Workload has now, so the API server would not notice.
    """
    metadata = workload["metadata"]
    if metadata["resourceVersion"] != version:
        raise ConflictError(f"Workload {metadata['namespace']}/{metadata['name']} has changed since the decision")


def is_shown(workload: Manifest, decision: Decision) -> bool:
    """Whether the Workload shows the decision already."""
    return isinstance(decision, Wait) and has_finding(workload, waiting_finding(decision))


def was_elsewhere(workload: Manifest, decision: Admit) -> bool:
    """Whether the Workload names another cluster. Kueue's schema forbids to change that, so it is cleared first."""
    return workload.get("status", {}).get("clusterName") not in (None, decision.cluster)


def _admit(view: JobView, slice: Slice, decision: Admit, *, now: str) -> list[Command]:
    """Quota and admission in one write, so that no crash leaves the one without the other."""
    workload, queue = view.workload(slice), decision.admission.cluster_queue
    if was_elsewhere(workload, decision):
        body = {"status": {"clusterName": None}}
        return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]
    status = {
        "admission": decision.admission.to_manifest(),
        "clusterName": decision.cluster,
        "conditions": with_findings(workload, *admission_findings(slice, decision), now=now),
    }
    note = f"Admitted by ClusterQueue {queue}, runs on cluster {decision.cluster}"
    if decision.admission.counts != slice.counts:
        note += f", {counts_text(decision.admission.counts)} of {counts_text(slice.counts)}"
    targets = (workload, view.job) if view.job else (workload,)
    return [
        Patch(resource=WORKLOADS, target=workload, body={"status": status}, subresource="status"),
        *(Emit(regarding=target, reason="Admitted", note=note) for target in targets),
    ]


def admission_findings(slice: Slice, decision: Admit) -> list[Finding]:
    """What a slice shows when it gets quota."""
    queue = decision.admission.cluster_queue
    reserved = Finding(Condition.QUOTA_RESERVED, True, "QuotaReserved", f"Quota reserved in ClusterQueue {queue}")
    admitted = Finding(Condition.ADMITTED, True, "Admitted", "The workload is admitted")
    return [reserved, admitted, *_starting(slice), *_end_eviction(slice)]


def _starting(slice: Slice) -> list[Finding]:
    """The finding that its pods are not ready, as the first report of its worker says: it needs no write of its own."""
    return [] if Condition.PODS_READY in slice.conditions else [NOT_YET_READY]


def _end_eviction(slice: Slice) -> list[Finding]:
    """The findings that end an earlier eviction of the slice, as Kueue writes them."""
    return [
        Finding(type, False, "QuotaReserved", f"Previously: {slice.conditions[type].get('message', '')}")
        for type in (Condition.EVICTED, Condition.PREEMPTED)
        if slice.condition(type)
    ] + _requeued(slice)


def _requeued(slice: Slice) -> list[Finding]:
    """The finding that an evicted slice is in the queue again, because nothing stops it any more."""
    stopped = slice.conditions.get(Condition.REQUEUED, {})
    if stopped.get("status") != "False" or stopped.get("reason") not in _RESTARTED:
        return []
    reason, message = _RESTARTED[stopped["reason"]]
    return [Finding(Condition.REQUEUED, True, reason, message)]


def _wait(view: JobView, slice: Slice, decision: Wait, *, now: str) -> list[Command]:
    workload = view.workload(slice)
    if is_shown(workload, decision):
        return []
    requeued = [] if decision.reason in (INADMISSIBLE, api_names.BUDGET_SPENT) else _requeued(slice)
    body = findings_patch(workload, waiting_finding(decision), *requeued, now=now)
    # On the Workload as with Kueue, and on the job, where its user looks.
    targets = ((workload, view.job) if view.job else (workload,)) if _is_news(slice, decision) else ()
    return [
        # The job shows it when it is reconciled, after the write.
        Remember(table=ManagerTable.WOULD_ADMIT, key=slice.key, value=decision.would_admit),
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        *(Emit(regarding=target, reason=decision.reason, note=decision.message, warning=True) for target in targets),
    ]


def _is_news(slice: Slice, decision: Wait) -> bool:
    """Whether the reason is new. The same with other numbers is not: those change with every other job. Nor is the
    first one of a slice that waits for what was taken back, of which an Event has told."""
    shown = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    if not shown and slice.reclaimed is not None:
        return False
    return (shown.get("status"), shown.get("reason"), without_numbers(shown.get("message", ""))) != (
        "False",
        decision.reason,
        without_numbers(decision.message),
    )


def _evict(view: JobView, slice: Slice, decision: Evict, *, now: str) -> list[Command]:
    """The quota stays reserved until the worker has no pod of the job left: see `evictions`."""
    if slice.evicted or slice.finished or slice.admission is None:
        return []
    workload = view.workload(slice)
    body = findings_patch(workload, *eviction_findings(decision), quota_held(slice), now=now)
    targets = (workload, view.job) if view.job else (workload,)
    return [
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        *(Emit(regarding=target, reason=f"EvictedDueTo{decision.reason}", note=decision.message) for target in targets),
    ]


def eviction_findings(decision: Evict) -> list[Finding]:
    """What a slice shows when it loses its quota."""
    findings = [Finding(Condition.EVICTED, True, decision.reason, decision.message)]
    if decision.preemption:
        findings.append(Finding(Condition.PREEMPTED, True, decision.preemption, decision.message))
    return findings


def _shrink(view: JobView, slice: Slice, decision: Shrink, *, now: str) -> list[Command]:
    """Note whose pods go, and overrule the job's size. The quota stays reserved until the worker has none of these pods
    left."""
    if view.job is None or not _can_be_resized(view, slice, decision.to):
        return []
    note = reclaims.take_back(view, decision, now=now)
    text = f"{reclaims.taken_text(slice.held_counts, decision.to)} for {decision.beneficiary.workload}"
    return [
        *size_requests.record(view, reclaims.overruled(view, note, now=now), note=note),
        Emit(regarding=view.job, reason=api_names.RECLAIMED, note=f"Took back {text}: {decision.message}"),
    ]


def _grow(view: JobView, slice: Slice, decision: Grow, *, now: str) -> list[Command]:
    """Note that a job may have more than somebody asked for. The slice for that follows when its worker knows."""
    if view.job is None or not _can_be_resized(view, slice, decision.to):
        return []
    if slice.held_counts not in (decision.to, view.desired.counts):
        return []
    note = reclaims.give(view, slice, decision, now=now)
    told = [Emit(regarding=view.job, reason=api_names.GROWN, note=note.message)] if note.grows else []
    more = {api_names.GROWN_AT_ANNOTATION: now}
    return [*size_requests.record(view, reclaims.overruled(view, note, now=now), note=note, more=more), *told]


def _can_be_resized(view: JobView, slice: Slice, to: Counts) -> bool:
    """Whether a decision to take pods from a job, or to give it more, is about what it has by now."""
    is_held = slice.keeps_quota and slice == view.holder and slice.held_counts.keys() == to.keys()
    return is_held and view.desired.counts.keys() == to.keys() and reclaims.is_released(view)


def waiting_finding(decision: Wait) -> Finding:
    """What a slice shows while it waits."""
    return Finding(Condition.QUOTA_RESERVED, False, decision.reason, decision.message)
