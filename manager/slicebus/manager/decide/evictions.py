"""What comes after an eviction is decided, until the job has quota again.

The slice keeps its quota for as long as its worker may have pods of the job. When none is left for sure the quota is
given back, and what the worker had made the job grow to is forgotten: the same slice waits for quota again, at the
counts of the job's spec.
"""

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide import dispatch
from slicebus.manager.decide.intake import DISPATCHED_CONDITION
from slicebus.manager.decide.manifests import annotation_patch, counts_patch
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts
from slicebus.slices import kueue
from slicebus.slices.conditions import Finding, with_findings
from slicebus.slices.kueue import Condition, EvictionReason
from slicebus.slices.workload import Slice


def follow(view: JobView, slice: Slice, *, wanted: Counts, now: str) -> list[Command]:
    """What is to be done about an evicted slice now: its worker is told, then its quota is given back.

    One write a look. The slice has its size before it waits, or it would be admitted as large as it was. What it had
    shrunk by before is nobody's to take back: its admission says so first, or it would be charged for more again.
    """
    if view.given_up and (abandoned := dispatch.abandon(view)):
        return [*_set_suspended(view, True), *abandoned]
    if suspending := [*_set_suspended(view, True), *dispatch.suspend(view, slice)]:
        return suspending
    if not slice.evicting or not view.is_without_pods:
        return []
    if forgotten := _forget_request(view):
        return forgotten
    workload = view.workload(slice)
    if slice.counts != wanted and slice.counts.keys() == wanted.keys():
        if slice.admission is not None and (kept := slice.admission.within(slice.counts)) != slice.admission:
            body = {"status": {"admission": kept.to_manifest()}}
            return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]
        return [Patch(resource=WORKLOADS, target=workload, body=counts_patch(workload, wanted))]
    return [_give_back(view, slice, now=now)]


def resume(view: JobView, slice: Slice) -> list[Command]:
    """A job whose slice was evicted goes on, now that it has quota again."""
    return _set_suspended(view, False) if Condition.EVICTED in slice.conditions else []


def quota_held(slice: Slice) -> Finding:
    """Why the quota of a slice that is evicted is not free yet."""
    message = f"Quota is held until cluster {slice.cluster} has no pod of the job left"
    return Finding(DISPATCHED_CONDITION, False, kueue.SUSPENDING, message)


def _set_suspended(view: JobView, suspended: bool) -> list[Command]:
    """The manager's own job shows it, as with Kueue: a Job that is not suspended cannot lose its start time either."""
    if view.job is None or bool(view.job["spec"].get("suspend")) is suspended:
        return []
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body={"spec": {"suspend": suspended}})]


def _forget_request(view: JobView) -> list[Command]:
    """Where no worker has reported, because it left the fleet: see also `intake.applied`."""
    requested = view.desired.requested if view.job else None
    if view.job is None or requested is None or not requested.asks_for_size:
        return []
    body = annotation_patch(kueue.REQUESTED_ANNOTATION, requested.cleared().to_annotation())
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body=body)]


def _give_back(view: JobView, slice: Slice, *, now: str) -> Command:
    """Reasons and messages are Kueue's; only a preempted Workload is requeued by itself."""
    workload, evicted = view.workload(slice), slice.conditions[Condition.EVICTED]
    reason, message = evicted.get("reason", ""), evicted.get("message", "")
    findings = [
        Finding(Condition.QUOTA_RESERVED, False, "Pending", message),
        Finding(Condition.ADMITTED, False, "NoReservation", "The workload has no reservation"),
        Finding(Condition.REQUEUED, reason == EvictionReason.PREEMPTED, reason, message),
        Finding(DISPATCHED_CONDITION, True, "Suspended", f"Cluster {view.cluster} has no pod of the job left"),
    ]
    if slice.condition(Condition.PODS_READY):
        findings.append(Finding(Condition.PODS_READY, False, "WaitForStart", "Not all pods are ready or succeeded"))
    status = {"admission": None, "conditions": with_findings(workload, *findings, now=now)}
    return Patch(resource=WORKLOADS, target=workload, body={"status": status}, subresource="status")
