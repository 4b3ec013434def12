"""The messages that tell a worker why the size it asked for is not there yet."""

from slicebus.decisions.commands import Command, Publish
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Pending
from slicebus.slices.workload import Slice

STRUCTURAL_CHANGE = "StructuralChange"


def notice_key(workload: str, message: str) -> str:
    """How a notice is remembered, so that it is not given again."""
    return f"{workload} {message}"


def pending_notice(
    view: JobView, slice: Slice, *, reason: str, message: str, since: str, would_admit: str = ""
) -> list[Command]:
    """Why the worker's last request waits or was refused; nothing when no worker has asked."""
    requested = view.desired.requested if view.job else None
    if requested is None or not requested.asks_for_size or view.cluster is None:
        return []
    notice = Pending(
        job=view.ref,
        workload=slice.name,
        worker_uid=requested.worker_uid,
        worker_generation=requested.worker_generation,
        wanted=requested.counts,
        reason=reason,
        message=message,
        since=since,
        would_admit=would_admit,
    )
    return [Publish(cluster=view.cluster, message=notice, correlation=requested.correlation)]
