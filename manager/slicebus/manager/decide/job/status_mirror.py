"""Mirrors a worker's status onto the manager's job, and onto its slice whether the pods are ready."""

import msgspec

from slicebus.decisions.commands import Command, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.manifests import NOT_YET_READY, findings_patch, write_status
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest, Status
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.fingerprints import all_ready
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS


def mirror(view: JobView, report: Status, now: str) -> list[Command]:
    """Mirror the worker's status onto the manager's job, and whether its pods are ready onto its slice.

    Once the next run is dispatched, a status of an earlier run is ignored, even one that reports its end.
    """
    assert view.job is not None
    if view.outbox is not None and not view.outbox.record.is_of_this_run(report.spec_version):
        return []
    return _mirror(view.job, report) + _pods_ready(view, report, now=now)


def _mirror(job: Manifest, report: Status) -> list[Command]:
    """Write the worker's whole status onto the job, and what its kind cannot show into an annotation.

    Where both have changed, the first write makes the second conflict, and the message is handled again.
    """
    wanted, reported = KINDS[job["kind"]].mirrored_status(job, report.job_status), report.job_status
    names = wanted.keys() | reported.keys()
    unshown = {name: reported.get(name) for name in names if reported.get(name) != wanted.get(name)}
    note = msgspec.json.encode(unshown, order="deterministic").decode() if unshown else None
    commands = write_status(job, wanted)
    if annotation(job, api_names.UNSHOWN_ANNOTATION) == note:
        return commands
    body = {"metadata": {"annotations": {api_names.UNSHOWN_ANNOTATION: note}}}
    return [Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body), *commands]


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
