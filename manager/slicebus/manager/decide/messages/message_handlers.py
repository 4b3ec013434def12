"""Handles each message from a worker.

The sender is authorized already (`authorization`). Each message type has one function.
A message that comes late or twice gives no commands. A message about a job that runs nowhere is late.
"""

from collections.abc import Callable

import msgspec

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember, Requeue
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.job import pods_left, reclaims, status_mirror, unknown_ends
from slicebus.manager.decide.manifests import annotation_patch, findings_patch, one_write_each
from slicebus.manager.decide.order import dispatch, size_requests, withheld
from slicebus.manager.decide.order.outbox import write
from slicebus.manager.state.annotations import SizeRequest, annotation, correlation_of
from slicebus.manager.state.outbox import MOST_BELIEVED, Dispatch, Held, Outbox, Progress, applied_version
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    JobPhase,
    Manifest,
    Refused,
    RequestKey,
    ScaleRequest,
    Status,
)
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding
from slicebus.slices.jobs.copies import MOST_PODS
from slicebus.slices.jobs.suspension import can_suspend
from slicebus.slices.workload.waiting import without_details
from slicebus.slices.workload.workload import Slice

_RETRY_REFUSED_S = 30.0
_RETRY_WAITING_S = 5.0
"""The same of an order that waits for something before it, such as pods that still end. An agent tries so often too."""


def scale_request(view: JobView, request: ScaleRequest, envelope: Envelope) -> list[Command]:
    """Write the request onto a Workload of the job. The chain follows from there. `size_bounds.problem` has found
    nothing wrong with its size."""
    if view.holder is None or not is_news(view, request, envelope):
        return []
    finished = request.finished or {}
    if not all(0 <= count <= MOST_PODS and name in request.wanted for name, count in finished.items()):
        raise ProtocolError(DeadReason.REFUSED, f"pods that have ended must be of a wanted pod set: {finished}")
    desired = SizeRequest(
        counts=request.wanted,
        worker_uid=request.worker_uid,
        worker_generation=request.worker_generation,
        baseline=view.desired.own,
        correlation=correlation_of(envelope),
        speaker=envelope.cluster_uid,
        epoch=envelope.epoch,
        sequence=envelope.sequence,
        granted=request.granted,
        finished=finished,
        taken_back=view.desired.taken_back or msgspec.UNSET,
        follows=request.follows or "",
    )
    heard, note = reclaims.heard(view, desired)
    return size_requests.record(view, heard, note=note, counts=reclaims.left_by(view.holder, heard, note))


def is_news(view: JobView, request: ScaleRequest, envelope: Envelope) -> bool:
    """Whether a request is of the copy of a job that runs, and newer than every one that is known."""
    if view.job is None or view.holder is None or view.outcome.phase.is_terminal or not _is_from_here(view, envelope):
        return False
    last, published_at = view.desired.requested, (envelope.epoch, envelope.sequence)
    key = RequestKey(request.worker_uid, request.worker_generation)
    return last is None or last.is_older_than(key, speaker=envelope.cluster_uid, published_at=published_at)


def applied(view: JobView, report: Applied, envelope: Envelope) -> list[Command]:
    """Write the applied version onto the slice that the report names; after a delete onto every slice that has a
    dispatch.

    When the worker has no pod of an evicted job left, every request that was published before this report is forgotten
    first.

    A job that has quota, and that the worker has deleted by a version which the manager does not know, is dispatched
    anew: the manager's etcd may have been restored. One that is to be suspended, and that the worker never had, counts
    as withdrawn from then on: no copy of it keeps its pods.
    """
    outbox, cluster = view.outbox, envelope.cluster
    if outbox is not None and report.spec_version > max(outbox.seen, MOST_BELIEVED):
        detail = f"version {report.spec_version} of {view.ref.key}, which has come to {outbox.seen}"
        raise ProtocolError(DeadReason.REFUSED, detail)
    if outbox is not None and cluster in outbox.record.left_copies and (cluster != view.cluster or report.deleted):
        return _recalled(outbox, report, cluster)
    if not _is_from_here(view, envelope):
        return []
    if (
        outbox is not None
        and report.deleted
        and outbox.state().held is Held.HOLD
        and report.spec_version >= outbox.record.version
    ):
        return dispatch.renew(view, above=report.spec_version, has_copy=False)
    is_news = outbox is not None and not outbox.is_reported and report.spec_version >= outbox.record.version
    confirms_suspended = is_news and (view.state.held is Held.SUSPENDED or _is_evicted_whole(view))
    published_at = (envelope.epoch, envelope.sequence)
    forgotten = forget_requests(view, published_at, speaker=envelope.cluster_uid) if confirms_suspended else []
    body = annotation_patch(api_names.APPLIED_ANNOTATION, str(report.spec_version))
    holding = [workload for name, workload in view.workloads.items() if report.deleted or name == report.workload]
    noted: list[Command] = [
        Patch(resource=WORKLOADS, target=target, body=body)
        for target in holding
        if Dispatch.from_manifest(target) is not None and applied_version(target) < report.spec_version
    ]
    return one_write_each([*forgotten, *noted, *_withdrawn(view, report)])


