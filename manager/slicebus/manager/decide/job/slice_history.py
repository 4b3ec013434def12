"""Deletes the finished slices that a job's history no longer keeps."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from slicebus.decisions.commands import Command, Remove
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import has_finalizer
from slicebus.manager.state.unshown_end import UnshownEnd
from slicebus.manager.state.views import JobView
from slicebus.slices.api.kueue import Condition
from slicebus.slices.workload.workload import Slice


class SliceHistory(msgspec.Struct, frozen=True):
    """How many finished slices of a job are kept, and for how many seconds."""

    limit: int
    max_age_s: float


def collect(view: JobView, history: SliceHistory, now: datetime) -> list[Command]:
    """Delete surplus slices. One that the worker may hold stays, and one that has the outbox, the last request, or the
    only record of the job's end."""
    outbox = view.outbox
    return [
        Remove(resource=WORKLOADS, target=view.workload(slice))
        for slice in surplus(view.slices, history, now)
        if not has_finalizer(view.workload(slice))
        and (outbox is None or outbox.recorded_on is not view.workload(slice))
        and (slice != view.keeper or not view.unfinished)
        and UnshownEnd.from_workload(view.workload(slice)) is None
    ]


def surplus(slices: Sequence[Slice], history: SliceHistory, now: datetime) -> list[Slice]:
    """The finished slices beyond the limit or too old, oldest first."""
    ended = sorted((slice for slice in slices if slice.finished and not slice.deleting), key=_finished_at)
    too_many = len(ended) - history.limit
    oldest = now - timedelta(seconds=history.max_age_s)
    return [slice for number, slice in enumerate(ended) if number < too_many or _finished_at(slice) < oldest]


def _finished_at(slice: Slice) -> datetime:
    return datetime.fromisoformat(slice.conditions[Condition.FINISHED]["lastTransitionTime"])
