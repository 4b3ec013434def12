"""Mirrors a worker's status onto the manager's job, and onto its slice whether the pods are ready."""

import msgspec

from slicebus.decisions.commands import Command, Patch, Remember, Requeue
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.job import pods_left, unshown_ends
from slicebus.manager.decide.manifests import NOT_YET_READY, findings_patch, merge_difference, write_status
from slicebus.manager.state.annotations import annotation, own_conditions, reported_status
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest, Status
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.fingerprints import all_ready
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS


def mirror(view: JobView, report: Status, now: str) -> list[Command]:
    """Mirror whether the worker's pods are ready onto the slice, then its status onto the manager's job: the API server
    may refuse that for ever.

    The end of a job whose pods run on is shown after its slice is charged for those.

    Once the next run is dispatched, a status of an earlier run is ignored, even one that reports its end.
    """
    assert view.job is not None
    if view.outbox is not None and not view.outbox.record.is_of_this_run(report.spec_version):
        return []
    charged = pods_left.take(view, report, now=now) if report.has_left_pods else []
    mirrored = _mirror(view.job, report.job_status, if_refused=unshown_ends.if_refused(view, report))
    return charged + _pods_ready(view, report, now=now) + mirrored


def complete(job: Manifest) -> list[Command]:
    """Give a job that shows its end the size that it ended with on its worker, then the status that its own did not
    allow.

    The end is shown before: nothing may keep it back. No order follows an edit of a job that has ended.
    """
    reported, kind = reported_status(job), KINDS[job["kind"]]
    if not kind.outcome(job).phase.is_terminal:
        return []
    if spec := merge_difference(job["spec"], kind.as_ended(job, reported)["spec"]):
        return [Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body={"spec": spec})]
    if annotation(job, api_names.UNSHOWN_ANNOTATION) is None:
        return []
    # The annotation goes last: what was reported is read from both.
    return _mirror(job, reported)[::-1]


def _mirror(job: Manifest, reported: Manifest, *, if_refused: Remember | None = None) -> list[Command]:
    """Write the worker's whole status onto the job, and what its kind cannot show into an annotation.

    Where both have changed, the first write makes the second conflict, and the message is handled again.
    """
    wanted = KINDS[job["kind"]].mirrored_status(job, reported)
    names = wanted.keys() | reported.keys()
    unshown = {name: reported.get(name) for name in names if reported.get(name) != wanted.get(name)}
    note = msgspec.json.encode(unshown, order="deterministic").decode() if unshown else None
    if own := own_conditions(job):
        others = [entry for entry in wanted.get("conditions") or () if entry.get("type") != api_names.RUNS_CONDITION]
        wanted = wanted | {"conditions": [*others, *own]}
    commands = write_status(job, wanted, if_refused=if_refused)
    if annotation(job, api_names.UNSHOWN_ANNOTATION) == note:
        return commands
    body = {"metadata": {"annotations": {api_names.UNSHOWN_ANNOTATION: note}}}
    unshown_here = Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, only_shows=True)
    return [unshown_here, *commands]


def _pods_ready(view: JobView, report: Status, *, now: str) -> list[Command]:
    """Set Kueue's condition PodsReady on the slice that the worker's pods run on."""
    holder = view.holder
    if holder is None or holder.name != report.workload or report.phase is not JobPhase.RUNNING:
        return []
    ready, succeeded = {name: pods.ready for name, pods in report.pods.items()}, KINDS[view.ref.kind].succeeded
    workload, before = view.workload(holder), holder.conditions.get(Condition.PODS_READY, {})
    if all_ready(holder.granted, ready, succeeded(report.job_status)):
        finding = Finding(Condition.PODS_READY, True, "PodsReady", "All pods are ready")
    elif before.get("status") == "True" or before.get("reason") == kueue.WAIT_FOR_RECOVERY:
        finding = Finding(Condition.PODS_READY, False, kueue.WAIT_FOR_RECOVERY, "Not all pods are ready any more")
    else:
        finding = NOT_YET_READY
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    shown = Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")
    # A reconcile ignores the condition, but for the time that pods have to get ready.
    return [shown, Requeue(job=view.ref, delay_s=0.0)] if view.readiness is not None else [shown]
