"""What an order says of pods that a job loses to others, and of those that it gets back."""

import msgspec

from slicebus.manager.state.annotations import DesiredSize, with_ended
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest, Notice
from slicebus.slices.admission.notices import is_told_before
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.workload.workload import Slice


def resized_reason(desired: DesiredSize) -> str | msgspec.UnsetType:
    """The reason of the Event about a size that is the manager's wish; unset for any other size."""
    if desired.taken_back is None or not desired.taken_back.note:
        return msgspec.UNSET
    if desired.reclaimed is not None and desired.reclaimed.grows:
        return api_names.GROWN
    return api_names.RESTORED if desired.reclaimed is None or desired.reclaimed.done else api_names.RECLAIMED


def waits_for(desired: DesiredSize) -> Counts | msgspec.UnsetType:
    """The size that the job waits to have again; unset where none was taken, or it has that."""
    note, taken = desired.reclaimed, desired.taken_back
    if note is None or taken is None or note.done or note.grows:
        return msgspec.UNSET
    if all(count <= note.to.get(name, count) for name, count in note.before.items()):
        return msgspec.UNSET
    return with_ended(note.before, desired.finished if taken.counts_ended else {})


def notice_of_shrink(desired: DesiredSize) -> Notice | msgspec.UnsetType:
    """What the worker tells pods before it takes them; unset where they are taken at once."""
    note, taken = desired.reclaimed, desired.taken_back
    if note is None or taken is None or note.done or not note.notice_s:
        return msgspec.UNSET
    names = [each.workload for each in note.awaited_by]
    return Notice(id=taken.id, notice_s=note.notice_s, why=taken.message, beneficiaries=names)


def notice_of_eviction(view: JobView, slice: Slice, evicted: Manifest) -> Notice | msgspec.UnsetType:
    """What the worker tells a job before it is evicted; unset where that is done at once, as when somebody deactivates
    it or drains its queue. What the worker has carried out stays as it was told."""
    is_stopped = (not slice.active or view.allowed.stopped) and not view.is_stopped
    notice_s = view.eviction_notice_s(slice) if is_told_before(slice) and not is_stopped else 0.0
    if not notice_s:
        return msgspec.UNSET
    word = content_hash([slice.uid, evicted.get("lastTransitionTime", "")])
    return Notice(id=word, notice_s=notice_s, why=evicted.get("message", ""))
