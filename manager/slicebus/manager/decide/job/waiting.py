"""Shows on a job why it does not have the size that it wants, and tells the worker that asked.

Level-triggered: both are made from the conditions of its Workloads and its worker's report. The times are theirs too,
so a manager that starts again writes nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Publish, Remember, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.job import size_bounds
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.requirements import FIXED_SIZE, waits_for_flavor
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.views import JobView, ReportedPods
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import (
    ClusterName,
    Counts,
    JobPhase,
    Manifest,
    Pending,
    PodProblem,
    Report,
    ScaleRequest,
    Status,
    Waits,
)
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.paths import text_of
from slicebus.slices.workload.chain import structural_message
from slicebus.slices.workload.pod_problems import reasons, texts, worst_first
from slicebus.slices.workload.waiting import (
    ONLY_WORKERS_KNOW,
    PODS_NOT_RUNNING,
    Waiting,
    lacks,
    shown_on,
    with_pods,
    without_details,
    without_numbers,
)
from slicebus.slices.workload.workload import Slice

SUSPENDED = "SuspendedByUser"
"""The reason of a job that its user has suspended."""
REQUEST_REFUSED = "RequestRefused"
"""The reason of a request that the manager's API server does not let slicebus write."""
COUNTS_NOT_RESTORED = "CountsNotRestored"
_LENGTH = 2000
"""Of a text: all annotations of an object share 256 KiB."""


class WaitReason(msgspec.Struct, frozen=True):
    """Why a job waits."""

    shown: Waiting
    slice: Slice | None = None
    """The slice that waits, or whose resize is refused; None where only the worker knows."""


def extend(commands: Sequence[Command], view: JobView) -> list[Command]:
    """The commands of a decision with those of `reconcile`. None are added where the decision writes the job: that
    write has it reconciled again."""
    writes_job = any(isinstance(command, Patch) and command.target is view.job for command in commands)
    return [*commands, *([] if writes_job else reconcile(view))]


def reconcile(view: JobView) -> list[Command]:
    """Show why the job waits, or that it no longer does, and tell its worker; nothing where both are done."""
    wait = reason_for(view)
    return [*_show(view, wait.shown if wait else None), *_tell(view, wait)]


def reason_for(view: JobView) -> WaitReason | None:
    """Why a job waits: for quota, since its resize is refused, or for a reason that only its worker knows; and why its
    pods do not run. None where nothing is wrong."""
    job = view.job
    if job is None or "deletionTimestamp" in job["metadata"] or not view.is_managed:
        return None
    if view.outcome.phase.is_terminal or dispatch.has_unknown_end(view):
        return None
    wait = (
        _for_suspension(view, job)
        or _for_flavor(view)
        or _for_fixed_size(view)
        or _for_refused_request(view)
        or _for_quota(view, job)
        or _for_other_pods(view)
        or _for_what_a_worker_knows(view, job)
    )
    granted = view.holder.granted if view.holder is not None else {}
    before = wait.shown if wait is not None else None
    shown = with_pods(before, pod_problems_of(view, job), wanted=view.desired.counts, granted=granted)
    return WaitReason(shown, wait.slice if wait is not None else None) if shown is not None else None


def pod_problems_of(view: JobView, job: Manifest) -> dict[str, PodProblem]:
    """Why granted pods do not run, by the worker's last report; before a report to this manager, what an earlier one
    has shown."""
    reported, record = view.reported_pods, view.outbox.record if view.outbox is not None else None
    if reported is None:
        shown = Waiting.from_manifest(job)
        return _granted_only(view, shown.pods) if shown is not None else {}
    is_present = record is not None and record.is_of_this_run(reported.spec_version)
    return _granted_only(view, reported.problems) if is_present else {}


def reported_reason(view: JobView, job: Manifest) -> str:
    """The reason that only the worker knows, by its last report; before a report to this manager, what an earlier one
    has shown. Empty for none."""
    wait = _for_what_a_worker_knows(view, job)
    return wait.shown.reason if wait is not None else ""


