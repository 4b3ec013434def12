"""What a job lacks for slicebus to run it, and how one is told that looks as if it should be run and is left alone."""

from collections.abc import Iterator

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide import kueue_checks
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices import kueue
from slicebus.slices.conditions import Finding, conditions_of, has_finding, with_findings

ACCEPTED_CONDITION = "slicebus.dev/Accepted"
"""On a job that is not taken: False, with the reason."""
NOT_MANAGED = "NotManaged"
"""Why a job is left alone, as the reason of the condition and of the Event."""
_WITHOUT_CONDITIONS = ("RayJob",)


def is_managed(job: Manifest) -> bool:
    """Whether slicebus shall run this job: a queue name, the elastic annotation, and managedBy for MultiKueue."""
    return _is_queued(job) and _is_elastic(job) and _is_dispatched(job)


def missing(job: Manifest) -> Iterator[str]:
    """What the job lacks to be managed, in sentences."""
    if not _is_queued(job):
        yield f"it has no label {kueue.QUEUE_NAME_LABEL}"
    if not _is_elastic(job):
        yield f'it has no annotation {kueue.ELASTIC_ANNOTATION}: "true"'
    if not _is_dispatched(job):
        yield f"its spec.managedBy is not {kueue.MANAGED_BY_MULTIKUEUE}"


def is_nearly_managed(job: Manifest) -> bool:
    """Whether a job is queued and asks for one half of what slicebus does: its user expects the other.

    What another job has made, such as the RayCluster of a RayJob, is not its user's to change.
    """
    owners = job["metadata"].get("ownerReferences") or ()
    if any(owner.get("controller") and owner["kind"] in JOB_RESOURCES for owner in owners):
        return False
    return _is_queued(job) and _is_elastic(job) != _is_dispatched(job)


def is_of_concern(job: Manifest) -> bool:
    """Whether there may be something to do for a job, or to say to it."""
    return is_managed(job) or is_nearly_managed(job) or _is_told(job)


def tell(view: JobView, *, beside_kueue: bool, now: str) -> list[Command]:
    """Why a job is left alone, on the job and in one Event; nothing where it is nobody's business, or said.

    Beside a Kueue the job's Workload has our AdmissionCheck, or it is in a queue that has nothing to do with us.
    """
    job = view.job
    if job is None:
        return []
    is_ours = _has_check(view) if beside_kueue else is_nearly_managed(job)
    if is_managed(job) or not is_ours:
        return _take_back(job)
    message = f"slicebus leaves it alone: {'; '.join(missing(job))}"
    if not (write := _write(job, message, now=now)):
        return []
    return [write, Emit(regarding=job, reason=NOT_MANAGED, note=message, warning=True)]


def _has_check(view: JobView) -> bool:
    return any(kueue_checks.entry_of(view.workload(slice), view.checks) for slice in view.unfinished)


def _write(job: Manifest, message: str, *, now: str) -> Command | None:
    if job["kind"] in _WITHOUT_CONDITIONS:
        return _annotate(job, message) if annotation(job, kueue.NOT_MANAGED_ANNOTATION) != message else None
    finding = Finding(ACCEPTED_CONDITION, False, NOT_MANAGED, message)
    return None if has_finding(job, finding) else _set_conditions(job, with_findings(job, finding, now=now))


def _take_back(job: Manifest) -> list[Command]:
    if not _is_told(job):
        return []
    if annotation(job, kueue.NOT_MANAGED_ANNOTATION) is not None:
        return [_annotate(job, None)]
    return [_set_conditions(job, [entry for entry in conditions_of(job) if not _says_so(entry)])]


def _is_told(job: Manifest) -> bool:
    return annotation(job, kueue.NOT_MANAGED_ANNOTATION) is not None or any(map(_says_so, conditions_of(job)))


def _says_so(condition: Manifest) -> bool:
    return condition["type"] == ACCEPTED_CONDITION and condition.get("reason") == NOT_MANAGED


def _annotate(job: Manifest, message: str | None) -> Command:
    body = {"metadata": {"annotations": {kueue.NOT_MANAGED_ANNOTATION: message}}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body)


def _set_conditions(job: Manifest, conditions: list[Manifest]) -> Command:
    body = {"status": {"conditions": conditions}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, subresource="status")


def _is_queued(job: Manifest) -> bool:
    return bool(job["metadata"].get("labels", {}).get(kueue.QUEUE_NAME_LABEL))


def _is_elastic(job: Manifest) -> bool:
    return annotation(job, kueue.ELASTIC_ANNOTATION) == "true"


def _is_dispatched(job: Manifest) -> bool:
    return bool(job["spec"].get("managedBy") == kueue.MANAGED_BY_MULTIKUEUE)
