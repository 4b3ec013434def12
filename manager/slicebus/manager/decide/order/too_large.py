"""Shows on a Workload that its order is larger than a message may be, instead of publishing it."""

import math

import msgspec

from slicebus.bus.sizes import HEADER_BYTES
from slicebus.decisions.commands import Command, Emit, Patch, Publish
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import findings_patch
from slicebus.manager.state.views import JobView
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.workload.workload import Slice

REASON = "TooLarge"
_MIB = 1024**2
_HEADERS = HEADER_BYTES // 8
"""More than the attributes of an order have."""


def checked(view: JobView, slice: Slice, commands: list[Command], *, now: str) -> list[Command]:
    """The commands of a dispatch; where an order in them is too large, the condition that says so. An order that was
    too large, and no longer is, goes out after its condition has ended."""
    sizes = [_size(command) for command in commands if isinstance(command, Publish)]
    if not sizes:
        return commands
    if max(sizes) <= view.message_bytes:
        return _end(view, slice, now=now) or commands
    message = (
        # Rounded up: the Workload is a part of the order, and this message a part of the Workload.
        f"The order for cluster {view.place} has {math.ceil(max(sizes) / _MIB * 10) / 10} MiB, and a message has "
        f"at most {view.message_bytes / _MIB:.1f}: make the job smaller; large texts belong into a ConfigMap"
    )
    finding, workload = Finding(api_names.DISPATCHED_CONDITION, False, REASON, message), view.workload(slice)
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    events = [Emit(regarding=view.job, reason=REASON, note=message, warning=True)] if view.job else []
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"), *events]


def _end(view: JobView, slice: Slice, *, now: str) -> list[Command]:
    shown = slice.conditions.get(api_names.DISPATCHED_CONDITION, {})
    if shown.get("reason") != REASON or shown.get("status") != "False":
        return []
    workload = view.workload(slice)
    finding = Finding(api_names.DISPATCHED_CONDITION, True, "Dispatched", f"Goes to cluster {view.place}")
    body = findings_patch(workload, finding, now=now)
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]


def _size(command: Publish) -> int:
    return len(msgspec.json.encode(command.message)) + _HEADERS