def carried_out(view: JobView, report: Applied, envelope: Envelope, *, now: str) -> list[Command]:
    """Show that the worker holds what it had refused before; nothing where nothing shows a refusal of it."""
    outbox, workload = view.outbox, view.workloads.get(report.workload)
    if outbox is None or workload is None or outbox.recorded_on is not workload or view.state.held is not Held.HOLD:
        return []
    if report.spec_version < outbox.record.version or not _is_from_here(view, envelope):
        return []
    if not withheld.shows_refusal(workload):
        return []
    finding = Finding(api_names.DISPATCHED_CONDITION, True, "Dispatched", f"Cluster {envelope.cluster} holds it")
    body = findings_patch(workload, finding, now=now)
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")]


def _withdrawn(view: JobView, report: Applied) -> list[Command]:
    outbox = view.outbox
    if outbox is None or not report.deleted or outbox.is_reported or report.spec_version < outbox.record.version:
        return []
    if view.state.held is not Held.SUSPENDED or view.state.progress is Progress.LOST:
        return []
    return [write(outbox.record.never_made(), outbox.recorded_on)]


def _is_evicted_whole(view: JobView) -> bool:
    """Whether an evicted job leaves its worker, as its kind cannot be suspended."""
    return view.is_withdrawing and view.evicted is not None and not can_suspend(view.ref.kind)


def forget_requests(
    view: JobView, published_at: tuple[int, int], *, speaker: str, made_anew: bool = False
) -> list[Command]:
    """Forget the requests that a speaker published before this epoch and sequence: the one that is known, and those
    that are still on their way. `made_anew`: whether another copy takes the place of the one that made them. It begins
    with the size of the manager's spec."""
    if view.job is None:
        return []
    last = view.requested
    if last is not None and last.is_since(published_at, speaker=speaker):
        return []
    begins_with = view.desired.own if made_anew else None
    return size_requests.record(view, SizeRequest.none_before(published_at, speaker=speaker, begins_with=begins_with))


def refused(view: JobView, refusal: Refused, envelope: Envelope, *, now: str) -> list[Command]:
    """Show on the Workload, and by an Event, why the worker cannot carry out an order, and send it again after a while.
    The Event is about the job, or about the Workload where the job is gone."""
    workload = _ordered_by(view, refusal)
    if workload is None or applied_version(workload) >= refusal.spec_version or not _is_from_here(view, envelope):
        return []
    waits = refusal.reason == withheld.WAITS
    answer = "cannot carry out version {} yet" if waits else "refused version {}"
    message = f"Cluster {envelope.cluster} {answer.format(refusal.spec_version)}: {refusal.message}"
    finding = Finding(api_names.DISPATCHED_CONDITION, False, refusal.reason, message)
    retry: list[Command] = [
        Forget(table=ManagerTable.PUBLISHED, key=view.ref),
        Requeue(job=view.ref, delay_s=_RETRY_WAITING_S if waits else _RETRY_REFUSED_S),
    ]
    if _is_shown(workload, finding):
        return retry
    body = findings_patch(workload, finding, now=now)
    regarding = view.job if view.job is not None else workload
    return [
        Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"),
        Emit(regarding=regarding, reason=refusal.reason, note=message, warning=True),
        *retry,
    ]


def _is_shown(workload: Manifest, refusal: Finding) -> bool:
    """Whether a Workload shows a refusal, whatever its text says of one try alone: a write would have the order
    published again at once."""
    shown = withheld.dispatched(workload)
    text = without_details(shown.get("message", ""))
    return (shown.get("status"), shown.get("reason"), text) == (
        "False",
        refusal.reason,
        without_details(refusal.message),
    )


def _ordered_by(view: JobView, refusal: Refused) -> Manifest | None:
    """The Workload that a refused order was made from. A delete names none."""
    if refusal.workload:
        return view.workloads.get(refusal.workload)
    recorded_on = view.outbox.recorded_on if view.outbox is not None else None
    return recorded_on if recorded_on is not None and recorded_on["kind"] == WORKLOADS.kind else None


