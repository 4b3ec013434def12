"""Ends a job whose end the manager's API server refuses to show: by a rule of its own, a policy or a webhook.

The end is kept on the job's Workload, where only slicebus writes. From there the job ends as any other: its quota is
free, and its copy goes. What the worker has reported is written onto the job as soon as the API server takes it.
"""

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, findings_patch, write_status
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.unshown_end import UnshownEnd
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Status
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of
from slicebus.slices.api.kueue import Condition, FinishedReason
from slicebus.slices.jobs import KINDS

_NOT_SHOWN = "EndNotShown"
_AGAIN_S = 30.0
"""As often as an order that is refused. Nobody tells when the API server takes the end."""


def if_refused(view: JobView, report: Status) -> Remember | None:
    """What to remember where the API server refuses to show this report; None where that is no end."""
    if not report.phase.is_terminal:
        return None
    end = UnshownEnd(phase=report.phase, status=report.job_status)
    return Remember(table=ManagerTable.UNSHOWN_ENDS, key=view.ref, value=end)


def keep(view: JobView, end: UnshownEnd) -> list[Command]:
    """Keep an end that was refused on the newest Workload, and say so on the job."""
    known = Forget(table=ManagerTable.UNSHOWN_ENDS, key=view.ref)
    if view.job is None or view.unshown_end is not None or not view.slices:
        return [known]
    newest = view.holder or next(reversed(view.unfinished), view.slices[-1])
    body = annotation_patch(api_names.UNSHOWN_END_ANNOTATION, end.to_annotation())
    return [
        Patch(resource=WORKLOADS, target=view.workload(newest), body=body),
        Emit(regarding=view.job, reason=_NOT_SHOWN, note=end.outcome.message, warning=True),
        known,
    ]


def finish(view: JobView, *, now: str) -> list[Command]:
    """Finish the slices of a job with a kept end, where a Kueue admits: it reads the end of others from the job."""
    end = view.unshown_end
    if end is None or view.job is None or KINDS[view.ref.kind].outcome(view.job).phase.is_terminal:
        return []
    reason = FinishedReason.SUCCEEDED if end.phase is JobPhase.SUCCEEDED else FinishedReason.FAILED
    finished = Finding(Condition.FINISHED, True, reason, end.outcome.message)
    return [
        Patch(
            resource=WORKLOADS,
            target=view.workload(slice),
            body=findings_patch(view.workload(slice), finished, *findings(view), now=now),
            subresource="status",
        )
        for slice in view.unfinished
    ]


def findings(view: JobView) -> list[Finding]:
    """The condition that shows a kept end; none where there is none."""
    end = view.unshown_end
    if end is None:
        return []
    message = f"{end.phase} on its worker. {end.outcome.message}"
    return [Finding(api_names.END_SHOWN_CONDITION, False, _NOT_SHOWN, message)]


def show_again(view: JobView, *, now: str) -> list[Command]:
    """Show a kept end on the job; then, that it is shown. Nothing without one."""
    end = view.unshown_end
    if end is None or view.job is None or "deletionTimestamp" in view.job["metadata"]:
        return []
    kind = KINDS[view.ref.kind]
    if not kind.outcome(view.job).phase.is_terminal:
        again = Remember(table=ManagerTable.UNSHOWN_ENDS, key=view.ref, value=end)
        return write_status(view.job, kind.mirrored_status(view.job, end.status), if_refused=again)
    shown = Finding(api_names.END_SHOWN_CONDITION, True, "EndShown", "The job shows its end")
    return [
        Patch(resource=WORKLOADS, target=workload, body=findings_patch(workload, shown, now=now), subresource="status")
        for workload in view.workloads.values()
        if any((c["type"], c["status"]) == (shown.type, "False") for c in conditions_of(workload))
    ]


def requeue_after(view: JobView) -> list[Command]:
    """Reconcile a job again while its end is kept. These commands go first: a refused write ends those after it."""
    if view.unshown_end is None or view.job is None or KINDS[view.ref.kind].outcome(view.job).phase.is_terminal:
        return []
    return [Requeue(job=view.ref, delay_s=_AGAIN_S)]
