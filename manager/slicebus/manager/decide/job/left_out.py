"""Tells which annotations of a job its copy on the worker does not get."""

from slicebus.decisions.commands import Command, Emit
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs.copies import left_out

_MOST_NAMED = 3


def tell(job: Manifest) -> list[Command]:
    """An Event on the job, where some have no room beside slicebus' own. Call it once, when the job begins."""
    names = left_out(job)
    if not names:
        return []
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    note = (
        f"The copy of this job on a worker cluster gets all annotations but {', '.join(names[:_MOST_NAMED])}{rest}: "
        "an object has 256 KiB for all of them, and slicebus needs 8 KiB"
    )
    return [Emit(regarding=job, reason="AnnotationsLeftOut", note=note, warning=True)]
