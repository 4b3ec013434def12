"""What to do with a message from a worker.

`authorize` comes first: it checks that the sender may speak for the cluster. Each message type has one function.
A message that comes late or twice gives no commands. A message about a job that runs nowhere is late.
"""

from collections.abc import Callable

import msgspec

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Requeue
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS
from slicebus.manager.decide import dispatch, unknown_ends
from slicebus.manager.decide.manifests import NOT_YET_READY, annotation_patch, findings_patch, write_status
from slicebus.manager.decide.outbox import write
from slicebus.manager.state.annotations import SizeRequest, annotation
from slicebus.manager.state.outbox import Dispatch, Held, Outbox, Progress, applied_version
from slicebus.manager.state.tables import TableName
from slicebus.manager.state.views import JobView
from slicebus.manager.state.worker_clusters import Sender
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
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.fingerprints import all_ready
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import can_suspend

_RETRY_REFUSED_S = 30.0
_MAX_PODS = 100_000
"""A larger count is a mistake: Kubernetes clusters are tested up to 150,000 pods."""
UNAUTHORIZED = frozenset(
    {
        DeadReason.UNKNOWN_CLUSTER,
        DeadReason.WRONG_USER,
        DeadReason.WRONG_CLUSTER,
        DeadReason.NO_CLUSTER_UID,
        DeadReason.FENCED_EPOCH,
        DeadReason.FUTURE_EPOCH,
    }
)
"""Why a sender may not speak for the cluster that its envelope names."""


def authorize(envelope: Envelope, sender: Sender | None, *, newest_epoch: int | None = None) -> None:
    """Check that the sender may speak for the cluster. Raises ProtocolError with a reason of `UNAUTHORIZED`.

    `sender` is who may speak for the cluster that the envelope names; None where there is no such WorkerCluster.
    `newest_epoch` is the highest that an agent can have by now; None for any. A higher one is refused, and fences
    nobody where it is stored: it would fence the agents to come until then.
    """
    if sender is None:
        raise ProtocolError(DeadReason.UNKNOWN_CLUSTER, f"there is no WorkerCluster {envelope.cluster!r}")
    if not sender.accepted:
        raise ProtocolError(
            DeadReason.UNKNOWN_CLUSTER, f"WorkerCluster {envelope.cluster!r} is not accepted: set spec.accepted to true"
        )
    if envelope.user_id != sender.user:
        detail = f"user {envelope.user_id!r} may not speak for cluster {envelope.cluster!r}, only {sender.user!r} may"
        raise ProtocolError(DeadReason.WRONG_USER, detail)
    if sender.uid and envelope.cluster_uid is None:
        detail = f"it names no cluster UID, and {envelope.cluster!r} is {sender.uid}"
        raise ProtocolError(DeadReason.NO_CLUSTER_UID, detail)
    if sender.uid and envelope.cluster_uid != sender.uid:
        detail = f"cluster {envelope.cluster_uid} speaks as {envelope.cluster!r}, which is {sender.uid}"
        raise ProtocolError(DeadReason.WRONG_CLUSTER, detail)
    if newest_epoch is not None and envelope.epoch > newest_epoch:
        ahead = envelope.epoch - newest_epoch
        detail = f"epoch {envelope.epoch} of {envelope.cluster!r} is {ahead} s too far ahead: compare the clocks"
        raise ProtocolError(DeadReason.FUTURE_EPOCH, detail)
    if envelope.epoch < sender.epoch and (newest_epoch is None or sender.epoch <= newest_epoch):
        detail = f"epoch {envelope.epoch} of {envelope.cluster!r} has ended, {sender.epoch} speaks now"
        raise ProtocolError(DeadReason.FENCED_EPOCH, detail)