def status(
    view: JobView,
    report: Status,
    envelope: Envelope,
    *,
    now: str,
    take: Callable[[JobView, Status, str], list[Command]] = status_mirror.mirror,
) -> list[Command]:
    """Take a status in with `take`, and record whether the worker's copy is gone.

    A job whose copy a user deleted is deleted here too, unless the breaker holds that: see `endings`. A job that may
    have ended before its copy went stays: see `unknown_ends`. Where a copy ended before the newest order reached it,
    the copy that this order makes is withdrawn. A report on the copy of an earlier run says nothing of the present one.
    Until an end is written, the job is not run anew (`builtin.reconcile`).

    The end of a job whose pods run on is shown after its slice is charged for those: see `pods_left`.
    """
    outbox = view.outbox
    if view.job is None or not _is_from_here(view, envelope):
        return []
    if view.outcome.phase.is_terminal:
        return pods_left.take(view, report, now=now) if view.waits_for_pods is not None else []
    if report.phase is JobPhase.GONE:
        if view.is_withdrawing or view.vanished or (outbox is not None and outbox.has_outlived(report.spec_version)):
            return []
        return (
            dispatch.note_unknown_end(view)
            if unknown_ends.may_have_ended(view, report)
            else dispatch.note_vanished(view)
        )
    if report.has_left_pods:
        return _as_end(view, take(view, report, now), now=now)
    # Several may write on one Workload: the first write makes the next conflict, and the message is handled again.
    is_news = outbox is not None and outbox.record.is_of_this_run(report.spec_version)
    is_there = dispatch.note_vanished(view, vanished=False) if is_news else []
    commands = [*is_there, *_withdraw_next(view, report), *take(view, report, now)]
    return _as_end(view, commands, now=now) if report.phase.is_terminal else commands


def _as_end(view: JobView, commands: list[Command], *, now: str) -> list[Command]:
    """Note that an end is being written, until it is: a server that answers no write may take minutes."""
    if not commands:
        return []
    tried = Remember(table=ManagerTable.ENDS, key=view.ref, value=now)
    return [tried, *commands, Forget(table=ManagerTable.ENDS, key=view.ref)]


def gang(view: JobView, report: Status, cluster: ClusterName) -> list[Command]:
    """Note on the job's slices how many pods the scheduler of its gang keeps together, as its worker says. Without a
    word of it the note goes. Of a job beside a Kueue nobody asks."""
    record = view.outbox.record if view.outbox is not None else None
    is_present = record is not None and record.is_of_this_run(report.spec_version) and view.cluster == cluster
    if view.job is None or view.beside_kueue or not is_present or report.phase is not JobPhase.RUNNING:
        return []
    return [
        Patch(resource=WORKLOADS, target=workload, body=annotation_patch(api_names.GANG_ANNOTATION, note))
        for workload, note in ((view.workload(slice), _gang_note(slice, report)) for slice in view.unfinished)
        if annotation(workload, api_names.GANG_ANNOTATION) != note
    ]


def _gang_note(slice: Slice, report: Status) -> str | None:
    if report.gang is msgspec.UNSET:
        return None
    minimum = {name: count for name, count in report.gang.items() if name in slice.counts}
    return msgspec.json.encode(minimum, order="sorted").decode()


def _withdraw_next(view: JobView, report: Status) -> list[Command]:
    """Withdraw the copy that a newer order may have made after the one that has ended was gone.

    Only then is the end shown, so that the quota stays until that copy has gone: see `builtin.reconcile`.
    """
    outbox = view.outbox
    if outbox is None or not report.phase.is_terminal or view.state.held is not Held.HOLD:
        return []
    if not outbox.record.is_of_this_run(report.spec_version):
        return []
    is_last = report.spec_version >= outbox.record.version and view.state.progress is not Progress.LOST
    return [] if is_last else dispatch.withdraw(view, reason="JobFinished")


def _recalled(outbox: Outbox, report: Applied, cluster: ClusterName) -> list[Command]:
    """Forget a copy left on a given-up cluster, when its agent has removed it."""
    if not report.deleted or report.spec_version < outbox.record.left_copies[cluster]:
        return []
    left_copies = {name: version for name, version in outbox.record.left_copies.items() if name != cluster}
    record = msgspec.structs.replace(outbox.record, left_copies=left_copies)
    applied = max(report.spec_version, outbox.applied) if cluster == record.cluster else None
    return [write(record, outbox.recorded_on, applied=applied)]


def _is_from_here(view: JobView, envelope: Envelope) -> bool:
    """Whether the job is on the sender's cluster. False where it runs nowhere, or has left it: the message is late.

    Raises ProtocolError for a job of another cluster: a cluster may only report on its own jobs.
    """
    record = view.outbox.record if view.outbox is not None else None
    has_left = record is not None and envelope.cluster in (record.previous_cluster, *record.left_copies)
    if view.cluster is None or (has_left and envelope.cluster != view.cluster):
        return False
    if view.cluster != envelope.cluster:
        detail = f"{view.ref.key} runs on cluster {view.cluster!r}, not on {envelope.cluster!r}"
        raise ProtocolError(DeadReason.REFUSED, detail)
    return True
