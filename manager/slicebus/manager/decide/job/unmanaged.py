"""Shows on a job that slicebus does not act by its metadata: it leaves the job alone, or runs it on as it took it."""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.job import edits, execution_time
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.requirements import (
    FIXED_SIZE,
    NOT_MANAGED,
    OPT_IN_REMOVED,
    PRIORITY_CLASS_MISSING,
    QUEUE_CHANGED,
    SIZE_EDITED,
    TIME_LIMIT_CHANGED,
    is_elastic,
    is_managed,
    is_reported_unmanaged,
    missing,
    queue_of,
    says_unmanaged,
)
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding, with_findings
from slicebus.slices.jobs import KINDS


def left_alone(job: Manifest, *, is_ours: bool, fixed_jobs: bool, now: str) -> list[Command]:
    """Show on the job and in one Event why it is left alone; nothing where that is shown already.

    `is_ours`: whether its user seems to expect slicebus to run it (`modes`); nothing is shown otherwise. `fixed_jobs`:
    whether jobs without the elastic annotation are run.
    """
    if is_managed(job, fixed_jobs=fixed_jobs) or not is_ours:
        return _clear(job)
    message = f"slicebus leaves it alone: {'; '.join(missing(job, fixed_jobs=fixed_jobs))}"
    if not (write := _write(job, message, now=now)):
        return []
    return [write, Emit(regarding=job, reason=NOT_MANAGED, note=message, warning=True)]


def run_on(view: JobView, job: Manifest) -> list[Command]:
    """Show on a job that was taken, and in one Event, which change by its user has no effect.

    An annotation shows it, because the worker's status replaces the conditions.
    """
    reason, message = _unheeded(view, job)
    if annotation(job, api_names.UNHEEDED_ANNOTATION) == (message or None):
        return []
    shown = _annotate(job, api_names.UNHEEDED_ANNOTATION, message or None)
    return [shown, *([Emit(regarding=job, reason=reason, note=message, warning=True)] if message else [])]


def _unheeded(view: JobView, job: Manifest) -> tuple[str, str]:
    """The reason and the message; empty where the job is run as its metadata says."""
    if not is_managed(job, fixed_jobs=view.is_fixed):
        lacks = "; ".join(missing(job, fixed_jobs=view.is_fixed))
        return OPT_IN_REMOVED, f"it stays in LocalQueue {view.queue}, and runs on: {lacks}. Delete it to end it"
    if view.beside_kueue:
        return "", ""  # A Kueue handles every other edit.
    if view.problems and view.holder is not None:
        problems = "; ".join(problem.message for problem in view.problems)
        return view.problems[0].reason, f"it runs on as it was: {problems}"
    if view.queue != queue_of(job) and any(slice.admission is not None for slice in view.unfinished):
        return QUEUE_CHANGED, f"it stays in LocalQueue {view.queue} while it has quota, and not in {queue_of(job)}"
    if absent := edits.missing_class(job, view):
        message = f"it keeps priority {view.priority}: WorkloadPriorityClass {absent} doesn't exist"
        return PRIORITY_CLASS_MISSING, message
    if execution_time.is_unheeded(view, job):
        return TIME_LIMIT_CHANGED, "its label for the maximum execution time is for its next start"
    kept = view.desired.kept
    if kept is not None and (kept != view.desired.own or is_elastic(job)):
        return FIXED_SIZE, f"it was started at the fixed size {counts_text(kept)}, and keeps it while it has quota"
    if view.kept_counts is not None and view.is_autoscaled:
        size = counts_text(view.kept_counts)
        owner = f"Ray's autoscaler owns its size, and wants {size} now"
        return SIZE_EDITED, f"{owner}: the replicas of its spec are for its next start"
    return "", ""


def _write(job: Manifest, message: str, *, now: str) -> Command | None:
    if not KINDS[job["kind"]].refusal.conditions:
        is_shown = annotation(job, api_names.NOT_MANAGED_ANNOTATION) == message
        return None if is_shown else _annotate(job, api_names.NOT_MANAGED_ANNOTATION, message)
    finding = Finding(api_names.ACCEPTED_CONDITION, False, NOT_MANAGED, message)
    return None if has_finding(job, finding) else _set_conditions(job, with_findings(job, finding, now=now))


def _clear(job: Manifest) -> list[Command]:
    if not is_reported_unmanaged(job):
        return []
    if annotation(job, api_names.NOT_MANAGED_ANNOTATION) is not None:
        return [_annotate(job, api_names.NOT_MANAGED_ANNOTATION, None)]
    return [_set_conditions(job, [entry for entry in conditions_of(job) if not says_unmanaged(entry)])]


def _annotate(job: Manifest, name: str, message: str | None) -> Command:
    resource, body = JOB_RESOURCES[job["kind"]], annotation_patch(name, message)
    return Patch(resource=resource, target=job, body=body, only_shows=True)


def _set_conditions(job: Manifest, conditions: list[Manifest]) -> Command:
    body = {"status": {"conditions": conditions}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, subresource="status")