def scale_request(view: JobView, request: ScaleRequest, envelope: Envelope) -> list[Command]:
    """Write the request onto the manager's job. The chain follows from there."""
    if view.job is None or view.holder is None or KINDS[view.ref.kind].outcome(view.job).phase.is_terminal:
        return []
    if not _is_from_here(view, envelope):
        return []
    if not request.wanted or not all(0 <= count <= _MAX_PODS for count in request.wanted.values()):
        raise ProtocolError(DeadReason.REFUSED, f"counts must be between 0 and {_MAX_PODS}: {request.wanted}")
    finished = request.finished or {}
    if not all(0 <= count <= _MAX_PODS and name in request.wanted for name, count in finished.items()):
        raise ProtocolError(DeadReason.REFUSED, f"pods that have ended must be of a wanted pod set: {finished}")
    last, published_at = view.desired.requested, (envelope.epoch, envelope.sequence)
    key = RequestKey(request.worker_uid, request.worker_generation)
    if last and not last.is_older_than(key, speaker=envelope.speaker, published_at=published_at):
        return []
    desired = SizeRequest(
        counts=request.wanted,
        worker_uid=request.worker_uid,
        worker_generation=request.worker_generation,
        baseline=view.desired.own,
        correlation=envelope.correlation_id,
        speaker=envelope.speaker,
        epoch=envelope.epoch,
        sequence=envelope.sequence,
        granted=request.granted,
        finished=finished,
        written=last.written if last else msgspec.UNSET,
        own=last.own if last else msgspec.UNSET,
        taken_back=view.desired.taken_back or msgspec.UNSET,
    )
    body = annotation_patch(api_names.REQUESTED_ANNOTATION, desired.to_annotation())
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body=body)]


def applied(view: JobView, report: Applied, envelope: Envelope) -> list[Command]:
    """Write the applied version onto the slice that the report names; after a delete onto all that holds a dispatch.

    When the worker has no pod of an evicted job left, every request that was published before this report is forgotten
    first.

    A job that has quota and was ended by a version that this cluster does not know, as after a restore of its etcd, is
    dispatched anew.
    """
    outbox, cluster = view.outbox, envelope.cluster
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
        return dispatch.renew(view, above=report.spec_version)
    is_news = outbox is not None and not outbox.is_reported and report.spec_version >= outbox.record.version
    confirms_suspended = is_news and (view.state.held is Held.SUSPENDED or _is_evicted_whole(view))
    published_at = (envelope.epoch, envelope.sequence)
    forgotten = forget_requests(view, published_at, speaker=envelope.speaker) if confirms_suspended else []
    body = annotation_patch(api_names.APPLIED_ANNOTATION, str(report.spec_version))
    holding = [(WORKLOADS, each) for name, each in view.workloads.items() if report.deleted or name == report.workload]
    if report.deleted and view.job is not None:
        # What was recorded on a job that has given its Workloads up may be ordered anew.
        holding.append((JOB_RESOURCES[view.ref.kind], view.job))
    return forgotten + [
        Patch(resource=resource, target=target, body=body)
        for resource, target in holding
        if Dispatch.from_manifest(target) is not None and applied_version(target) < report.spec_version
    ]


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
    last = SizeRequest.from_job(view.job)
    if last is not None and last.is_since(published_at, speaker=speaker):
        return []
    begins_with = view.desired.own if made_anew else None
    forgotten = SizeRequest.none_before(published_at, speaker=speaker, last=last, begins_with=begins_with)
    body = annotation_patch(api_names.REQUESTED_ANNOTATION, forgotten.to_annotation())
    return [Patch(resource=JOB_RESOURCES[view.ref.kind], target=view.job, body=body)]


