"""Copies what somebody edits on a job onto its slices: priority, place, queue, what it says of its size, and its pods.

A slice is admitted by its own fields. Until they equal its job's it is not admitted: it would keep some of the old ones
for as long as it has quota.
"""

from collections.abc import Mapping

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import execution_time, pod_templates, reclaims, size_bounds
from slicebus.manager.decide.manifests import priority_class, priority_spec
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.requirements import is_elastic, queue_of
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.selectors import MOST_CHARACTERS, problem_of_text
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.schedulers import chosen_by
from slicebus.slices.workload.chain import SetCounts, plan


def copied(view: JobView, job: Manifest) -> list[Command]:
    """The next commands that copy the edits to the slices; empty where every slice equals its job."""
    edits = (
        _set_priority,
        _set_placement,
        _set_queue,
        _set_elastic,
        _set_elasticity,
        _set_partial,
        execution_time.copied,
        pod_templates.take_over,
    )
    return next(filter(None, (edit(view, job) for edit in edits)), []) or reclaims.copied(view)


def are_due(view: JobView, job: Manifest) -> bool:
    """Whether edits are still to be copied to a slice that waits. Another size alone counts only for a job that keeps
    the size that it starts with."""
    if copied(view, job):
        return True
    return view.is_fixed and any(isinstance(command, SetCounts) for command in plan(view.slices, view.desired.counts))


def priority(job: Manifest, view: JobView) -> Manifest:
    """The priority fields of the job's Workloads; empty when its class does not exist."""
    try:
        return priority_spec(priority_class(job) or _default_class(view), view.priority_classes)
    except LookupError:
        return {}


def missing_class(job: Manifest, view: JobView) -> str:
    """The class that a job with a Workload names by now, and that does not exist; empty where there is none such. A
    class that its Workload has, and that somebody has deleted, is no edit."""
    newest = view.workload(view.unfinished[-1]) if view.unfinished else None
    if newest is None or priority(job, view):
        return ""
    named, has = priority_class(job), (newest["spec"].get("priorityClassRef") or {}).get("name", "")
    return named if named != has else ""


def _default_class(view: JobView) -> str:
    """The class of a job that names none: `default`, where it exists when the job gets its first Workload, or another
    class than the one that its Workloads have. As in Kueue it does not change jobs that were there before it."""
    newest = view.workload(view.slices[-1]) if view.slices else None
    if newest is None:
        return kueue.DEFAULT_PRIORITY_CLASS if kueue.DEFAULT_PRIORITY_CLASS in view.priority_classes else ""
    has = (newest["spec"].get("priorityClassRef") or {}).get("name", "")
    is_there = kueue.DEFAULT_PRIORITY_CLASS in view.priority_classes
    return kueue.DEFAULT_PRIORITY_CLASS if has and (is_there or has == kueue.DEFAULT_PRIORITY_CLASS) else ""


def priority_now(workload: Manifest) -> Manifest:
    """The priority fields that a Workload has."""
    spec = workload["spec"]
    ref = {"priorityClassRef": spec["priorityClassRef"]} if "priorityClassRef" in spec else {}
    return {"priority": spec.get("priority", 0)} | ref


def placement_choices(job: Manifest) -> dict[str, str | None]:
    """The cluster selector and the scheduler that a job names, as annotations of its slices; None for one that it does
    not name. A selector that is too long is not among them: a Workload whose annotations are full takes no order."""
    selector = annotation(job, api_names.CLUSTER_SELECTOR_ANNOTATION) or None
    has_room = selector is None or len(selector) <= MOST_CHARACTERS
    choices = {api_names.CLUSTER_SELECTOR_ANNOTATION: selector} if has_room else {}
    return choices | {api_names.SCHEDULER_LABEL: chosen_by(job) or None}


def selector_problems(job: Manifest) -> list[Problem]:
    """Why the cluster selector that a job names is none; empty where it is one."""
    wrong = problem_of_text(annotation(job, api_names.CLUSTER_SELECTOR_ANNOTATION) or "")
    message = f"the annotation {api_names.CLUSTER_SELECTOR_ANNOTATION} is no label selector: {wrong}"
    return [Problem("InvalidClusterSelector", message)] if wrong else []


def elasticity(view: JobView, job: Manifest) -> dict[str, str | None]:
    """What the job says of its size, as annotations of its slices; None for what it does not say."""
    upgrade = KINDS[view.ref.kind].is_upgrade(view.desired.counts)
    resized = size_bounds.has_other_indexes(view, job)
    return size_bounds.said_by(
        job, fixed=view.is_fixed, upgrade=upgrade, autoscaled=view.is_autoscaled, resized=resized
    )


def _set_priority(view: JobView, job: Manifest) -> list[Command]:
    """Copy another class, or another value of it, onto the slices that run or wait."""
    wanted = priority(job, view)
    return [
        Patch(resource=WORKLOADS, target=workload, body={"spec": {"priorityClassRef": None} | wanted})
        for workload in map(view.workload, view.unfinished)
        if wanted and priority_now(workload) != wanted
    ]


def _set_placement(view: JobView, job: Manifest) -> list[Command]:
    """Copy an edited cluster selector or scheduler onto the slices: it counts for those that wait or are requeued."""
    return _annotate(view, placement_choices(job))


def _set_queue(view: JobView, job: Manifest) -> list[Command]:
    """Move slices that wait into the queue that the job names. With quota, a chain stays where it is charged."""
    wanted = queue_of(job)
    if not wanted or any(slice.admission is not None for slice in view.unfinished):
        return []
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body={"spec": {"queueName": wanted}})
        for slice in view.unfinished
        if slice.queue != wanted
    ]


def _set_elastic(view: JobView, job: Manifest) -> list[Command]:
    """Let a chain that waits be elastic, or of a fixed size, as its job says by now."""
    if not view.fixed_jobs or any(slice.admission is not None for slice in view.unfinished):
        return []
    wanted = "true" if is_elastic(job) else None
    body = {"metadata": {"annotations": {kueue.ELASTIC_ANNOTATION: wanted}}}
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body=body)
        for slice in view.unfinished
        if slice.elastic is not is_elastic(job)
    ]


def _set_elasticity(view: JobView, job: Manifest) -> list[Command]:
    """Copy what the job says of its size onto the slices: it counts from then on, also for those with quota."""
    return _annotate(view, elasticity(view, job))


def _set_partial(view: JobView, job: Manifest) -> list[Command]:
    """Let a slice that waits accept a part, or not, as its job says by now. With quota it is no matter."""
    name = api_names.PARTIAL_SCALE_UP_ANNOTATION
    wanted = "true" if annotation(job, name) == "true" else None
    return [
        Patch(resource=WORKLOADS, target=view.workload(slice), body={"metadata": {"annotations": {name: wanted}}})
        for slice in view.unfinished
        if slice.admission is None and annotation(view.workload(slice), name) != wanted
    ]


def _annotate(view: JobView, wanted: Mapping[str, str | None]) -> list[Command]:
    """Give the slices that run or wait these annotations; None takes one off."""
    body = {"metadata": {"annotations": dict(wanted)}}
    return [
        Patch(resource=WORKLOADS, target=workload, body=body)
        for workload in map(view.workload, view.unfinished)
        if any(annotation(workload, name) != value for name, value in wanted.items())
    ]
