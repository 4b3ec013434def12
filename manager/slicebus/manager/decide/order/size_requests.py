"""Writes the worker's size request onto a Workload of its job, where the job's users may not write."""

from collections.abc import Mapping

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, counts_patch
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.workload.reclaimed import Reclaimed
from slicebus.slices.workload.workload import Slice


def record(
    view: JobView,
    request: SizeRequest,
    *,
    note: Reclaimed | None = None,
    more: Mapping[str, str] = {},
    counts: Counts | None = None,
) -> list[Command]:
    """The write of a request, above every one that the job's Workloads have; none where the job has ended.

    `note`: what stands by then of pods that were taken back. Without one, the write forgets what stood. `more` are
    other annotations of the slice, `counts` its other size.
    """
    slice, kept = _lasting(view), view.keeper
    if slice is None:
        return []
    revision = view.requests[kept.name].revision + 1 if kept is not None else 1
    annotations: dict[str, str | None] = {
        api_names.REQUESTED_ANNOTATION: msgspec.structs.replace(request, revision=revision).to_annotation()
    }
    annotations |= more
    workload = view.workload(slice)
    if note != slice.reclaimed:
        annotations |= {api_names.RECLAIMED_ANNOTATION: note.to_annotation() if note is not None else None}
    body: Manifest = counts_patch(workload, counts) if counts is not None else {}
    return [Patch(resource=WORKLOADS, target=workload, body=body | {"metadata": {"annotations": annotations}})]


def carry(view: JobView) -> list[Command]:
    """The write that takes the request over onto a slice that lasts; none where such a slice has it.

    The slice that had it has ended or is being deleted, or an earlier version kept it on the job.
    """
    kept, requested = view.keeper, view.requested
    staying = [slice for slice in view.unfinished if not slice.deleting]
    if not staying or requested is None or (kept is not None and not (kept.finished or kept.deleting)):
        return []
    slice = view.holder if view.holder in staying else staying[-1]
    return [_write(view.workload(slice), requested)]


def annotations(view: JobView) -> dict[str, str]:
    """The annotation of a slice that has no request yet: the job's newest."""
    return {api_names.REQUESTED_ANNOTATION: (view.requested or SizeRequest.nothing()).to_annotation()}


def left_on_job(view: JobView) -> dict[str, str]:
    """The annotation of a job that outlives its Workloads: which messages are late. It says nothing of a size."""
    requested = view.requested
    is_needed = requested is not None and requested.speaker
    return {api_names.REQUESTED_ANNOTATION: requested.cleared().to_annotation()} if requested and is_needed else {}


def _lasting(view: JobView) -> Slice | None:
    """The slice that is written on: with quota it lasts longest."""
    return view.holder or next(reversed(view.unfinished), None)


def _write(workload: Manifest, request: SizeRequest) -> Command:
    body = annotation_patch(api_names.REQUESTED_ANNOTATION, request.to_annotation())
    return Patch(resource=WORKLOADS, target=workload, body=body)
