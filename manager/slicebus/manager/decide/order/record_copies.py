"""Copies a job's newest dispatch to what outlives the Workload that has it."""

from slicebus.decisions.commands import Command
from slicebus.manager.decide.order import size_requests
from slicebus.manager.decide.order.outbox import write
from slicebus.manager.state.outbox import Dispatch, Outbox
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest


def copies(view: JobView) -> list[Command]:
    """Commands that write it before its Workload goes: onto the job, with which requests are late, and onto Workloads
    that stay, as replaced ones do. Empty when it is written.

    The job may get another first slice, whose version must be higher than the worker's tombstone. Nothing else of the
    copy on the job counts: see `Outbox.left_on`.
    """
    outbox, left = view.outbox, view.reading.outbox if view.reading else None
    if outbox is None or view.job is None:
        return []
    on_others = [write(outbox.record, workload, applied=outbox.applied) for workload in _outdated(view, outbox)]
    if left is not None and left.applied >= outbox.record.version:
        return on_others
    return [*on_others, write(outbox.record, view.job, applied=outbox.applied, more=size_requests.left_on_job(view))]


def _outdated(view: JobView, outbox: Outbox) -> list[Manifest]:
    """The Workloads that stay when that of the newest dispatch goes, and would show an older one as the newest."""
    if "deletionTimestamp" not in outbox.recorded_on["metadata"]:
        return []
    staying = (view.workload(slice) for slice in view.slices if not slice.deleting)
    dispatches = ((workload, Dispatch.from_manifest(workload)) for workload in staying)
    return [workload for workload, older in dispatches if older is not None and older.version < outbox.record.version]
