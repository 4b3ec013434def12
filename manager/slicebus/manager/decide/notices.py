"""The notices to a worker why it does not have the size yet that it asked for."""

from slicebus.decisions.commands import Command, Publish
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Pending
from slicebus.slices.workload import Slice

STRUCTURAL_CHANGE = "StructuralChange"


def notice_key(workload: str, message: str) -> str:
    """The key by which the manager remembers a notice, so that it is published once."""
    return f"{workload} {message}"


def pending_notice(
    view: JobView, slice: Slice, *, reason: str, message: str, since: str, would_admit: str = ""
) -> list[Command]:
    """The notice why the worker's last request waits or was refused; nothing when no worker has asked."""
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
