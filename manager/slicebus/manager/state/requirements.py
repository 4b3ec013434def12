"""Decides which objects slicebus acts on: jobs by their labels and spec, AdmissionChecks by their controller."""

from collections.abc import Iterator

from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.state.annotations import annotation
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.owners import Owner
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.workload import Slice

NOT_MANAGED = "NotManaged"
"""Why a job is left alone, as the reason of the condition and of the Event."""
OPT_IN_REMOVED = "OptInRemoved"
PRIORITY_CLASS_MISSING = "PriorityClassNotFound"
FLAVOR_NOT_FOUND = "FlavorNotFound"
"""Why the order for a job waits, as the reason of the condition and of the Event."""
TIME_LIMIT_CHANGED = "MaximumExecutionTimeChanged"
QUEUE_CHANGED = "QueueChanged"
SIZE_EDITED = "AutoscalerOwnsSize"
"""What somebody has changed of a job that was taken, as the reason of the Event."""
DRY_RUNS = "dry-runs"
"""The name of the index of jobs that are only asked about, and its one key."""
FIXED_SIZE = "FixedSize"
"""The reason of a size that a job without the elastic annotation cannot have, for the Event and the annotation."""


def is_managed(job: Manifest, *, fixed_jobs: bool) -> bool:
    """Whether slicebus shall run this job: a queue name, what keeps other controllers off it (managedBy), and the
    elastic annotation, unless `fixed_jobs` are run as well. A job that is only asked about does not run."""
    return _is_queued(job) and (fixed_jobs or is_elastic(job)) and _is_dispatched(job) and not is_dry_run(job)


def missing(job: Manifest, *, fixed_jobs: bool) -> Iterator[str]:
    """What the job lacks to be managed, one clause each."""
    if not _is_queued(job):
        yield f"it has no label {kueue.QUEUE_NAME_LABEL}"
    if not (fixed_jobs or is_elastic(job)):
        yield f'it has no annotation {kueue.ELASTIC_ANNOTATION}: "true"'
    if not _is_dispatched(job):
        yield KINDS[job["kind"]].lacks_dispatch(job)
    if is_dry_run(job):
        yield f'it has the annotation {api_names.DRY_RUN_ANNOTATION}: "true"'


def is_nearly_managed(job: Manifest) -> bool:
    """Whether a queued job meets one of the two other requirements, so that its user seems to expect slicebus.

    A job that another job owns, such as the RayCluster of a RayJob, is never so: its user cannot change it.
    """
    owner = Owner.from_metadata(job["metadata"])
    if owner is not None and owner.kind in JOB_RESOURCES:
        return False
    return _is_queued(job) and is_elastic(job) != _is_dispatched(job)


def is_of_concern(job: Manifest) -> bool:
    """Whether slicebus may have to do something for a job, or show something on it."""
    return is_managed(job, fixed_jobs=True) or is_nearly_managed(job) or is_reported_unmanaged(job)


def is_reported_unmanaged(job: Manifest) -> bool:
    """Whether the job shows that slicebus leaves it alone."""
    return annotation(job, api_names.NOT_MANAGED_ANNOTATION) is not None or any(map(says_unmanaged, conditions_of(job)))


def says_unmanaged(condition: Manifest) -> bool:
    """Whether a condition of a job shows that slicebus leaves it alone."""
    return condition["type"] == api_names.ACCEPTED_CONDITION and condition.get("reason") == NOT_MANAGED


def is_our_check(check: Manifest) -> bool:
    """Whether an AdmissionCheck is for slicebus."""
    return bool(check.get("spec", {}).get("controllerName") == api_names.CHECK_CONTROLLER)


def waits_for_flavor(slice: Slice) -> bool:
    """Whether the order for a slice waits for a flavor, by its condition."""
    shown = slice.conditions.get(api_names.DISPATCHED_CONDITION, {})
    return shown.get("status") == "False" and shown.get("reason") == FLAVOR_NOT_FOUND


def queue_of(job: Manifest) -> str:
    """The LocalQueue that a job's label names; empty for none."""
    name: str = job["metadata"].get("labels", {}).get(kueue.QUEUE_NAME_LABEL, "")
    return name


def _is_queued(job: Manifest) -> bool:
    return bool(queue_of(job))


def is_dry_run(job: Manifest) -> bool:
    """Whether somebody only asks what would become of a job."""
    return annotation(job, api_names.DRY_RUN_ANNOTATION) == "true"


def dry_runs(job: Manifest) -> list[str]:
    """The index of such jobs, and of those that still have a verdict: all have the one key `DRY_RUNS`."""
    has_verdict = annotation(job, api_names.VERDICT_ANNOTATION) is not None
    return [DRY_RUNS] if has_verdict or is_dry_run(job) else []


def is_elastic(job: Manifest) -> bool:
    """Whether a job has the elastic annotation."""
    return annotation(job, kueue.ELASTIC_ANNOTATION) == "true"


def _is_dispatched(job: Manifest) -> bool:
    return not KINDS[job["kind"]].lacks_dispatch(job)
