"""Why a worker is to lose a job that has not ended, and whether somebody asked for that (rule 6 of the design).

What somebody deleted by name or selector, while its namespace stays, goes at once, however much it is. What is only
inferred passes the breaker of its cluster, and is held where that would be too much at once.

A watch tells of a delete, or the object says that it is being deleted. A job that is missing when a manager starts, or
after its watch has lost its place, was not seen to go: the manager may look at a cluster that was restored.
"""

from collections.abc import Sequence
from enum import StrEnum

from slicebus.decisions.commands import Command, Emit, Patch, Remove
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, findings_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest
from slicebus.slices import kueue
from slicebus.slices.conditions import Finding, conditions_of, has_finding
from slicebus.slices.jobs import KINDS

HELD_CONDITION = "slicebus.dev/DeleteHeld"
"""On a Workload whose job a worker is to lose: True, with why, while too many of that cluster would be deleted."""
_TERMINAL = (JobPhase.SUCCEEDED, JobPhase.FAILED)


class Ending(StrEnum):
    """Why a worker is to lose a job. Those that are inferred are the reasons of `HELD_CONDITION`."""

    NONE = "None"
    """It is not, or that is written down already and goes its way."""
    ASKED = "Asked"
    """Somebody deleted the job, or its Workload, and the namespace stays."""
    NAMESPACE = "NamespaceTerminating"
    """Its namespace is being deleted, is gone, or is another one of the same name."""
    MISSING = "JobMissing"
    """The job is not there, and nobody has seen it go."""
    VANISHED = "GoneOnCluster"
    """The worker's copy is gone, and nobody has ordered that. An evicted job need not have one."""

    @property
    def is_inferred(self) -> bool:
        """Whether nobody has asked for just this job to go."""
        return self not in (Ending.NONE, Ending.ASKED)


_WHY = {
    Ending.NAMESPACE: "Its namespace is being deleted or is gone",
    Ending.MISSING: "Its job is not there, and nobody was seen to delete it",
    Ending.VANISHED: "Its copy is gone on the cluster, so it would be deleted here",
}


def is_ending(view: JobView) -> bool:
    """Whether the worker is to lose a job that had not ended, and that is not written down yet."""
    if view.is_withdrawn or view.is_withdrawing:
        return False
    return _is_deleted(view) or _has_vanished(view)


def ending_of(view: JobView, *, was_seen: bool, namespace: Manifest | None) -> Ending:
    """Why the worker is to lose a job.

    `was_seen`: a watch has seen the job go. `namespace` is that of the job; None where there is none.
    """
    if not is_ending(view):
        return Ending.NONE
    if not _is_deleted(view):
        return Ending.VANISHED
    if not _persists(namespace, view):
        return Ending.NAMESPACE
    return Ending.ASKED if view.job is not None or was_seen else Ending.MISSING


def show_held(view: JobView, ending: Ending, *, now: str) -> list[Command]:
    """Whether the delete of a job is held, as its Workloads shall say it; nothing when they do."""
    if not view.deletes_held or not ending.is_inferred:
        return [_without_condition(workload) for workload in view.workloads.values() if _shows_held(workload)]
    message = (
        f"{_WHY[ending]}. Too many jobs of cluster {view.cluster} would be deleted at once, so none of them is: "
        f"look, then `slicebus fleet release {view.cluster}`"
    )
    finding = Finding(HELD_CONDITION, True, ending, message)
    workloads = [view.workload(slice) for slice in view.unfinished or view.slices[-1:]]
    writes: list[Command] = [
        Patch(
            resource=WORKLOADS, target=workload, body=findings_patch(workload, finding, now=now), subresource="status"
        )
        for workload in workloads
        if not has_finding(workload, finding)
    ]
    if not writes:
        return []
    regarding = view.job if view.job is not None else workloads[0]
    return [*writes, Emit(regarding=regarding, reason="DeleteHeld", note=message, warning=True)]


def follow_vanished(view: JobView) -> list[Command] | None:
    """A job goes after its worker's copy, as far as that may go; None where it has not lost it."""
    if view.job is None or not _has_vanished(view):
        return None
    if view.deletes_held:
        return []
    note = f"Deleted on cluster {view.cluster}, and therefore here"
    gone = Emit(regarding=view.job, reason="DeletedOnWorker", note=note, warning=True)
    return [gone, Remove(resource=JOB_RESOURCES[view.ref.kind], target=view.job)]


def record_owner(view: JobView) -> list[Command]:
    """Whose a Workload is that was orphaned, written on it: without its owner nobody would look at its job again.

    Those of this manager say so from the beginning. Those of a Kueue and of older versions do not.
    """
    if view.job is not None and "deletionTimestamp" not in view.job["metadata"]:
        return []
    body = annotation_patch(kueue.JOB_ANNOTATION, f"{view.ref.kind}/{view.ref.name}")
    return [
        Patch(resource=WORKLOADS, target=workload, body=body)
        for workload in view.workloads.values()
        if is_orphan(workload) and annotation(workload, kueue.JOB_ANNOTATION) is None
    ]


def is_orphan(workload: Manifest) -> bool:
    """Whether a Workload is nobody's, so that nobody deletes it after its job."""
    return not any(owner.get("controller") for owner in workload["metadata"].get("ownerReferences") or ())


def _is_deleted(view: JobView) -> bool:
    if view.job is None or "deletionTimestamp" in view.job["metadata"]:
        return True
    ended = KINDS[view.ref.kind].outcome(view.job).phase in _TERMINAL
    return not ended and any(slice.deleting for slice in view.unfinished)


def _has_vanished(view: JobView) -> bool:
    if view.job is None or not view.vanished or view.evicted is not None:
        return False
    return KINDS[view.ref.kind].outcome(view.job).phase not in _TERMINAL


def _persists(namespace: Manifest | None, view: JobView) -> bool:
    """Whether the namespace is the one that the job was made in, and is to stay."""
    if namespace is None or "deletionTimestamp" in namespace["metadata"]:
        return False
    created = _existed_at(view)
    return not created or bool(namespace["metadata"].get("creationTimestamp", "") <= created)


def _existed_at(view: JobView) -> str:
    """When the job was there at the latest, RFC 3339. Its Workloads come after it."""
    if view.job is not None and (created := view.job["metadata"].get("creationTimestamp")):
        return str(created)
    return min((slice.created for slice in view.slices), default="")


def _shows_held(workload: Manifest) -> bool:
    return any(condition["type"] == HELD_CONDITION for condition in conditions_of(workload))


def _without_condition(workload: Manifest) -> Command:
    kept: Sequence[Manifest] = [entry for entry in conditions_of(workload) if entry["type"] != HELD_CONDITION]
    return Patch(resource=WORKLOADS, target=workload, body={"status": {"conditions": kept}}, subresource="status")