def take_report(view: JobView, report: Status, cluster: ClusterName) -> list[Command]:
    """Remember what only the worker knows, and have it shown: the reason to wait, and why pods do not run. A report
    without a reason ends it."""
    record = view.outbox.record if view.outbox else None
    is_present = record is not None and record.is_of_this_run(report.spec_version) and view.cluster == cluster
    if view.job is None or not is_present or report.phase is not JobPhase.RUNNING:
        return []
    waits, problems = report.waits or None, _granted_only(view, report.problems)
    pods = ReportedPods(report.spec_version, worst_first(problems)) if problems else None
    notes = [
        *_note(ManagerTable.WAITS, view, waits, before=view.waits),
        *_note(ManagerTable.REPORTED_PODS, view, pods, before=view.reported_pods),
    ]
    if waits is None and view.waits is not None and view.last_notice:
        # On the worker's job it stood in the place of what the manager had said, which is said again.
        notes.append(Forget(table=ManagerTable.NOTICES, key=view.ref))
    # An earlier manager may have shown it, so the job tells what is over and not the memory of this one.
    requeue = [Requeue(job=view.ref, delay_s=0.0)] if notes else []
    return [*notes, *_clear(view.job, is_waiting=waits is not None, has_problems=pods is not None), *requeue]


def _note(table: ManagerTable, view: JobView, told: object, *, before: object) -> list[Command]:
    if told == before:
        return []
    return [Forget(table=table, key=view.ref) if told is None else Remember(table=table, key=view.ref, value=told)]


def _clear(job: Manifest, *, is_waiting: bool, has_problems: bool) -> list[Command]:
    """Take off a job what its worker no longer reports."""
    shown = Waiting.from_manifest(job)
    if shown is None or "deletionTimestamp" in job["metadata"]:
        return []
    is_over = shown.reason == PODS_NOT_RUNNING or (shown.reason in ONLY_WORKERS_KNOW and not is_waiting)
    pods = shown.pods if has_problems else {}
    left = with_pods(None if is_over else shown, pods, wanted=shown.wanted, granted=shown.granted)
    return [] if left == shown else [_annotate(job, left.to_annotation() if left is not None else None)]


def note_refused(view: JobView, message: Report, envelope: Envelope, problem: str, *, now: str) -> list[Command]:
    """Show on a job that the API server refuses to write what a worker reports. A worker whose request waits for that
    is told once for each request and text."""
    note = f"The manager's API server refuses what cluster {envelope.cluster} reports ({message.type}): {problem}"
    shown = [Emit(regarding=view.job, reason=REQUEST_REFUSED, note=note, warning=True)] if view.job else []
    if not isinstance(message, ScaleRequest) or view.job is None:
        return [*shown]
    before = view.refused_request
    if (
        before is not None
        and before.wanted == message.wanted
        and without_details(before.message) == without_details(note)
    ):
        return []
    admits = "a change of that right, policy or webhook"
    told = _tell_refused(view, message, envelope, reason=REQUEST_REFUSED, note=note, now=now, admits=admits)
    return [*shown, *told]


def is_request_refused(view: JobView) -> bool:
    """Whether the API server refuses to write the worker's request, which is kept to be tried again."""
    return view.refused_request is not None and view.refused_request.reason == REQUEST_REFUSED


def note_past_bounds(
    view: JobView, request: ScaleRequest, envelope: Envelope, problem: str, *, now: str
) -> list[Command]:
    """Show on a job that its worker asks for more than the job allows, and tell the worker; once for each size."""
    before = view.refused_request
    if view.job is None or (before is not None and (before.wanted, before.message) == (request.wanted, problem)):
        return []
    shown = Emit(regarding=view.job, reason=size_bounds.PAST_BOUNDS, note=problem, warning=True)
    reason, admits = size_bounds.PAST_BOUNDS, "a change of the job's bounds"
    told = _tell_refused(view, request, envelope, reason=reason, note=problem, now=now, admits=admits)
    return [shown, *told, Requeue(job=view.ref, delay_s=0.0)]


def _tell_refused(
    view: JobView, request: ScaleRequest, envelope: Envelope, *, reason: str, note: str, now: str, admits: str
) -> list[Command]:
    """Remember why a request is refused, which the job shows, and tell its worker."""
    refused = Waits(wanted=request.wanted, reason=reason, message=note[:_LENGTH], since=now)
    notice = Pending(
        job=view.ref,
        workload=request.workload,
        worker_uid=request.worker_uid,
        worker_generation=request.worker_generation,
        wanted=request.wanted,
        reason=reason,
        message=refused.message,
        since=now,
        would_admit=admits,
    )
    return [
        Remember(table=ManagerTable.REFUSED_REQUESTS, key=view.ref, value=refused),
        Publish(
            cluster=envelope.cluster,
            message=notice,
            correlation=envelope.correlation_id,
            unless_confirmed=Forget(table=ManagerTable.REFUSED_REQUESTS, key=view.ref),
        ),
    ]


