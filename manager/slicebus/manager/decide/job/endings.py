"""Decides why a job that has not ended is deleted on its worker, and whether somebody asked for it (rule 6 of the
design).

Jobs that somebody deleted by name or selector, while their namespace stays, are deleted at once, however many they are.
An inferred delete passes the breaker of its cluster, which holds it when there are too many at once.

A delete was seen where a watch reported it, or the object has a deletion timestamp. A job that is missing when a
manager starts, or after its watch has lost its place, was not seen to go: the manager may run on a restored cluster.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from slicebus.decisions.commands import Command, Emit, Patch, Remove, Requeue
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, findings_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.api.owners import Owner

_END_S, _END_COUNTS = 1.0, timedelta(seconds=30)
"""So often it is asked again whether an end was written, and so long after its last try it is waited for."""


class Ending(StrEnum):
    """Why a job is to be deleted on its worker. The inferred ones are the reasons of `HELD_CONDITION`."""

    NONE = "None"
    """It is not to be deleted, or its delete is recorded already."""
    ASKED = "Asked"
    """Somebody deleted the job, or its Workload, and the namespace stays."""
    NAMESPACE = "NamespaceTerminating"
    """Its namespace is being deleted, is gone, or is a newer one with the same name."""
    MISSING = "JobMissing"
    """The job is missing, and no watch has seen its delete."""
    NOT_SERVED = "KindNotServed"
    """The job is missing since its kind was not served: it went with the definition, or nobody saw it go."""
    VANISHED = "GoneOnCluster"
    """The worker's copy is gone without an order. An evicted job need not have a copy."""

    @property
    def is_inferred(self) -> bool:
        """Whether nobody has deleted just this job."""
        return self not in (Ending.NONE, Ending.ASKED)


_WHY = {
    Ending.NAMESPACE: "Its namespace is being deleted or is gone",
    Ending.MISSING: "Its job is not there, and nobody was seen to delete it",
    Ending.NOT_SERVED: "Its job is missing since its kind was not served: it went with the definition, or unseen",
    Ending.VANISHED: "Its copy is gone on the cluster, so it would be deleted here",
}

_PASSING = frozenset((kueue.RESOURCE_IN_USE_FINALIZER, api_names.DISPATCHED_FINALIZER, "foregroundDeletion", "orphan"))
"""The finalizers that go by themselves."""


def await_written_end(view: JobView, *, now: str) -> list[Command]:
    """Commands that wait while the end of a job is being written; empty where none is. Its copy, which somebody else's
    delete of the Workload takes away, would run anew. A message that nobody brings again counts for a while."""
    if view.end_tried_at is None:
        return []
    is_late = datetime.fromisoformat(now) - datetime.fromisoformat(view.end_tried_at) >= _END_COUNTS
    return [] if is_late else [Requeue(job=view.ref, delay_s=_END_S)]


def is_ending(view: JobView) -> bool:
    """Whether a job that had not ended is to be deleted on its worker, and that is not recorded yet."""
    if view.is_withdrawn or view.is_withdrawing:
        return False
    return is_deleted(view) or _has_vanished(view)


def ending_of(view: JobView, *, was_seen: bool, namespace: Manifest | None, is_served: bool = True) -> Ending:
    """Why a job is to be deleted on its worker.

    `was_seen`: whether a watch has seen its delete. `namespace`: the job's namespace; None where it is gone.
    `is_served`: whether its kind is served now. The Workload shows whether the job went missing while it was not.
    """
    if not is_ending(view):
        return Ending.NONE
    if not is_deleted(view):
        return Ending.VANISHED
    if not _persists(namespace, view):
        return Ending.NAMESPACE
    if view.job is not None or was_seen:
        return Ending.ASKED
    went_unserved = not is_served or any(_held_for(w) == Ending.NOT_SERVED for w in view.workloads.values())
    return Ending.NOT_SERVED if went_unserved else Ending.MISSING


def show_held(view: JobView, ending: Ending, *, unserved: str = "", now: str) -> list[Command]:
    """Commands that show on a job's Workloads whether its delete is held; empty when they show it. `unserved`: why the
    job's kind is not served now."""
    if not view.deletes_held or not ending.is_inferred:
        return [_without_condition(workload) for workload in view.workloads.values() if _held_for(workload)]
    finding = Finding(api_names.HELD_CONDITION, True, ending, _held_message(view, ending, unserved))
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
    return [*writes, Emit(regarding=regarding, reason="DeleteHeld", note=finding.message, warning=True)]


