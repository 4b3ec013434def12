"""Orders the slice that a worker holds, and sets the counts of slices. A shrink is ordered in the same write."""

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import counts_patch
from slicebus.manager.decide.order import dispatch, too_large
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts
from slicebus.slices.workload.workload import Slice


def hold(view: JobView, holder: Slice, *, now: str) -> list[Command]:
    """Commands that make the worker hold an admitted slice, or that show that the order for it is too large."""
    return too_large.checked(view, holder, dispatch.hold(view, holder), now=now)


def set_counts(view: JobView, slice: Slice, counts: Counts, *, orders: bool, now: str) -> list[Command]:
    """Commands that set the counts of a slice, and with `orders` the order that follows from them in the same write."""
    workload = view.workload(slice)
    body = counts_patch(workload, counts)
    if not orders:
        return [Patch(resource=WORKLOADS, target=workload, body=body)]
    resized = view.with_workload(workload | {"spec": workload["spec"] | body["spec"]})
    order = hold(resized, resized.slices[view.slices.index(slice)], now=now)
    match order:
        case [Patch(resource=resource, body=dict() as recorded, subresource=""), *rest] if resource == WORKLOADS:
            return [Patch(resource=WORKLOADS, target=workload, body=body | recorded), *rest]
    return [Patch(resource=WORKLOADS, target=workload, body=body)]