def _for_suspension(view: JobView, job: Manifest) -> WaitReason | None:
    """A job that its user has suspended."""
    if not view.is_suspended_by_user:
        return None
    path = text_of(KINDS[view.ref.kind].suspend_path or ())
    evicted = view.evicted.conditions[Condition.EVICTED] if view.evicted is not None else {}
    since = evicted.get("lastTransitionTime") or job["metadata"].get("creationTimestamp", "")
    message = f"Its user has suspended it: it has no quota, and runs when somebody sets {path} to false"
    granted = view.holder.granted if view.holder else {}
    return WaitReason(Waiting.of(view.desired.counts, granted, reason=SUSPENDED, message=message, since=since))


def _for_flavor(view: JobView) -> WaitReason | None:
    """An order that waits for a flavor."""
    holder = view.holder
    if holder is None or not waits_for_flavor(holder):
        return None
    shown = holder.conditions[api_names.DISPATCHED_CONDITION]
    return WaitReason(_of_condition(shown, view.desired.counts, holder.granted))


def _for_refused_request(view: JobView) -> WaitReason | None:
    """A worker's request that the API server refuses to write."""
    refused, granted = view.refused_request, view.holder.granted if view.holder else {}
    if refused is None:
        return None
    return WaitReason(
        Waiting.of(refused.wanted, granted, reason=refused.reason, message=refused.message, since=refused.since)
    )


def _for_quota(view: JobView, job: Manifest) -> WaitReason | None:
    slice = next((slice for slice in reversed(view.unfinished) if slice.lacks_quota), None)
    condition = slice.conditions.get(Condition.QUOTA_RESERVED, {}) if slice else {}
    if slice is None or condition.get("status") != "False":
        return None
    granted, would_admit = view.holder.granted if view.holder else {}, view.would_admit.get(slice.key)
    waiting, before = _of_condition(condition, slice.counts, granted, would_admit or ""), Waiting.from_manifest(job)
    if would_admit is None and before is not None:
        # The cycle does not repeat what a Workload shows. It told an earlier manager, which wrote it onto the job.
        known = msgspec.structs.replace(waiting, would_admit=before.would_admit)
        waiting = known if known.says_same(before) else waiting
    return WaitReason(waiting, slice)


def _for_other_pods(view: JobView) -> WaitReason | None:
    """A resize that is refused. Beside a Kueue no condition shows it."""
    holder, wanted, own = view.holder, view.desired.counts, view.desired.own
    if holder is None or not lacks(wanted, holder.granted):
        # Edited pods of the same counts are no resize: a condition of their own shows them.
        return None
    condition = holder.conditions.get(api_names.RESIZABLE_CONDITION, {})
    if condition.get("status") == "False":
        return WaitReason(_of_condition(condition, wanted, holder.granted), holder)
    if wanted.keys() == own.keys():
        return None
    since, message = view.workload(holder)["metadata"]["creationTimestamp"], structural_message(own, wanted)
    return WaitReason(
        Waiting.of(wanted, holder.granted, reason=api_names.STRUCTURAL_CHANGE, message=message, since=since), holder
    )


def _for_fixed_size(view: JobView) -> WaitReason | None:
    """The refused resize of a job of fixed size on its worker. Until it is answered, the worker grants no more than it
    asks for."""
    holder, requested = view.holder, view.desired.requested
    if holder is None or requested is None or not requested.asks_for_size:
        return None
    if view.desired.kept is None and (holder.elastic or not view.beside_kueue):
        return None
    wanted = requested.counts
    granted = {name: min(count, wanted.get(name, count)) for name, count in holder.granted.items()}
    if not lacks(wanted, granted):
        return None
    message = f'a job without the annotation {kueue.ELASTIC_ANNOTATION}: "true" keeps the size that it was started with'
    since = view.workload(holder)["metadata"]["creationTimestamp"]
    return WaitReason(Waiting.of(wanted, granted, reason=FIXED_SIZE, message=message, since=since), holder)


