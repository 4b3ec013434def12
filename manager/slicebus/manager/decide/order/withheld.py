"""Shows on a Workload why the order of its job is not published: it waits for a flavor, or is larger than a message may
be."""

import math
from collections.abc import Sequence

import msgspec

from slicebus.bus.sizes import HEADER_BYTES
from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.kube.failures import tells_of_webhook
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.requirements import FLAVOR_NOT_FOUND
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, WorkloadSpec
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.workload.workload import Slice

TOO_LARGE = "TooLarge"
REASONS = (TOO_LARGE, FLAVOR_NOT_FOUND)
"""The reasons of orders that no cluster has got."""
WAITS = "Conflict"
"""The reason of an order that an agent cannot carry out yet."""
_MIB = 1024**2
_HEADERS = HEADER_BYTES // 8
"""More than the attributes of an order have."""


def checked(view: JobView, slice: Slice, commands: list[Command], *, now: str) -> list[Command]:
    """The commands of a dispatch; where an order in them has to wait, the condition that says why. An order that no
    longer has to goes out after its condition has ended."""
    orders = [command for command in commands if isinstance(command, Publish)]
    if not orders:
        return (_end(view, slice, now=now) if dispatch.has_copy(view) else []) or commands
    finding = _lack_of_flavors(view, slice, orders) or _excess(view, orders)
    if finding is None:
        return _end(view, slice, now=now) or commands
    workload = view.workload(slice)
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    events = [Emit(regarding=view.job, reason=finding.reason, note=finding.message, warning=True)] if view.job else []
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"), *events]


def dispatched(workload: Manifest) -> Manifest:
    """The condition that says whether a Workload's order can be carried out; empty without one."""
    return next((entry for entry in conditions_of(workload) if entry["type"] == api_names.DISPATCHED_CONDITION), {})


def shows_refusal(workload: Manifest) -> bool:
    """Whether a Workload shows that its cluster has refused an order, rather than why none has gone there."""
    shown = dispatched(workload)
    return shown.get("status") == "False" and shown.get("reason") not in (api_names.SUSPENDING, *REASONS)


def is_denied(workload: Manifest) -> bool:
    """Whether a Workload shows that its cluster denies an order: the order waits neither for something before it nor
    for a webhook that is down."""
    shown = dispatched(workload)
    return shows_refusal(workload) and shown.get("reason") != WAITS and not tells_of_webhook(shown.get("message", ""))


def _lack_of_flavors(view: JobView, slice: Slice, orders: Sequence[Publish]) -> Finding | None:
    """Why an order that would make a copy waits: nobody knows the nodes of its flavors. A copy that is there has
    them."""
    makes_copy = any(isinstance(order.message, WorkloadSpec) for order in orders) and not dispatch.has_copy(view)
    missing = _missing_flavors(view, slice) if makes_copy else []
    if not missing:
        return None
    are = f"ResourceFlavor {missing[0]} does" if len(missing) == 1 else f"ResourceFlavors {', '.join(missing)} do"
    message = f"{are} not exist: the pods on cluster {view.place} would run on any nodes. Make it anew, or stop the job"
    return Finding(api_names.DISPATCHED_CONDITION, False, FLAVOR_NOT_FOUND, message)


def _missing_flavors(view: JobView, slice: Slice) -> list[str]:
    assigned = slice.admission.pod_sets if slice.admission else ()
    return sorted({name for pod_set in assigned for name in pod_set.flavors.values()} - view.flavors.keys())


def _excess(view: JobView, orders: Sequence[Publish]) -> Finding | None:
    """Why an order is larger than a message may be."""
    largest = max(map(_size, orders))
    if largest <= view.message_bytes:
        return None
    message = (
        # Rounded up: the Workload is a part of the order, and this message a part of the Workload.
        f"The order for cluster {view.place} has {math.ceil(largest / _MIB * 10) / 10} MiB, and a message has "
        f"at most {view.message_bytes / _MIB:.1f}: make the job smaller; large texts belong into a ConfigMap"
    )
    return Finding(api_names.DISPATCHED_CONDITION, False, TOO_LARGE, message)


def _end(view: JobView, slice: Slice, *, now: str) -> list[Command]:
    shown = slice.conditions.get(api_names.DISPATCHED_CONDITION, {})
    if shown.get("reason") not in REASONS or shown.get("status") != "False":
        return []
    workload = view.workload(slice)
    finding = Finding(api_names.DISPATCHED_CONDITION, True, "Dispatched", f"Goes to cluster {view.place}")
    body = findings_patch(workload, finding, now=now)
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]


def _size(order: Publish) -> int:
    return len(msgspec.json.encode(order.message)) + _HEADERS
