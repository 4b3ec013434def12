"""Charges a job that has ended for the pods that still run.

KubeRay ends a RayJob that is past its deadline while its submitter's pod runs on. The job shows its end at once; its
slice stays, and is charged for what runs, until the worker reports that no pod is left. Without an order for that the
manager lets the pods end by themselves.

The condition `PODS_GONE_CONDITION` of the slice says that it waits for pods: whoever starts again knows it.
"""

from slicebus.decisions.commands import Command, Emit, Patch, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.outbox import Progress
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, JobPhase, Status, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, has_finding

REASON = "JobEnded"


def take(view: JobView, report: Status, *, now: str) -> list[Command]:
    """The write after which the slice is charged for the pods that an ended job has left; empty where it is.

    Only pods that have gone count: nothing but an admission raises a charge.
    """
    slice = view.waits_for_pods or view.holder or view.evicted
    if slice is None or report.phase is JobPhase.RUNNING:
        return []
    left = report.running if report.has_left_pods else {}
    if not left and slice is not view.waits_for_pods:
        return []
    if left:
        finding = Finding(api_names.PODS_GONE_CONDITION, False, REASON, _message(left))
    else:
        finding = Finding(api_names.PODS_GONE_CONDITION, True, REASON, "The job has ended, and so have its pods")
    ended = {name: max(0, count - left.get(name, 0)) for name, count in slice.counts.items()}
    reclaimable = {name: max(count, slice.reclaimable.get(name, 0)) for name, count in ended.items()}
    workload = view.workload(slice)
    if has_finding(workload, finding) and reclaimable == dict.fromkeys(slice.counts, 0) | slice.reclaimable:
        return []
    body = findings_patch(workload, finding, now=now)
    body["status"]["reclaimablePods"] = [{"name": name, "count": count} for name, count in reclaimable.items() if count]
    shown = Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")
    if slice is view.waits_for_pods or view.job is None:
        return [shown]
    return [shown, Emit(regarding=view.job, reason="PodsLeft", note=finding.message, warning=True)]


def reconcile(view: JobView, *, now: str) -> list[Command] | None:
    """The commands for a job whose end waits for pods; None for every other job.

    Its copy is withdrawn with what runs of it where somebody needs the quota or deletes the slice, or where the worker
    lacks its newest order: that would make another copy. A job that was withdrawn before it showed its end runs anew.
    """
    slice = view.waits_for_pods
    if slice is None:
        return None
    if not (view.is_withdrawn or (view.is_withdrawing and view.given_up)):
        is_current = view.state.progress is Progress.APPLIED and not view.is_withdrawing
        must_go = slice.evicted or slice.deleting or not is_current
        return dispatch.withdraw(view, reason="JobFinished") if must_go else []
    if view.job is None or view.outcome.phase.is_terminal:
        return None
    finding = Finding(api_names.PODS_GONE_CONDITION, True, "StartedAnew", "The job was started anew")
    body = findings_patch(view.workload(slice), finding, now=now)
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body=body, subresource="status"),
        Requeue(job=view.ref, delay_s=0.0),
    ]


def _message(left: Counts) -> str:
    number = sum(left.values())
    pods = "1 pod of it still runs and is" if number == 1 else f"{number} pods of it still run and are"
    return f"The job has ended, and {pods} charged: {counts_text(left)}"
