"""Writes annotations onto a worker's job, whatever others have filled its annotations with."""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Manifest
from slicebus.slices.api.annotation_values import with_room_on_copy

_MOST_NAMED = 3


def patch_job(job: Manifest, body: Manifest) -> list[Command]:
    """A merge patch that writes annotations, with an Event on the job where others' give way to them."""
    metadata = body["metadata"]
    written = metadata["annotations"]
    changes = with_room_on_copy(job["metadata"].get("annotations") or {}, written)
    fitted = body | {"metadata": metadata | {"annotations": changes}}
    patch = Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=fitted)
    gone = sorted(changes.keys() - written.keys())
    return [patch, *([_told(job, gone)] if gone else [])]


def _told(job: Manifest, gone: list[str]) -> Command:
    rest = f" and {len(gone) - _MOST_NAMED} more" if len(gone) > _MOST_NAMED else ""
    note = (
        f"The annotations of this job had no room left for those of slicebus (256 KiB in all), so these were removed "
        f"here: {', '.join(gone[:_MOST_NAMED])}{rest}"
    )
    return Emit(regarding=job, reason="AnnotationsRemoved", note=note, warning=True)
