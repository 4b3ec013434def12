"""Refuses what cannot run of a job: the whole job at its submission or after an edit, or only an edit of its pods."""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.job import devices, edits, execution_time, pod_templates, size_bounds
from slicebus.manager.decide.manifests import findings_patch, priority_class, show_finding
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.annotations import DesiredSize, as_copied
from slicebus.manager.state.outbox import Progress
from slicebus.manager.state.requirements import PRIORITY_CLASS_MISSING
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.workload.chain import ChainCommand, RefuseScaling
from slicebus.slices.workload.workload import Slice


def problems_of(view: JobView, job: Manifest) -> list[Problem]:
    """Why a job gets no slice: what its kind says, its claims of devices, priority class, cluster selector, sizes and
    maximum time."""
    problems = [*view.problems, *execution_time.problems(job), *([] if view.problems else devices.problems(view, job))]
    if view.is_fixed and KINDS[view.ref.kind].is_autoscaled(as_copied(job)):
        message = f'with the autoscaler on a job needs the annotation {kueue.ELASTIC_ANNOTATION}: "true"'
        problems.append(Problem("AutoscalingOfFixedSize", message))
    if not edits.priority(job, view):
        problems.append(Problem(PRIORITY_CLASS_MISSING, f"WorkloadPriorityClass {priority_class(job)} doesn't exist"))
    return [*problems, *edits.selector_problems(job), *size_bounds.problems(job)]


def refuse(job: Manifest, problems: list[Problem], *, now: str) -> list[Command]:
    """Show the problems on the job, as a condition and an Event; nothing when they are shown already."""
    message = "; ".join(problem.message for problem in problems)
    finding = Finding(api_names.ACCEPTED_CONDITION, False, problems[0].reason, message)
    shown = show_finding(job, finding, now=now)
    return [*shown, Emit(regarding=job, reason=finding.reason, note=finding.message, warning=True)] if shown else []


def edited_pods(view: JobView, desired: DesiredSize) -> list[ChainCommand]:
    """Refuse edited pods, which are no resize, beside every other command; the plan refuses other pod sets."""
    held = view.holder
    message = pod_templates.refused(held, view) if held and held.counts.keys() == desired.counts.keys() else ""
    return [RefuseScaling(slice=held, message=message)] if held and message else []


def may_order(view: JobView) -> bool:
    """Whether the worker may be ordered to hold the slice with quota.

    A worker applies only sizes to a copy, but it would make a missing copy with edited or impossible pods. That copy
    would keep them when the job is mended, beside a slice of other ones.
    """
    if view.holder is None:
        return False
    return dispatch.has_copy(view) or not (view.problems or pod_templates.refused(view.holder, view))


def take_back(view: JobView, *, now: str) -> list[Command]:
    """Take the quota of a job back whose pods were edited before its worker had any, or whose copy is lost since: no
    order can follow the admission.

    An order that is published may have made the former pods: its answer is awaited. So they may have been made where a
    slice before this one has gone, and with it what its worker had reported.
    """
    holder = view.holder
    if holder is None or may_order(view) or view.state.progress is Progress.PUBLISHED:
        return []
    known = {slice.key for slice in view.slices}
    is_lost = view.outbox is not None and view.outbox.record.is_without_copy
    is_sure = is_lost or view.is_withdrawn
    if not is_sure and any(slice.replaces and slice.replaces not in known for slice in view.slices):
        return []
    there = f"cluster {view.place}"
    because = f", and {there} has lost its copy" if is_lost else f" before {there} had any of them"
    message = f"Its pods were edited{because}: it waits for quota for other ones"
    evict = Evict(key=holder.key, reason=EvictionReason.PODS_EDITED, message=message)
    return admission_writes.commands(view, holder, evict, now=now)


def refuse_scaling(view: JobView, job: Manifest, slice: Slice, *, message: str, now: str) -> list[Command]:
    """Say on the Workload and on the job why a change of its pods has no effect; nothing when that is said already."""
    workload = view.workload(slice)
    finding = Finding(api_names.RESIZABLE_CONDITION, False, api_names.STRUCTURAL_CHANGE, message)
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    return [
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        Emit(regarding=job, reason=finding.reason, note=message, warning=True),
    ]


def clear_refusal(view: JobView, *, now: str) -> list[Command]:
    """Take back what `refuse_scaling` has said: the pods are as they were."""
    cleared = Finding(api_names.RESIZABLE_CONDITION, True, "Resizable", "The job's pod sets are those of its workload")
    return [
        Patch(
            resource=WORKLOADS,
            target=view.workload(slice),
            body=findings_patch(view.workload(slice), cleared, now=now),
            subresource="status",
        )
        for slice in view.unfinished
        if slice.conditions.get(api_names.RESIZABLE_CONDITION, {}).get("status") == "False"
    ]