def reconcile_vanished(view: JobView) -> list[Command] | None:
    """Commands that delete a job whose copy is gone, unless that is held; None where the copy is not gone."""
    if view.job is None or not _has_vanished(view):
        return None
    if view.deletes_held:
        return []
    note = f"Deleted on cluster {view.cluster}, and therefore here"
    gone = Emit(regarding=view.job, reason="DeletedOnWorker", note=note, warning=True)
    return [gone, Remove(resource=JOB_RESOURCES[view.ref.kind], target=view.job)]


def record_owner(view: JobView) -> list[Command]:
    """Record on orphaned Workloads which job owned them: otherwise their job would never be reconciled again.

    This manager records it when it creates a Workload. A Kueue does not.
    """
    if view.job is not None and "deletionTimestamp" not in view.job["metadata"]:
        return []
    body = annotation_patch(api_names.JOB_ANNOTATION, f"{view.ref.kind}/{view.ref.name}")
    return [
        Patch(resource=WORKLOADS, target=workload, body=body)
        for workload in view.workloads.values()
        if is_orphan(workload) and annotation(workload, api_names.JOB_ANNOTATION) is None
    ]


def is_orphan(workload: Manifest) -> bool:
    """Whether a Workload has no controller, so that nobody deletes it after its job."""
    return Owner.from_metadata(workload["metadata"]) is None


def is_kept_by_others(manifest: Manifest) -> bool:
    """Whether a job or a Workload is being deleted, and stays for a finalizer that is neither ours nor the garbage
    collector's."""
    metadata = manifest["metadata"]
    return "deletionTimestamp" in metadata and not _PASSING.issuperset(metadata.get("finalizers") or ())


def is_deleted(view: JobView) -> bool:
    """Whether the job is gone or being deleted, or one of its Workloads is while it has not ended."""
    if view.job is None or "deletionTimestamp" in view.job["metadata"]:
        return True
    ended = view.outcome.phase.is_terminal
    return not ended and any(slice.deleting for slice in view.unfinished)


def _has_vanished(view: JobView) -> bool:
    if view.job is None or not view.vanished or view.evicted is not None:
        return False
    return not view.outcome.phase.is_terminal


def _persists(namespace: Manifest | None, view: JobView) -> bool:
    """Whether the namespace is the one that the job was created in, and is not being deleted."""
    if namespace is None or "deletionTimestamp" in namespace["metadata"]:
        return False
    created = _existed_at(view)
    return not created or bool(namespace["metadata"].get("creationTimestamp", "") <= created)


def _existed_at(view: JobView) -> str:
    """The latest time when the job was created, RFC 3339; empty where nobody knows. Workloads come after their job."""
    if view.job is not None and (created := view.job["metadata"].get("creationTimestamp")):
        return str(created)
    return min((slice.created for slice in view.slices), default="")


def _held_message(view: JobView, ending: Ending, unserved: str) -> str:
    release = f"look, then `slicebus fleet release {view.cluster}`"
    if unserved:
        return f"Its job is missing, and its kind is not served: {unserved}. It runs on. Once that is mended, {release}"
    if ending is Ending.NOT_SERVED:
        return f"{_WHY[ending]}. It runs on until somebody decides: {release}"
    many = f"Too many jobs of cluster {view.cluster} would be deleted at once, so none of them is"
    return f"{_WHY[ending]}. {many}: {release}"


def _held_for(workload: Manifest) -> str:
    """Why the Workload shows its job's delete as held; empty where it does not."""
    return next((entry["reason"] for entry in conditions_of(workload) if entry["type"] == api_names.HELD_CONDITION), "")


def _without_condition(workload: Manifest) -> Command:
    kept: Sequence[Manifest] = [entry for entry in conditions_of(workload) if entry["type"] != api_names.HELD_CONDITION]
    return Patch(resource=WORKLOADS, target=workload, body={"status": {"conditions": kept}}, subresource="status")
