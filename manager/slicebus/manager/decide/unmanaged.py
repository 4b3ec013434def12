"""Shows on a job why slicebus leaves it alone, where its user seems to expect otherwise."""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.requirements import (
    ACCEPTED_CONDITION,
    NOT_MANAGED,
    is_managed,
    is_reported_unmanaged,
    missing,
    says_unmanaged,
)
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices import own_api
from slicebus.slices.conditions import Finding, conditions_of, has_finding, with_findings
from slicebus.slices.jobs import KINDS


def report(view: JobView, *, is_ours: bool, now: str) -> list[Command]:
    """Show on the job and in one Event why it is left alone; nothing where that is shown already.

    `is_ours`: whether its user seems to expect slicebus to run it (`modes`); nothing is shown otherwise.
    """
    job = view.job
    if job is None:
        return []
    if is_managed(job) or not is_ours:
        return _clear(job)
    message = f"slicebus leaves it alone: {'; '.join(missing(job))}"
    if not (write := _write(job, message, now=now)):
        return []
    return [write, Emit(regarding=job, reason=NOT_MANAGED, note=message, warning=True)]


def _write(job: Manifest, message: str, *, now: str) -> Command | None:
    if not KINDS[job["kind"]].refusal.conditions:
        return _annotate(job, message) if annotation(job, own_api.NOT_MANAGED_ANNOTATION) != message else None
    finding = Finding(ACCEPTED_CONDITION, False, NOT_MANAGED, message)
    return None if has_finding(job, finding) else _set_conditions(job, with_findings(job, finding, now=now))


def _clear(job: Manifest) -> list[Command]:
    if not is_reported_unmanaged(job):
        return []
    if annotation(job, own_api.NOT_MANAGED_ANNOTATION) is not None:
        return [_annotate(job, None)]
    return [_set_conditions(job, [entry for entry in conditions_of(job) if not says_unmanaged(entry)])]


def _annotate(job: Manifest, message: str | None) -> Command:
    body = {"metadata": {"annotations": {own_api.NOT_MANAGED_ANNOTATION: message}}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body)


def _set_conditions(job: Manifest, conditions: list[Manifest]) -> Command:
    body = {"status": {"conditions": conditions}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, subresource="status")
