"""Writes an admission and the order that follows from it at once.

With two writes, the next reconcile would write the order before it publishes it. A crash after the one write leaves an
admitted slice whose order is written and not published, as a crash after the second of the two would.
"""

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide.admission import admission_writes, refusals
from slicebus.manager.decide.job import edits, endings, pod_templates
from slicebus.manager.decide.order import dispatch, holding
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, Manifest
from slicebus.slices.admission.cycle import Admit, Decision, Grow, Shrink
from slicebus.slices.api.conditions import with_findings
from slicebus.slices.workload.workload import Slice


def commands(view: JobView, slice: Slice, decision: Decision, *, now: str) -> list[Command]:
    """The writes of one decision about a slice of this job."""
    match admission_writes.commands(view, slice, decision, now=now):
        case [Patch(body={"status": {"admission": dict()} as status}) as patch, *rest] if isinstance(decision, Admit):
            return [_with_order(view, slice, patch, status, now=now), *rest]
        case [Patch() as patch, *rest] if isinstance(decision, Shrink | Grow) and _goes_on(view):
            return [*holding.with_order(view, slice, patch, now=now), *rest]
        case written:
            return written


def _with_order(view: JobView, slice: Slice, patch: Patch, status: Manifest, *, now: str) -> Patch:
    workload = view.workload(slice)
    admitted = workload | {"status": workload.get("status", {}) | status}
    after = view.with_workload(admitted)
    record = dispatch.next_record(after, after.slices[view.slices.index(slice)]) if _goes_on(after) else None
    if record is None:
        return patch
    conditions = with_findings(admitted, record.to_finding(), now=now)
    return msgspec.structs.replace(patch, body={"status": status | {"conditions": conditions}})


def comes_too_early(view: JobView) -> bool:
    """Whether edits of the job come first: the reconcile that copies them is due, and changes what is decided."""
    if not _is_followed(view) or view.job is None:
        return False
    is_outdated = bool(view.problems and view.holder is None) or pod_templates.with_former_pod_sets(view)
    return bool(is_outdated) or edits.are_due(view, view.job)


def _goes_on(view: JobView) -> bool:
    """Whether a job with quota is ordered next, and nothing else comes first: see `builtin.reconcile`."""
    return _is_followed(view) and refusals.may_order(view)


def _is_followed(view: JobView) -> bool:
    """Whether the chain follows the job: see `builtin.reconcile`."""
    if view.job is None or not view.is_managed or endings.is_deleted(view):
        return False
    if view.vanished or dispatch.has_unknown_end(view):
        return False
    return view.outcome.phase is JobPhase.RUNNING
