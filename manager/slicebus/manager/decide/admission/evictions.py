"""The steps from an eviction to the next admission.

An evicted slice keeps its quota while its worker may have pods of the job. When no pod is left, the quota is given back
and the size that the worker asked for is forgotten. The same slice then waits for quota again, at the counts of the
job's spec.
"""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.job import attempts, charges, execution_time
from slicebus.manager.decide.manifests import NOT_YET_READY, annotation_patch, counts_patch
from slicebus.manager.decide.order import dispatch, size_requests
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, with_findings
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.paths import text_of
from slicebus.slices.jobs.suspension import to_resume, to_suspend
from slicebus.slices.workload.workload import Slice

_SUSPENDED = "Suspended"


def reconcile(view: JobView, slice: Slice, *, wanted: Counts, now: str) -> list[Command]:
    """The next step for an evicted slice: suspend it on its worker, then give its quota back.

    One write a reconcile. The slice gets its new counts before it waits, or it would be admitted at the old ones. If it
    had shrunk before, its admission is reduced first, or the new counts would charge it for more again.

    That the manager's own job is suspended only shows it: where the API server refuses that for ever, all else goes on.
    """
    suspended = _set_suspended(view, True)
    if view.given_up and (abandoned := dispatch.abandon(view)):
        return [*suspended, *abandoned, *_tell(view, suspended)]
    if suspending := dispatch.suspend(view, slice):
        return [*suspended, *suspending, *_tell(view, suspended)]
    return [*suspended, *_go_on(view, slice, wanted=wanted, now=now)]


def _go_on(view: JobView, slice: Slice, *, wanted: Counts, now: str) -> list[Command]:
    """The next write of a slice whose worker is told to suspend it."""
    if not slice.evicting or not view.is_without_pods:
        return []
    if forgotten := _forget_request(view):
        return forgotten
    workload = view.workload(slice)
    if slice.counts != wanted and slice.counts.keys() == wanted.keys():
        if slice.admission is not None and (kept := slice.admission.within(slice.unfinished_counts)) != slice.admission:
            body = {"status": {"admission": kept.to_manifest()}}
            return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]
        return [Patch(resource=WORKLOADS, target=workload, body=counts_patch(workload, wanted))]
    return [_give_back(view, slice, now=now)]


def resume(view: JobView, slice: Slice) -> list[Command]:
    """Unsuspend a job whose evicted slice has quota again."""
    return _set_suspended(view, False) if Condition.EVICTED in slice.conditions else []


def resume_without_slices(view: JobView) -> list[Command]:
    """Unsuspend a job whose evicted slice has ended: its Workload was deleted, or an edit had made it impossible. It
    begins again as a new one does."""
    return _set_suspended(view, False) if not (view.unfinished or view.is_suspended_by_user) else []


def quota_held(slice: Slice) -> Finding:
    """The condition that shows why an evicted slice still has its quota."""
    message = f"Quota is held until cluster {slice.cluster} has no pod of the job left"
    return Finding(api_names.DISPATCHED_CONDITION, False, api_names.SUSPENDING, message)


def _set_suspended(view: JobView, suspended: bool) -> list[Command]:
    """Suspend or resume the manager's own job, as Kueue does: only a suspended Job may lose its start time. An
    annotation tells it from a job that its user has suspended (`user_suspension`)."""
    if view.job is None or not (body := to_suspend(view.job) if suspended else to_resume(view.job)):
        return []
    mark = annotation_patch(api_names.SUSPENDED_ANNOTATION, "true" if suspended else None)
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body=mark | body, only_shows=suspended)]


def _tell(view: JobView, suspended: list[Command]) -> list[Command]:
    """The Event that says how to keep a job suspended that is suspended now: whoever sets the field then changes
    nothing, so nobody learns of it."""
    if not suspended or view.job is None:
        return []
    path = text_of(KINDS[view.ref.kind].suspend_path or ())
    note = (
        f"slicebus sets {path} until the job has quota again. To keep it suspended, remove its annotation "
        f"{api_names.SUSPENDED_ANNOTATION}: to set {path} once more changes nothing"
    )
    return [Emit(regarding=view.job, reason=_SUSPENDED, note=note)]


def _forget_request(view: JobView) -> list[Command]:
    """Forget the worker's request, and what was taken back from the job, where `message_handlers.applied` has not,
    because its cluster left the fleet."""
    requested = view.requested
    if requested is None or not (requested.asks_for_size or requested.taken_back):
        return []
    return size_requests.record(view, requested.cleared())


def _give_back(view: JobView, slice: Slice, *, now: str) -> Command:
    """Give the quota of a slice back. Reasons and messages are Kueue's; only a preempted Workload is requeued by
    itself."""
    workload = view.workload(slice)
    findings = [
        *requeue_findings(slice),
        Finding(
            api_names.DISPATCHED_CONDITION, True, "Suspended", f"Cluster {view.cluster} has no pod of the job left"
        ),
        attempts.ended(workload, slice),
        *charges.given_back(slice),
    ]
    if Condition.PODS_READY in slice.conditions:
        # Also where the pods were not ready before: the next run begins with none that is.
        findings.append(NOT_YET_READY)
    status = {"admission": None, "conditions": with_findings(workload, *findings, now=now)}
    status |= execution_time.given_back(workload, slice)
    if slice.reclaimable:
        # The next run begins with all pods.
        status["reclaimablePods"] = None
    return Patch(resource=WORKLOADS, target=workload, body={"status": status}, subresource="status")


def requeue_findings(slice: Slice) -> list[Finding]:
    """What an evicted slice shows when it has given its quota back."""
    evicted = slice.conditions[Condition.EVICTED]
    reason, message = evicted.get("reason", ""), evicted.get("message", "")
    return [
        Finding(Condition.QUOTA_RESERVED, False, "Pending", message),
        Finding(Condition.ADMITTED, False, "NoReservation", "The workload has no reservation"),
        Finding(Condition.REQUEUED, reason == EvictionReason.PREEMPTED, reason, message),
    ]
