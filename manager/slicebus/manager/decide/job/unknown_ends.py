"""Stops a job whose copy is gone on its worker and may have ended before that.

A time to live, an operator or a user may have removed the copy after its end, while nobody watched. So the manager's
job is neither deleted nor run again. Its Workloads are deactivated, it gives its quota back as for an eviction, and it
shows why. Its user deletes it, or activates its Workload to have it run anew.
"""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, findings_patch, show_finding, write_status
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, Status
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import is_suspended
from slicebus.slices.workload.workload import Slice

VANISHED = "VanishedOnWorker"


def may_have_ended(view: JobView, report: Status) -> bool:
    """Whether a job that its agent reports as gone may have ended before.

    It cannot have ended where the agent saw it go unfinished, where the worker had reported it as suspended and without
    pods, or where it never had quota. An evicted job has given its quota back only after that report.
    """
    evicted = view.evicted
    has_given_back = evicted is not None and evicted.admission is None and not view.beside_kueue
    if report.seen or view.is_without_pods or has_given_back:
        return False
    return any(slice.condition(Condition.ADMITTED) for slice in view.slices)


def stop(view: JobView, *, now: str) -> list[Command]:
    """The next command that shows the unknown end, or that deactivates the Workloads; empty when both are done."""
    slice = _slice_of_copy(view)
    if slice is None or view.job is None:
        return []
    finding, workload = _finding(view, slice), view.workload(slice)
    if not has_finding(workload, finding):
        return [
            *show_finding(view.job, finding, now=now),
            Patch(
                resource=WORKLOADS,
                target=workload,
                body=findings_patch(workload, finding, now=now),
                subresource="status",
            ),
            Emit(regarding=view.job, reason=finding.reason, note=finding.message, warning=True),
        ]
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body=unmarked | {"spec": {"active": False}})
        for slice in view.unfinished
        if (unmarked := _unmarked(view.workload(slice))) or slice.active
    ]


def show_suspended(view: JobView, job: Manifest, *, now: str) -> list[Command]:
    """The command that shows on the suspended job that it has no pod left, and why; none when the job shows both.

    The worker sends no further report that would show it.
    """
    slice = _slice_of_copy(view)
    if slice is None or not is_suspended(job):
        return []
    suspended = KINDS[view.ref.kind].suspended_status(job.get("status", {}), active=False, now=now)
    shown = job | {"status": {"conditions": conditions_of(job)} | suspended}
    finding_status = KINDS[view.ref.kind].refusal.status(shown, _finding(view, slice), now=now)
    return write_status(job, suspended | finding_status, only_shows=True)


def close(view: JobView) -> list[Command]:
    """The command after which an activated Workload may run, once the worker and the job hold nothing."""
    if any(slice.admission is not None for slice in view.unfinished) or not view.is_withdrawn:
        return []
    return dispatch.forget_unknown_end(view)


def restarted(view: JobView, *, now: str) -> list[Command]:
    """The command that ends the finding where the job has quota again."""
    if view.holder is None:
        return []
    workload = view.workload(view.holder)
    shown = (entry["status"] for entry in conditions_of(workload) if entry["type"] == api_names.END_KNOWN_CONDITION)
    if next(shown, "True") == "True":
        return []
    finding = Finding(api_names.END_KNOWN_CONDITION, True, "StartedAnew", "The job was started anew")
    body = findings_patch(workload, finding, now=now)
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]


def _unmarked(workload: Manifest) -> Manifest:
    """The patch for a Workload that was deactivated as its user has suspended the job: to resume it is not enough any
    more. Empty for any other."""
    is_marked = annotation(workload, api_names.SUSPENDED_ANNOTATION) is not None
    return annotation_patch(api_names.SUSPENDED_ANNOTATION, None) if is_marked else {}


def _slice_of_copy(view: JobView) -> Slice | None:
    """The slice that the copy ran for, or that waits for quota again."""
    return view.holder or view.evicted or next(iter(view.unfinished), None)


def _finding(view: JobView, slice: Slice) -> Finding:
    assert view.outbox is not None
    workload = f"workload -n {slice.namespace} {slice.name}"
    message = (
        f"The job is gone on cluster {view.outbox.record.cluster}, and nobody saw whether it had ended. It gives its "
        "quota back and does not run again by itself. Look at its results, then delete it, or have it run anew: "
        f"""kubectl patch {workload} --type merge -p '{{"spec":{{"active":true}}}}'"""
    )
    return Finding(api_names.END_KNOWN_CONDITION, False, VANISHED, message)