def refused(view: JobView, refusal: Refused, envelope: Envelope, *, now: str) -> list[Command]:
    """Show on the Workload and the job why the worker cannot apply a slice, and try again after a while."""
    workload = view.workloads.get(refusal.workload)
    if workload is None or applied_version(workload) >= refusal.spec_version or not _is_from_here(view, envelope):
        return []
    message = f"Cluster {envelope.cluster} refused version {refusal.spec_version}: {refusal.message}"
    finding = Finding(api_names.DISPATCHED_CONDITION, False, refusal.reason, message)
    again: list[Command] = [
        Forget(table=TableName.PUBLISHED, key=view.ref),
        Requeue(job=view.ref, delay_s=_RETRY_REFUSED_S),
    ]
    if has_finding(workload, finding):
        return again
    body = findings_patch(workload, finding, now=now)
    events = [Emit(regarding=view.job, reason=refusal.reason, note=message, warning=True)] if view.job else []
    return [Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"), *events, *again]


def mirror(view: JobView, report: Status, now: str) -> list[Command]:
    """Mirror the worker's status onto the manager's job, and whether its pods are ready onto its slice.

    The status of an earlier run comes too late when the next run is dispatched: it is ignored, also when the run ended.
    """
    assert view.job is not None
    if view.outbox is not None and not view.outbox.record.is_of_this_run(report.spec_version):
        return []
    return _mirror(view.job, report) + _pods_ready(view, report, now=now)


def status(
    view: JobView,
    report: Status,
    envelope: Envelope,
    *,
    now: str,
    take: Callable[[JobView, Status, str], list[Command]] = mirror,
) -> list[Command]:
    """Take a status in with `take`, and record whether the worker's copy is gone.

    A job whose copy a user deleted is deleted here too, unless the breaker holds that: see `endings`. A job that may
    have ended before its copy went stays: see `unknown_ends`. Where a copy ended before the newest order reached it,
    what that order makes is withdrawn.
    """
    if view.job is None or not _is_from_here(view, envelope):
        return []
    if KINDS[view.ref.kind].outcome(view.job).phase.is_terminal:
        return []
    if report.phase is JobPhase.GONE:
        if view.is_withdrawing or view.vanished:
            return []
        return (
            dispatch.note_unknown_end(view)
            if unknown_ends.may_have_ended(view, report)
            else dispatch.note_vanished(view)
        )
    # Several may write on one Workload: the first write makes the next conflict, and the message is handled again.
    return [*dispatch.note_vanished(view, vanished=False), *_withdraw_next(view, report), *take(view, report, now)]


def _withdraw_next(view: JobView, report: Status) -> list[Command]:
    """Withdraw the copy that a newer order may have made since the one that has ended was gone.

    Only then is the end shown, so that the quota stays until that copy has gone: see `builtin.decide`.
    """
    outbox = view.outbox
    if outbox is None or not report.phase.is_terminal or view.state.held is not Held.HOLD:
        return []
    if not outbox.record.is_of_this_run(report.spec_version):
        return []
    is_last = report.spec_version >= outbox.record.version and view.state.progress is not Progress.LOST
    return [] if is_last else dispatch.withdraw(view, reason="JobFinished")


def _mirror(job: Manifest, report: Status) -> list[Command]:
    """Write the worker's whole status onto the job, and what its kind cannot show into an annotation.

    Where both have changed, the first write makes the second conflict, and the message is handled again.
    """
    wanted, reported = KINDS[job["kind"]].mirrored_status(job, report.job_status), report.job_status
    names = wanted.keys() | reported.keys()
    unshown = {name: reported.get(name) for name in names if reported.get(name) != wanted.get(name)}
    note = msgspec.json.encode(unshown, order="deterministic").decode() if unshown else None
    commands = write_status(job, wanted)
    if annotation(job, api_names.UNSHOWN_ANNOTATION) == note:
        return commands
    body = {"metadata": {"annotations": {api_names.UNSHOWN_ANNOTATION: note}}}
    return [Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body), *commands]


def _pods_ready(view: JobView, report: Status, *, now: str) -> list[Command]:
    """Set Kueue's condition PodsReady on the slice that the worker's pods run on."""
    holder = view.holder
    if holder is None or holder.name != report.workload or report.phase is not JobPhase.RUNNING:
        return []
    ready, succeeded = {name: pods.ready for name, pods in report.pods.items()}, KINDS[view.ref.kind].succeeded
    workload, before = view.workload(holder), holder.conditions.get(Condition.PODS_READY, {})
    if all_ready(holder.granted, ready, succeeded(report.job_status)):
        finding = Finding(Condition.PODS_READY, True, "PodsReady", "All pods are ready")
    elif before.get("status") == "True" or before.get("reason") == kueue.WAIT_FOR_RECOVERY:
        finding = Finding(Condition.PODS_READY, False, kueue.WAIT_FOR_RECOVERY, "Not all pods are ready any more")
    else:
        finding = NOT_YET_READY
    if has_finding(workload, finding):
        return []
    body = findings_patch(workload, finding, now=now)
    shown = Patch(resource=WORKLOADS, target=workload, body=body, subresource="status")
    # A reconcile ignores the condition, but for the time that pods have to get ready.
    return [shown, Requeue(job=view.ref, delay_s=0.0)] if view.readiness is not None else [shown]


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
