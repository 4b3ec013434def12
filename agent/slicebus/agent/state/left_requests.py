"""The requests without an answer of jobs that have gone from the worker."""

from slicebus.agent.state import annotations
from slicebus.agent.state.annotations import PendingRequests
from slicebus.agent.state.views import WorkerJobReading
from slicebus.decisions.table import Table
from slicebus.kube.cache import Change
from slicebus.slices.api import api_names

_MOST = 1000
"""The most jobs whose requests are kept after they have gone. Those requests reach the manager within minutes."""


def note_left(change: Change, left: Table[str, PendingRequests]) -> None:
    """Note what a job that has gone has requested, or forget that where the job is here. The entries are by the UID of
    the manager's job."""
    if change.new is not None:
        if left and annotations.is_ours(change.new):
            uid = annotations.annotation(change.new, api_names.MANAGER_UID_ANNOTATION)
            left.pop(uid or "", None)
        return
    job = WorkerJobReading.from_manifest(change.old) if change.old is not None else None
    if job is not None and job.requested is not None and job.requested.unanswered:
        left[job.ref.uid] = job.requested
        if len(left) > _MOST:
            del left[next(iter(left))]
