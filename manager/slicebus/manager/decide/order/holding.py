"""Orders the slice that a worker holds, and sets the counts of slices. A shrink is ordered in the same write."""

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import counts_patch
from slicebus.manager.decide.order import dispatch, withheld
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.workload.workload import Slice


def hold(view: JobView, holder: Slice, *, now: str) -> list[Command]:
    """Commands that make the worker hold an admitted slice, or that show why the order for it waits."""
    return withheld.checked(view, holder, dispatch.hold(view, holder), now=now)


def set_counts(view: JobView, slice: Slice, counts: Counts, *, orders: bool, now: str) -> list[Command]:
    """Commands that set the counts of a slice, and with `orders` the order that follows from them in the same write."""
    workload = view.workload(slice)
    patch = Patch(resource=WORKLOADS, target=workload, body=counts_patch(workload, counts))
    return with_order(view, slice, patch, now=now) if orders else [patch]


def with_order(view: JobView, slice: Slice, patch: Patch, *, now: str) -> list[Command]:
    """A write on the Workload of the slice that the worker holds, and the order that follows from it in the same
    one."""
    workload, body = view.workload(slice), patch.body
    assert isinstance(body, dict)
    after = view.with_workload(_changed(workload, body))
    order = hold(after, after.slices[view.slices.index(slice)], now=now)
    match order:
        case [Patch(resource=resource, body=dict() as recorded, subresource=""), *rest] if resource == WORKLOADS:
            annotations = _annotations(body) | _annotations(recorded)
            joined = body | recorded | {"metadata": {"annotations": annotations}}
            return [Patch(resource=WORKLOADS, target=workload, body=joined), *rest]
    return [patch]


def _changed(workload: Manifest, body: Manifest) -> Manifest:
    """A Workload after a merge patch of its annotations and pod sets."""
    present = workload["metadata"].get("annotations", {}) | _annotations(body)
    annotations = {name: value for name, value in present.items() if value is not None}
    metadata = workload["metadata"] | {"annotations": annotations}
    return workload | {"metadata": metadata, "spec": workload["spec"] | body.get("spec", {})}


def _annotations(body: Manifest) -> dict[str, str | None]:
    found: dict[str, str | None] = body.get("metadata", {}).get("annotations", {})
    return found