def _for_what_a_worker_knows(view: JobView, job: Manifest) -> WaitReason | None:
    """The reason that the worker has reported; before a report to this manager, the one that an earlier manager has
    shown."""
    reported, shown = view.waits, Waiting.from_manifest(job)
    if reported is None:
        is_reported = shown is not None and shown.reason in ONLY_WORKERS_KNOW and shown.reason != PODS_NOT_RUNNING
        return WaitReason(shown) if shown is not None and is_reported else None
    granted = view.holder.granted if view.holder else {}
    return WaitReason(
        Waiting.of(reported.wanted, granted, reason=reported.reason, message=reported.message, since=reported.since)
    )


def _granted_only(view: JobView, problems: Mapping[str, PodProblem]) -> dict[str, PodProblem]:
    """Without pod sets that only somebody's label names."""
    granted = view.holder.granted if view.holder is not None else {}
    return {name: problem for name, problem in problems.items() if granted.get(name)}


def _of_condition(condition: Manifest, wanted: Counts, granted: Counts, would_admit: str = "") -> Waiting:
    return Waiting.of(
        wanted,
        granted,
        reason=condition.get("reason", ""),
        message=condition.get("message", ""),
        since=condition["lastTransitionTime"],
        would_admit=would_admit,
    )


def _show(view: JobView, waiting: Waiting | None) -> list[Command]:
    job = view.job
    if job is None or "deletionTimestamp" in job["metadata"]:
        return []
    if waiting is None:
        return [_annotate(job, None)] if shown_on(job) is not None else []
    before = Waiting.from_manifest(job)
    if waiting.says_same(before):
        return []
    return [_annotate(job, waiting.to_annotation()), *_events(job, waiting, before)]


def _events(job: Manifest, waiting: Waiting, before: Waiting | None) -> list[Command]:
    """One Event for a reason that nothing else tells, and one where pods do not run for a reason that is new."""
    told = (SUSPENDED, *ONLY_WORKERS_KNOW)
    is_news = waiting.reason in told and (before is None or before.reason != waiting.reason)
    notes = {waiting.reason: waiting.message} if is_news and waiting.reason != PODS_NOT_RUNNING else {}
    known = before.pods.values() if before is not None else ()
    if reasons(waiting.pods.values()) - reasons(known):
        notes[PODS_NOT_RUNNING] = texts(waiting.pods)
    return [Emit(regarding=job, reason=reason, note=note, warning=True) for reason, note in notes.items()]


def _annotate(job: Manifest, text: str | None) -> Command:
    body = annotation_patch(api_names.WAITING_ANNOTATION, text)
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, only_shows=True)


def _tell(view: JobView, wait: WaitReason | None) -> list[Command]:
    """The notice to the worker, once for each request and reason, until its agent starts anew."""
    notice = _notice(view, wait.shown, wait.slice) if wait is not None and wait.slice is not None else None
    if notice is None or view.cluster is None:
        return [Forget(table=ManagerTable.NOTICES, key=view.ref)] if view.last_notice else []
    key = notice_key(notice)
    if view.last_notice == key:
        return []
    correlation = view.desired.requested.correlation if view.desired.requested else None
    # Without a confirm nobody knows which one the worker has.
    unknown = Forget(table=ManagerTable.NOTICES, key=view.ref)
    return [
        Publish(cluster=view.cluster, message=notice, correlation=correlation, unless_confirmed=unknown),
        Remember(table=ManagerTable.NOTICES, key=view.ref, value=key),
    ]


def _notice(view: JobView, waiting: Waiting, slice: Slice) -> Pending | None:
    """Why the worker's last request waits or was refused; None where no worker has asked."""
    requested = view.desired.requested
    if requested is None or not requested.asks_for_size or not (slice.replaces or slice == view.holder):
        return None
    return Pending(
        job=view.ref,
        workload=slice.name,
        worker_uid=requested.worker_uid,
        worker_generation=requested.worker_generation,
        wanted=requested.counts,
        reason=waiting.reason,
        message=waiting.message,
        since=waiting.since,
        would_admit=waiting.would_admit,
    )


def notice_key(notice: Pending) -> str:
    """The key by which the manager remembers a notice: other numbers in its texts do not change it."""
    request = f"{notice.workload} {notice.worker_uid}/{notice.worker_generation} {notice.since}"
    return f"{request} {notice.reason}: {without_numbers(notice.message)}; {without_numbers(notice.would_admit)}"
