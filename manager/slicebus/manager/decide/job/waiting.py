"""Shows on a job why it does not have the size that it wants, and tells the worker that asked.

Level-triggered: both are made anew of the conditions of its Workloads and of what its worker reports. The times are
theirs, so a manager that starts again writes nothing.
"""

from collections.abc import Sequence

import msgspec

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Publish, Remember, Requeue
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.requirements import FIXED_SIZE
from slicebus.manager.state.tables import TableName
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import ClusterName, Counts, JobPhase, Manifest, Pending, Status
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.chain import structural_message
from slicebus.slices.workload.waiting import ONLY_WORKERS_KNOW, Waiting, lacks, shown_on, without_numbers
from slicebus.slices.workload.workload import Slice


class Wait(msgspec.Struct, frozen=True):
    """Why a job waits."""

    shown: Waiting
    slice: Slice | None = None
    """The slice that waits, or whose resize is refused; None where only the worker knows."""


def then(commands: Sequence[Command], view: JobView) -> list[Command]:
    """The commands of a decision, and what `reconcile` adds. A job that they write is decided about again anyway."""
    writes_job = any(isinstance(command, Patch) and command.target is view.job for command in commands)
    return [*commands, *([] if writes_job else reconcile(view))]


def reconcile(view: JobView) -> list[Command]:
    """Show why the job waits, or that it no longer does, and tell its worker; nothing where both is done."""
    wait = found(view)
    return [*_show(view, wait.shown if wait else None), *_tell(view, wait)]


def found(view: JobView) -> Wait | None:
    """Why a job waits: for quota, for a resize that is possible, or for what only its worker knows."""
    job = view.job
    if job is None or "deletionTimestamp" in job["metadata"] or not view.is_managed:
        return None
    if KINDS[view.ref.kind].outcome(job).phase.is_terminal or dispatch.has_unknown_end(view):
        return None
    if (fixed := _for_fixed_size(view)) is not None:
        return fixed
    return _for_quota(view, job) or _for_other_pods(view) or _for_what_a_worker_knows(view, job)


def take_report(view: JobView, report: Status, cluster: ClusterName) -> list[Command]:
    """Remember what only the worker knows, and have it shown. A report that says nothing ends that."""
    record = view.outbox.record if view.outbox else None
    is_present = record is not None and record.is_of_this_run(report.spec_version) and view.cluster == cluster
    if view.job is None or not is_present or report.phase is not JobPhase.RUNNING:
        return []
    again = Requeue(job=view.ref, delay_s=0.0)
    if said := report.waits or None:
        note = Remember(table=TableName.WAITS, key=view.ref, value=said)
        return [note, again] if said != view.waits else []
    shown = Waiting.from_manifest(view.job)
    # It may be this manager that has shown it, or one before it.
    over = _show(view, None) if shown is not None and shown.reason in ONLY_WORKERS_KNOW else []
    return [Forget(table=TableName.WAITS, key=view.ref), *over, again] if view.waits is not None else over


def _for_quota(view: JobView, job: Manifest) -> Wait | None:
    slice = next((slice for slice in reversed(view.unfinished) if slice.lacks_quota), None)
    condition = slice.conditions.get(Condition.QUOTA_RESERVED, {}) if slice else {}
    if slice is None or condition.get("status") != "False":
        return None
    granted, would_admit = view.holder.granted if view.holder else {}, view.would_admit.get(slice.key)
    waiting, before = _of_condition(condition, slice.counts, granted, would_admit or ""), Waiting.from_manifest(job)
    if would_admit is None and before is not None:
        # The admission cycle says nothing again that a Workload shows: an earlier manager has heard it.
        known = msgspec.structs.replace(waiting, would_admit=before.would_admit)
        waiting = known if known.says_same(before) else waiting
    return Wait(waiting, slice)


def _for_other_pods(view: JobView) -> Wait | None:
    """A resize that is refused. Beside a Kueue no condition shows it."""
    holder, wanted, own = view.holder, view.desired.counts, view.desired.own
    if holder is None or not lacks(wanted, holder.granted):
        # Other pods of the same counts are no size: their condition says what becomes of them.
        return None
    condition = holder.conditions.get(api_names.RESIZABLE_CONDITION, {})
    if condition.get("status") == "False":
        return Wait(_of_condition(condition, wanted, holder.granted), holder)
    if wanted.keys() == own.keys():
        return None
    since, message = view.workload(holder)["metadata"]["creationTimestamp"], structural_message(own, wanted)
    return Wait(
        Waiting.of(wanted, holder.granted, reason=api_names.STRUCTURAL_CHANGE, message=message, since=since), holder
    )


def _for_fixed_size(view: JobView) -> Wait | None:
    """A resize on the worker of a job whose size stays. Until it is answered the worker grants no more than it asks."""
    holder, requested = view.holder, view.desired.requested
    if view.desired.kept is None or holder is None or requested is None or not requested.asks_for_size:
        return None
    wanted = requested.counts
    granted = {name: min(count, wanted.get(name, count)) for name, count in holder.granted.items()}
    if not lacks(wanted, granted):
        return None
    message = f'a job without the annotation {kueue.ELASTIC_ANNOTATION}: "true" keeps the size that it was started with'
    since = view.workload(holder)["metadata"]["creationTimestamp"]
    return Wait(Waiting.of(wanted, granted, reason=FIXED_SIZE, message=message, since=since), holder)


def _for_what_a_worker_knows(view: JobView, job: Manifest) -> Wait | None:
    """What the worker has reported; where this manager has heard nothing yet, what an earlier one has shown."""
    said, shown = view.waits, Waiting.from_manifest(job)
    if said is None:
        return Wait(shown) if shown is not None and shown.reason in ONLY_WORKERS_KNOW else None
    granted = view.holder.granted if view.holder else {}
    return Wait(Waiting.of(said.wanted, granted, reason=said.reason, message=said.message, since=said.since))


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
    is_news = waiting.reason in ONLY_WORKERS_KNOW and (before is None or before.reason != waiting.reason)
    events = [Emit(regarding=job, reason=waiting.reason, note=waiting.message, warning=True)] if is_news else []
    return [_annotate(job, waiting.to_annotation()), *events]


def _annotate(job: Manifest, text: str | None) -> Command:
    return Patch(
        resource=JOB_RESOURCES[job["kind"]], target=job, body=annotation_patch(api_names.WAITING_ANNOTATION, text)
    )


def _tell(view: JobView, wait: Wait | None) -> list[Command]:
    """The notice to the worker, once for each request and reason, until its agent starts anew."""
    notice = _notice(view, wait.shown, wait.slice) if wait is not None and wait.slice is not None else None
    if notice is None or view.cluster is None:
        return [Forget(table=TableName.NOTICES, key=view.ref)] if view.last_notice else []
    key = notice_key(notice)
    if view.last_notice == key:
        return []
    correlation = view.desired.requested.correlation if view.desired.requested else None
    return [
        Publish(cluster=view.cluster, message=notice, correlation=correlation),
        Remember(table=TableName.NOTICES, key=view.ref, value=key),
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
    """The key by which the manager remembers a notice: numbers in its texts make no other one."""
    request = f"{notice.workload} {notice.worker_uid}/{notice.worker_generation} {notice.since}"
    return f"{request} {notice.reason}: {without_numbers(notice.message)}; {without_numbers(notice.would_admit)}"
